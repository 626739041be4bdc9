import t from 'tap'
import { createWatch } from '../lib/watched.js'

const turn = async (): Promise<void> => await new Promise(resolve => setImmediate(resolve))
const fault = Object.assign(new Error('broken'), { code: 'BROKEN' })
const fails = async (): Promise<never> => { throw fault }

/** Unhandled rejections while a test runs. */
function unhandled (t: { teardown: (fn: () => void) => void }): unknown[] {
  const reasons: unknown[] = []
  const listener = (reason: unknown): void => { reasons.push(reason) }
  process.on('unhandledRejection', listener)
  t.teardown(() => { process.removeListener('unhandledRejection', listener) })
  return reasons
}

t.test('a call gives what its work gives', async t => {
  t.equal(await createWatch().over('query', async () => 7), 7)
})

t.test('a call fails as its work fails', async t => {
  await t.rejects(createWatch().over('query', fails), { code: 'BROKEN' })
})

t.test('work begins at the call', async t => {
  let begun = false
  createWatch().over('query', async () => { begun = true })
  t.ok(begun)
})

t.test('a failure that nobody looks at is told, with its cause, and is no unhandled rejection', async t => {
  const reasons = unhandled(t)
  const watch = createWatch()
  watch.over('query', fails)
  await turn()
  const unseen = await watch.unseen()
  t.match(unseen, { code: 'FST_HOURLY_SYNC_UNOBSERVED', message: /run\.query/ })
  t.equal(unseen!.cause, fault)
  await turn()
  t.strictSame(reasons, [])
})

t.test('the first of several is told', async t => {
  const watch = createWatch()
  watch.over('query', async () => { await turn(); throw new Error('slow') })
  watch.over('transaction', fails)
  await turn()
  await turn()
  t.match(await watch.unseen(), { message: /run\.transaction/ })
})

t.test('a failure of work that is still under way when it is asked for is told as well', async t => {
  const watch = createWatch()
  watch.over('query', async () => { await turn(); throw fault })
  t.match(await watch.unseen(), { code: 'FST_HOURLY_SYNC_UNOBSERVED' })
})

t.test('nothing is told of a success that nobody looks at', async t => {
  const watch = createWatch()
  watch.over('query', async () => 7)
  await turn()
  t.equal(await watch.unseen(), undefined)
})

const lookers: Array<[how: string, look: (promise: Promise<unknown>) => unknown]> = [
  ['await', async promise => { try { await promise } catch {} }],
  ['catch', promise => promise.catch(() => {})],
  ['then with two arguments', promise => promise.then(() => {}, () => {})],
  ['finally and catch', promise => promise.finally(() => {}).catch(() => {})],
  ['Promise.all', promise => Promise.all([promise]).catch(() => {})],
  ['Promise.allSettled', promise => Promise.allSettled([promise])],
  ['Promise.race', promise => Promise.race([promise]).catch(() => {})],
  ['an async function that returns it', promise => (async () => promise)().catch(() => {})]
]
for (const [how, look] of lookers) {
  t.test(`${how} is looking`, async t => {
    const watch = createWatch()
    look(watch.over('query', fails))
    await turn()
    t.equal(await watch.unseen(), undefined)
  })
}

t.test('looking late is looking', async t => {
  const watch = createWatch()
  const promise = watch.over('query', fails)
  await turn()
  await t.rejects(promise, { code: 'BROKEN' })
  t.equal(await watch.unseen(), undefined)
})

t.test('what then gives back is an ordinary promise, whose rejection is its owner\'s', async t => {
  const reasons = unhandled(t)
  const watch = createWatch()
  const next = watch.over('query', fails).then(() => 'never')
  t.equal(next.constructor, Promise)
  await turn()
  t.strictSame(reasons, [fault])
  await next.catch(() => {})
})

t.test('it can be told from no ordinary promise', async t => {
  t.type(createWatch().over('query', async () => {}), Promise)
})
