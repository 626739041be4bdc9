import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import pg from 'pg'
import t from 'tap'
import { afterLook, afterRun, startLoop } from '../lib/loop.js'
import { parseOptions } from '../lib/options.js'
import type { SyncRun } from '../lib/types.js'
import { startCuttingProxy } from './helpers/cutting-proxy.js'
import { handClock } from './helpers/hand-clock.js'
import { levels, setStage } from './helpers/host.js'
import { startPostgres } from './helpers/postgres.js'
import { gate, until } from './helpers/until.js'

setFlagsFromString('--expose-gc')
const collect: () => void = runInNewContext('gc')
const cluster = await startPostgres(t)
const HOUR = 3_600_000
const MINUTE = 60_000
const at = (time: string): number => Date.parse(`2025-03-10T${time}Z`)

const settings = parseOptions({ name: 'a', sync: async () => {}, every: '1h', standby: '15s', jitter: '10m' })
const look = { now: at('10:20:00'), slot: at('10:00:00'), notBefore: null, hold: null, mark: null, ahead: null }
const toNext = 40 * MINUTE + 1

t.test('how long a loop sleeps after a look', async t => {
  const cases: Array<[string, number, string, any, number, number]> = [
    ['a served slot: until the next', toNext, 'not-due', { ...look, hold: 'served' }, 0, 0],
    ['with jitter: some more', toNext + 5 * MINUTE, 'not-due', { ...look, hold: 'served' }, 0, 0.5],
    ['somebody else runs: a standby', 15_000, 'running', look, 0, 0.5],
    ['somebody else runs at the end of a slot: until the next', 5_001, 'running', { ...look, now: at('10:59:55') }, 0, 0],
    ['the run before is not over in this process: a standby', 15_000, 'running', null, 0, 0],
    ['a retry rests: as long as it', 5 * MINUTE, 'not-due', { ...look, hold: 'waiting', notBefore: at('10:25:00') }, 0, 0.5],
    ['a retry rests beyond the slot: until the next', toNext, 'not-due', { ...look, hold: 'waiting', notBefore: at('12:00:00') }, 0, 0],
    ['the retries are spent: until the next slot', toNext, 'not-due', { ...look, hold: 'spent', notBefore: at('10:10:00') }, 0, 0],
    ['its runs vanished: until the next slot', toNext, 'not-due', { ...look, hold: 'vanished' }, 0, 0],
    ['the database is away: a second, spread', 750, 'unavailable', null, 1, 0.5],
    ['the database is away for long: half a minute at most', 30_000, 'unavailable', null, 100, 1]
  ]
  for (const [what, expected, outcome, seen, away, chance] of cases) t.equal(afterLook(settings, outcome, seen, away, chance), expected, what)
})

t.test('how long a loop sleeps after a run', async t => {
  const ended = (state: string, notBefore: number | null = null, now: number | null = 0): any => ({ record: { state, slot: new Date(at('10:00:00')), slice: 1, slices: 1 }, now, notBefore, advanced: state === 'succeeded' })
  const slice = (slice: number, advanced: boolean): any => ({ record: { state: 'succeeded', slot: new Date(at('10:00:00')), slice, slices: 3 }, now: 0, notBefore: null, advanced })
  const cases: Array<[string, number, any, number]> = [
    ['a success: until the next slot', toNext, ended('succeeded'), at('10:20:00')],
    ['a success that took longer than its slot: not at all', 0, ended('succeeded'), at('11:00:00')],
    ['a success of the last slice: until the next slot', toNext, slice(3, true), at('10:20:00')],
    ['a success after which the next slice did not begin: a standby', 15_000, slice(2, true), at('10:20:00')],
    ['the same at the end of a slot: until the next', 2_001, slice(2, true), at('10:59:58')],
    ['a slice that keeps the watermark, and is the last: until the next slot', toNext, slice(1, false), at('10:20:00')],
    ['a failure: as long as it rests', 5 * MINUTE, ended('failed', at('10:25:00')), at('10:20:00')],
    ['a failure that need not rest: until the next slot', toNext, ended('failed'), at('10:20:00')],
    ['a failure that rests beyond the slot: until the next', toNext, ended('timed-out', at('12:00:00')), at('10:20:00')],
    ['a failure that took longer than its slot: not at all', 0, ended('failed', at('11:30:00')), at('11:20:00')],
    ['a failure that the database did not take: a standby', 15_000, ended('failed', null, null), at('10:20:00')],
    ['an interruption: a standby', 15_000, ended('interrupted'), at('10:20:00')],
    ['a lost lock: a standby', 15_000, ended('lock-lost'), at('10:20:00')],
    ['a lost lock at the end of a slot: until the next', 2_001, ended('lock-lost'), at('10:59:58')]
  ]
  for (const [what, expected, end, now] of cases) t.equal(afterRun(settings, end, now, 0), expected, what)
})

t.test('a loop whose end the database did not take reckons with the time that has passed since its look', async t => {
  const hands = handClock()
  const on = gate()
  const record = { state: 'failed', slot: new Date(at('10:00:00')) }
  const attempt = async (): Promise<any> => ({ started: true, look, run: { finished: on.passed.then(() => ({ record, now: null, told: 0, notBefore: null })) } })
  const loop = startLoop({ settings, clock: hands, attempt, looked: () => {}, chance: () => 0 })
  t.teardown(loop.stop)
  await hands.advance(settings.startupDelay)
  await hands.advance(39 * MINUTE + 50_000) // of the run; then it is 10:59:50
  on.open()
  await until(() => loop.nextLook !== null)
  t.equal(loop.nextLook! - hands.now(), 10_001, 'until the next slot, which is nearer than a standby')
})

t.test('a loop looks first after its startup delay', async t => {
  const stage = await setStage(t, cluster)
  const loop = stage.looping({ startupDelay: '90s' })
  t.equal(await loop.rests(), 90_000)
  await loop.hands.advance(89_999)
  t.match(await loop.sync.status(), { lastLook: null })
  await loop.hands.advance(1)
  await until(() => loop.log.said('sync succeeded').length === 1)
})

t.test('a loop runs once a slot', async t => {
  const stage = await setStage(t, cluster)
  await stage.clock.at('2025-03-10T10:00:30Z')
  const loop = stage.looping()
  await loop.rests()
  for (let slot = 0; slot < 3; slot++) await loop.look()
  t.strictSame((await stage.history()).map(({ slot, trigger, state }) => [slot.getUTCHours(), trigger, state]),
    [10, 11, 12, 13].map(hour => [hour, 'schedule', 'succeeded']))
})

t.test('a loop whose process was asleep for hours catches up in one run', async t => {
  const stage = await setStage(t, cluster)
  await stage.clock.at('2025-03-10T10:00:00Z')
  let missed
  const loop = stage.looping({ sync: async run => { missed = run.missedSlots } })
  await loop.rests()
  await stage.clock.pass(5 * HOUR + 10 * MINUTE)
  loop.hands.sleep(5 * HOUR + 10 * MINUTE)
  await until(async () => (await stage.history()).length === 2)
  await loop.rests()
  t.match((await stage.history())[1], { trigger: 'catch-up', slot: new Date(at('15:00:00')) })
  t.equal(missed, 4)
  t.equal((await stage.history()).length, 2)
})

t.test("a loop follows the server's clock, not its own", async t => {
  const stage = await setStage(t, cluster)
  await stage.clock.at('2025-03-10T10:59:00Z')
  const loop = stage.looping()
  t.equal(await loop.rests(), MINUTE + 1)
  await loop.hands.advance(MINUTE + 1) // the server's clock has stood still
  await until(() => loop.log.said('sync not due').length === 1)
  t.equal(await loop.rests(), MINUTE + 1)
})

t.test('a run longer than its slot is followed by the next at once', async t => {
  const stage = await setStage(t, cluster)
  await stage.clock.at('2025-03-10T10:00:00Z')
  let calls = 0
  const loop = stage.looping({ timeout: '10h', sync: async () => { if (++calls === 1) await stage.clock.at('2025-03-10T12:30:00Z') } })
  await until(async () => (await stage.history().catch(() => [])).length === 2)
  await loop.rests()
  t.match((await stage.history()).slice(1), [{ slot: new Date(at('12:00:00')), trigger: 'catch-up', state: 'succeeded' }])
})

t.test('a loop that finds another at work looks again every standby', async t => {
  const stage = await setStage(t, cluster)
  await stage.clock.at('2025-03-10T10:00:00Z')
  const on = gate()
  const one = await stage.host({ sync: async () => await on.passed })
  const run = one.sync.runOnce()
  await until(async () => await stage.holders().catch(() => 0) === 1)
  const loop = stage.looping({ standby: '20s' })
  t.equal(await loop.rests(), 20_000)
  await loop.look()
  t.equal(await loop.rests(), 20_000)
  t.match(loop.log.said('sync running elsewhere'), [{ level: levels.debug, holder: /:\d+$/ }], 'and says so once a slot')
  on.open()
  await run
  await loop.look()
  t.match(await loop.sync.status(), { lastLook: { outcome: 'not-due', reason: 'served' } })
})

t.test('a loop replaces a holder whose session has ended within a standby', async t => {
  const stage = await setStage(t, cluster)
  await stage.clock.at('2025-03-10T10:00:00Z')
  const one = stage.bare({ enabled: false, sync: async run => { await run.sleep(HOUR) } })
  await one.sync.trigger()
  const loop = stage.looping({ standby: '20s' })
  t.equal(await loop.rests(), 20_000)
  await stage.query("select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'hourly-sync:a loop replaces%'")
  await until(async () => await stage.holders() === 0)
  await loop.look()
  t.match((await stage.history()).filter(({ state }) => state === 'succeeded'), [{ slot: new Date(at('10:00:00')), attempt: 1 }])
})

t.test('a loop that lost the lock of its run looks again after a standby', async t => {
  const stage = await setStage(t, cluster)
  await stage.clock.at('2025-03-10T10:00:00Z')
  let calls = 0
  const loop = stage.looping({ sync: async run => { if (++calls === 1) await run.query('select pg_advisory_unlock_all()') } })
  await loop.rests()
  t.equal(await loop.rests(), 15_000)
  await loop.look()
  t.strictSame((await stage.history()).map(({ state }) => state), ['lock-lost', 'succeeded'])
})

t.test('a loop whose next slice could not begin goes on after a standby', async t => {
  const stage = await setStage(t, cluster)
  await stage.clock.at('2025-03-10T10:00:00Z')
  const proxy = await startCuttingProxy(t, cluster.port)
  let starts = 0
  const loop = stage.looping({ maxWindow: '1h', initialSince: '3h', sync: async () => { if (++starts === 2) proxy.cut('$25::jsonb', 'after') } },
    { connectionString: cluster.url().replace(`:${cluster.port}/`, `:${proxy.port}/`) })
  t.equal(await loop.rests(), 15_000, 'the end of its second slice stands, its answer is lost')
  t.strictSame(loop.log.said('the next slice could not begin'), [])
  await loop.look()
  t.strictSame((await stage.history()).map(({ state, slice, slices }) => [state, slice, slices]), [['succeeded', 1, 3], ['succeeded', 2, 3], ['succeeded', 1, 2], ['succeeded', 2, 2]])
  t.match(await stage.state(), { last_slot: new Date(at('10:00:00')) })
})

t.test('a loop waits while the run before is not over in this process', async t => {
  const stage = await setStage(t, cluster)
  await stage.clock.at('2025-03-10T10:00:00Z')
  const on = gate()
  const loop = stage.looping({ timeout: '1m', abandonAfter: '1m', retry: { delay: 0 }, sync: async () => await on.passed })
  await until(() => loop.log.said('sync started').length)
  await loop.hands.advance(2 * MINUTE)
  await until(() => loop.log.said('sync timed-out').length)
  await loop.hands.advance(await loop.rests())
  t.equal(await loop.rests(), 15_000)
  t.match(await loop.sync.status(), { lastLook: { outcome: 'running', reason: null } })
  on.open()
})

t.test('a loop that is stopped during its look begins no run', async t => {
  const stage = await setStage(t, cluster)
  await stage.clock.at('2025-03-10T10:00:00Z')
  await stage.host({ name: 'other' }).then(async other => await other.sync.runOnce()) // makes the tables
  const client = new pg.Client({ connectionString: cluster.url() })
  await client.connect()
  t.teardown(async () => await client.end())
  const { rows: [{ pid }] } = await client.query('select pg_backend_pid() as pid')
  await client.query(`begin; lock table ${stage.schema}.sync`)
  const { sync } = stage.bare()
  sync.start()
  await until(async () => (await stage.query('select from pg_stat_activity where $1 = any (pg_blocking_pids(pid))', [pid])).rowCount === 1)
  sync.stop()
  await client.query('rollback')
  t.match(await until(async () => (await sync.status()).lastLook), { outcome: 'stopped', reason: null })
  t.match(await sync.runs(), [])
  await until(async () => (await stage.query("select from pg_locks where locktype = 'advisory'")).rowCount === 0, 'its lock is gone')
  t.match(await sync.runOnce(), { outcome: 'succeeded' })
})

t.test('between two runs nothing is kept of the one before', async t => {
  const stage = await setStage(t, cluster)
  let run: WeakRef<SyncRun> | undefined
  const loop = stage.looping({ sync: async given => { run = new WeakRef(given) } })
  await loop.rests()
  await until(() => {
    collect()
    return run!.deref() === undefined
  }, 'it is collected', 10_000)
  t.match(await stage.history(), [{ state: 'succeeded' }])
})

t.test('that a slot is not due is said once a slot, at debug', async t => {
  const stage = await setStage(t, cluster)
  const loop = stage.looping()
  await loop.rests()
  for (let i = 0; i < 3; i++) {
    await loop.hands.advance(await loop.rests()) // without the server's
    await loop.rests()
  }
  t.match(loop.log.said('sync not due'), [{ level: levels.debug, reason: 'served', slot: '2025-03-10T10:00:00.000Z' }])
})

t.test('a last slot that lies ahead is said once, as an error, and ignored', async t => {
  const stage = await setStage(t, cluster)
  await stage.clock.at('2025-03-10T12:00:00Z')
  const first = await stage.host()
  await first.sync.runOnce()
  await stage.clock.at('2025-03-10T10:00:00Z')
  let fails = true
  const loop = stage.looping({ sync: () => { if (fails) throw new Error('no') } })
  await loop.rests()
  await loop.look()
  fails = false
  await loop.look()
  t.match(loop.log.lines.filter(({ msg }) => msg.startsWith('the last slot lies in the future')),
    [{ level: levels.error, lastSlot: '2025-03-10T12:00:00.000Z', slot: '2025-03-10T10:00:00.000Z' }])
  t.match((await stage.history()).at(-1), { state: 'succeeded', slot: new Date(at('10:00:00')) })
})

t.test('a clock that is set back two hours under a loop runs no slot that is served', async t => {
  const stage = await setStage(t, cluster)
  await stage.clock.at('2025-03-10T12:00:00Z')
  const loop = stage.looping()
  await loop.rests()
  await stage.clock.at('2025-03-10T10:00:00Z')
  for (let look = 0; look < 4; look++) await loop.look()
  const slots = (await stage.history()).map(({ slot }) => slot.getUTCHours())
  t.strictSame(slots, [12, 13, 14])
  t.ok((await stage.history()).every(({ window_start: start, window_end: end }) => start <= end))
})
