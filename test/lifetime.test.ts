import t from 'tap'
import { createLifetime } from '../lib/lifetime.js'

const lifetimeOf = (): ReturnType<typeof createLifetime> => createLifetime(() => Object.assign(new Error('over'), { code: 'OVER' }))

/** Rows whose iterator has this `next`, and how often it was asked to return. */
function rowsOf (next: () => unknown): { rows: any, returned: () => number } {
  let count = 0
  return { rows: { [Symbol.asyncIterator]: () => ({ next, return: async () => { count++; return { done: true, value: count } } }) }, returned: () => count }
}

t.test('what can wait for nothing is handed back as it is', async t => {
  const { rows } = lifetimeOf()
  for (const given of [null, undefined, 'x', 5, [{ id: 1 }], new Set(), (function * () {})(), Object.assign(() => {}, { [Symbol.asyncIterator]: () => {} })] as any[]) t.equal(rows(given), given)
})

t.test('rows come as they are, and their end is theirs', async t => {
  const lifetime = lifetimeOf()
  const steps = [{ value: 1 }, { value: 2, done: false }, { value: 3, done: true }]
  const { rows, returned } = rowsOf(() => steps.shift()) // not even a promise
  const seen: unknown[] = []
  for await (const row of lifetime.rows(rows)) seen.push(row)
  t.strictSame(seen, [1, 2])
  lifetime.end()
  t.equal(returned(), 0)
})

t.test('who leaves early closes them, once', async t => {
  const lifetime = lifetimeOf()
  const { rows, returned } = rowsOf(async () => ({ value: 1 }))
  for await (const row of lifetime.rows(rows)) if (row) break
  lifetime.end()
  t.equal(returned(), 1)
})

t.test('what failed is not asked again', async t => {
  const lifetime = lifetimeOf()
  const { rows, returned } = rowsOf(async () => await Promise.reject(new Error('no more')))
  await t.rejects((lifetime.rows(rows) as any)[Symbol.asyncIterator]().next(), { message: 'no more' })
  lifetime.end()
  t.equal(returned(), 0)
})

t.test('a step that is none, or throws, is what whoever takes it gets', async t => {
  const nothing = (lifetimeOf().rows(rowsOf(async () => undefined).rows) as any)[Symbol.asyncIterator]()
  t.equal(await nothing.next(), undefined)
  const throwing = (lifetimeOf().rows(rowsOf(() => { throw new Error('at once') }).rows) as any)[Symbol.asyncIterator]()
  await t.rejects(throwing.next(), { message: 'at once' })
})

t.test('the end rejects who waits for a row, and who asks after it, and closes once', async t => {
  const lifetime = lifetimeOf()
  const { rows, returned } = rowsOf(async () => await new Promise(() => {}))
  const iterator = (lifetime.rows(rows) as any)[Symbol.asyncIterator]()
  const waiting = iterator.next()
  t.notOk(lifetime.over)
  lifetime.end()
  t.ok(lifetime.over)
  await t.rejects(waiting, { code: 'OVER' })
  await t.rejects(iterator.next(), { code: 'OVER' })
  t.strictSame(await iterator.return(), { done: true, value: undefined })
  t.equal(returned(), 1)
})

t.test('work settles as it does, or is over', async t => {
  const lifetime = lifetimeOf()
  t.equal(await lifetime.within(Promise.resolve(7)), 7)
  await t.rejects(lifetime.within(Promise.reject(new Error('its own'))), { message: 'its own' })
  const waiting = lifetime.within(new Promise(() => {}))
  lifetime.end()
  await t.rejects(waiting, { code: 'OVER' })
})
