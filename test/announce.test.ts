import fc from 'fast-check'
import t from 'tap'
import { announced, applicationName, createAnnouncer, tidy } from '../lib/announce.js'
import type { Session } from '../lib/session.js'
import { handClock } from './helpers/hand-clock.js'
import { gate } from './helpers/until.js'

const id = 'abcd1234-1111-4111-8111-111111111111'

t.test('what is announced is read again, whatever the name', async t => {
  const count = fc.integer({ min: 0, max: Number.MAX_SAFE_INTEGER })
  fc.assert(fc.property(fc.string({ minLength: 1, maxLength: 100, unit: 'binary' }), count, fc.option(count), (name, done, total) => {
    const shown = applicationName(name, { id, progress: { done, total } })
    t.ok(Buffer.byteLength(shown) <= 63 && /^[ -~]*$/.test(shown), 'in what the server shows of it')
    t.strictSame(announced(shown, id), { done, total })
  }), { numRuns: 50 })
})

t.test('a name without progress, or with that of another run, tells of none', async t => {
  for (const shown of [null, '', 'psql', applicationName('orders'), applicationName('orders', { id: id.replace('abcd', 'abce'), progress: { done: 1, total: 2 } }), 'hourly-sync:orders@web:1 abcd:x']) {
    t.equal(announced(shown, id), null, String(shown))
  }
  t.equal(announced(applicationName('orders', { id, progress: { done: 1, total: null } }), undefined), null)
})

t.test('who it is can be read as long as there is room', async t => {
  t.match(applicationName('order-sync'), /^hourly-sync:order-sync@.+:\d+$/)
  t.match(applicationName('x'.repeat(100)), /^hourly-sync:x+@.+:\d+$/)
  t.equal(applicationName('x'.repeat(100)).length, 63)
})

t.test('a progress that is none is made one', async t => {
  const table: Array<[done: unknown, total: unknown, tidied: object]> = [
    [3, 10, { done: 3, total: 10 }], [3, undefined, { done: 3, total: null }], [3, null, { done: 3, total: null }], [2.6, 9.4, { done: 3, total: 9 }], [-1, -1, { done: 0, total: 0 }],
    [NaN, Infinity, { done: 0, total: null }], ['3', '10', { done: 0, total: null }], [1e300, 1e300, { done: Number.MAX_SAFE_INTEGER, total: Number.MAX_SAFE_INTEGER }]
  ]
  for (const [done, total, tidied] of table) t.strictSame(tidy(done, total), tidied)
})

/** An announcer over a session that notes what it is told: at work, in a transaction, or with something in the queue before. */
function announcing ({ fails = false } = {}): {
  announce: (done: number) => void, told: Array<[at: number, done: number]>, pass: (ms: number) => Promise<void>, over: AbortController, at: { work: boolean, open: boolean, before?: Promise<void> }
} {
  const clock = handClock()
  const told: Array<[number, number]> = []
  const over = new AbortController()
  const at = { work: false, open: false, before: Promise.resolve() }
  const session: Pick<Session, 'busy' | 'aside'> = {
    busy: () => at.work || at.open,
    aside: async (_text, values) => {
      await at.before
      const wanted = at.open ? undefined : values()
      if (wanted === undefined) return false
      told.push([clock.elapsed(), announced(wanted[0] as string, id)!.done])
      if (fails) throw new Error('the session is gone')
      return true
    }
  }
  const announce = createAnnouncer({ context: { clock, settings: { name: 'orders' }, statements: { announce: '' } } as any, session: session as any, begun: { id } as any, over: over.signal })
  const pass = async (ms: number): Promise<void> => {
    for (let passed = 0; passed <= ms; passed += 100) {
      await new Promise(resolve => setImmediate(resolve))
      if (passed < ms) await clock.advance(100)
    }
  }
  return { announce: done => announce({ done, total: null }), told, pass, over, at }
}

t.test('the first is told at once, and the latest of the rest a second later', async t => {
  const { announce, told, pass } = announcing()
  announce(1)
  await pass(0)
  for (const done of [2, 3, 4]) {
    announce(done)
    await pass(200)
  }
  await pass(2_000)
  t.strictSame(told, [[0, 1], [1_000, 4]])
  announce(5)
  await pass(0)
  t.strictSame(told.at(-1), [2_600, 5], 'after a rest again at once')
})

t.test('a session that is at work is left to it', async t => {
  const { announce, told, pass, at } = announcing()
  at.work = true
  announce(1)
  await pass(900)
  t.strictSame(told, [])
  at.work = false
  await pass(200)
  t.strictSame(told, [[1_000, 1]])
})

t.test('a session that is always at work is told in between, as often as any other', async t => {
  const { announce, told, pass, at } = announcing()
  at.work = true
  for (let done = 1; done <= 31; done++) {
    announce(done)
    await pass(100)
  }
  t.strictSame(told, [[1_000, 10], [2_000, 20], [3_000, 30]])
})

t.test('what waits for its turn is the latest once it has it, and nothing when the run is over by then', async t => {
  for (const ended of [false, true]) {
    const { announce, told, pass, over, at } = announcing()
    const turn = gate()
    at.work = true
    at.before = turn.passed
    announce(1)
    await pass(1_500)
    announce(2)
    if (ended) over.abort()
    turn.open()
    await pass(2_000)
    t.strictSame(told, ended ? [] : [[1_500, 2]])
  }
})

t.test('a transaction that is open is left to itself, however long it is', async t => {
  const { announce, told, pass, at } = announcing()
  at.open = true
  announce(1)
  await pass(5_000)
  t.strictSame(told, [])
  at.open = false
  await pass(200)
  t.strictSame(told, [[5_200, 1]])
})

t.test('nothing is told once the run is over', async t => {
  for (const work of [false, true]) {
    const { announce, told, pass, over, at } = announcing()
    announce(1)
    await pass(100)
    at.work = work
    announce(2)
    await pass(work ? 900 : 100)
    over.abort()
    at.work = false
    await pass(3_000)
    announce(3)
    await pass(3_000)
    t.strictSame(told, [[0, 1]])
  }
})

t.test('what could not be told is no harm', async t => {
  const { announce, told, pass } = announcing({ fails: true })
  announce(1)
  await pass(1_000)
  announce(2)
  await pass(1_000)
  t.strictSame(told.map(([, done]) => done), [1, 2])
})
