import { randomUUID } from 'node:crypto'
import pg from 'pg'
import t from 'tap'
import { lockKey } from '../lib/lock-key.js'
import { sharedAnswer } from '../lib/shared-answer.js'
import { levels, setStage, type Stage } from './helpers/host.js'
import { fastClock, handClock } from './helpers/hand-clock.js'
import { startPostgres } from './helpers/postgres.js'
import { gate, until } from './helpers/until.js'

const DAY = 86_400_000
const cluster = await startPostgres(t)

/** A run of long ago, or a new one. */
async function addRun (stage: Stage, startedAt: Date, { state = 'failed', id = randomUUID() } = {}): Promise<string> {
  await stage.query(`insert into ${stage.schema}.run (id, name, trigger, state, attempt, window_end, started_at, finished_at, worker)
    values ($1, $2, 'schedule', $3, 1, $4, $4, $4, 'host:1')`, [id, stage.name, state, startedAt])
  return id
}

// status

t.test('a status before anything has happened', async t => {
  const stage = await setStage(t, cluster, undefined, { empty: true })
  await stage.clock.at('2025-03-10T10:20:00Z')
  const { sync, app } = await stage.host()
  t.match(await sync.status(), { unavailable: /relation .* does not exist/, lastSuccess: null, due: null, syncing: false }, 'without tables')
  await app.close()
  const loop = stage.looping({ firstRun: 'wait' })
  await loop.rests()
  t.match(await loop.sync.status(), {
    name: stage.name,
    target: '',
    enabled: true,
    disabledBecause: null,
    syncing: false,
    holder: null,
    progress: null,
    unavailable: null,
    lastSuccess: null,
    lastRun: null,
    lastError: null,
    watermark: null,
    slot: new Date('2025-03-10T10:00:00Z'),
    nextSlot: new Date('2025-03-10T11:00:00Z'),
    behindSlots: 0,
    due: false,
    hold: 'served',
    nextLook: new Date(loop.hands.now() + 40 * 60_000 + 1),
    lastLook: { at: new Date(loop.hands.now()), outcome: 'not-due', reason: 'first-run' }
  }, 'with tables')
})

t.test('a status during a run', async t => {
  const stage = await setStage(t, cluster)
  const on = gate()
  const one = await stage.host({
    enabled: true,
    sync: async run => {
      run.progress(3, 12)
      await on.passed
      run.progress(12)
    }
  })
  const other = await stage.host()
  const status = await until(async () => { // an answer of half a second ago may still serve
    const status = await one.sync.status()
    return status.progress !== null && status.holder?.applicationName?.endsWith('3/12') === true && status
  })
  t.match(status, {
    syncing: true,
    progress: { done: 3, total: 12 },
    lastLook: { outcome: 'running' },
    nextLook: null,
    due: true,
    holder: {
      backend: Number,
      applicationName: /^hourly-sync:a status during a run@.*:\d+ [\da-f]{4}:3\/12$/,
      address: '127.0.0.1',
      trigger: 'schedule',
      slot: new Date('2025-03-10T10:00:00Z'),
      startedAt: Date,
      runId: String,
      host: String,
      pid: process.pid
    }
  })
  const seen = await other.sync.status()
  t.match(seen, { syncing: true, progress: { done: 3, total: 12 }, enabled: false, holder: { runId: status.holder!.runId } })
  on.open()
  await until(async () => (await one.sync.status()).lastSuccess)
})

t.test('a status after a success', async t => {
  const stage = await setStage(t, cluster)
  await stage.clock.at('2025-03-10T10:00:00Z')
  const { sync } = await stage.host()
  const { run } = await sync.runOnce()
  t.match(await sync.status(), {
    syncing: false, holder: null, lastSuccess: { id: run!.id }, lastRun: { id: run!.id }, lastError: null, watermark: run!.until, behindSlots: 0, due: false, hold: 'served'
  })
})

t.test('a status after a failure', async t => {
  const stage = await setStage(t, cluster)
  let fails = false
  const { sync } = await stage.host({ sync: () => { if (fails) throw Object.assign(new Error('no, token=sesame'), { code: 'E_NO' }) } })
  await stage.clock.at('2025-03-10T10:00:00Z')
  const { run: success } = await sync.runOnce()
  fails = true
  await stage.clock.at('2025-03-10T13:00:00Z')
  const { run } = await sync.runOnce()
  t.match(await sync.status(), {
    lastSuccess: { id: success!.id },
    lastRun: { id: run!.id, state: 'failed' },
    lastError: { at: new Date('2025-03-10T13:00:00Z'), name: 'Error', message: 'no, token=***', code: 'E_NO' },
    watermark: success!.until,
    behindSlots: 3,
    due: false,
    hold: 'waiting'
  })
})

t.test('a status counts the slots that nobody served', async t => {
  const stage = await setStage(t, cluster)
  await stage.clock.at('2025-03-10T10:00:00Z')
  const { sync } = await stage.host()
  await sync.runOnce()
  await stage.clock.at('2025-03-10T12:30:00Z')
  t.match(await sync.status(), { behindSlots: 2, due: true, hold: null, slot: new Date('2025-03-10T12:00:00Z') })
})

t.test('a lock that something else holds has a holder without a run', async t => {
  const stage = await setStage(t, cluster)
  const { sync, app } = await stage.host()
  await sync.runOnce()
  const client = new pg.Client({ connectionString: cluster.url(), application_name: 'celery' })
  await client.connect()
  t.teardown(async () => await client.end())
  await client.query('select pg_advisory_lock($1)', [sync.lockKey])
  t.match(await sync.status(), { syncing: true, holder: { applicationName: 'celery', runId: null, trigger: null, slot: null, startedAt: null, host: null, pid: null } })
  t.match(await app.triggerSync(), { started: false, reason: 'running', holder: { applicationName: 'celery' } })
})

t.test('a shared lock keeps every run out, and its holder is named', async t => {
  const stage = await setStage(t, cluster)
  const { sync, app } = await stage.host()
  await sync.runOnce()
  const [one, other] = ['first', 'second'].map(name => new pg.Client({ connectionString: cluster.url(), application_name: name }))
  for (const client of [one!, other!]) {
    await client.connect()
    t.teardown(async () => await client.end())
    await client.query('select pg_advisory_lock_shared($1)', [sync.lockKey])
  }
  const holder = { applicationName: /first|second/, runId: null, pid: null }
  t.match(await sync.runOnce({ force: true }), { outcome: 'running' })
  t.match(await app.triggerSync(), { started: false, reason: 'running', message: /a session that has noted no run/, holder })
  t.match(await sync.status(), { syncing: true, holder, wedged: false })
  t.equal(await app.isSyncing(), true)
})

// isSyncing

t.test('isSyncing sees the run of another process, and its end', async t => {
  const stage = await setStage(t, cluster)
  const on = gate()
  const one = await stage.host({ sync: async () => await on.passed })
  const other = await stage.host()
  t.equal(await other.app.isSyncing(), false)
  const answer = await one.app.triggerSync()
  t.equal(await one.app.isSyncing(), true)
  await until(async () => await other.app.isSyncing()) // the answer of half a second ago may still serve
  on.open()
  await (answer.started && answer.finished)
  t.equal(await one.app.isSyncing(), false)
  await until(async () => !await other.app.isSyncing())
})

t.test('a status is never of half a second ago, as what isSyncing says may be', async t => {
  const stage = await setStage(t, cluster)
  const on = gate()
  const one = await stage.host({ sync: async () => await on.passed })
  const other = await stage.host()
  const answer = await one.app.triggerSync()
  t.equal(await other.app.isSyncing(), true)
  on.open()
  await (answer.started && answer.finished)
  t.match(await other.sync.status(), { syncing: false, holder: null, lastRun: { state: 'succeeded' } })
})

t.test('isSyncing sees a lock whose key is negative as well', async t => {
  const stage = await setStage(t, cluster)
  let number = 0
  while (lockKey(`negative ${number}`) >= 0n) number++
  const on = gate()
  const one = await stage.host({ name: `negative ${number}`, sync: async () => await on.passed })
  const other = await stage.host({ name: `negative ${number}` })
  await one.app.triggerSync()
  t.equal(await other.app.isSyncing(), true)
  t.match(await other.sync.runOnce({ force: true }), { outcome: 'running' })
  on.open()
})

t.test('isSyncing is false for the same key locked in another database of the server', async t => {
  const stage = await setStage(t, cluster)
  const { app, sync } = await stage.host()
  const client = new pg.Client({ connectionString: cluster.url(await cluster.database()) })
  await client.connect()
  t.teardown(async () => await client.end())
  await client.query('select pg_advisory_lock($1)', [sync.lockKey])
  t.equal(await app.isSyncing(), false)
  t.match(await sync.runOnce(), { outcome: 'succeeded' })
})

t.test('isSyncing is false for the same bits as two keys', async t => {
  const stage = await setStage(t, cluster)
  const { app, sync } = await stage.host()
  const client = new pg.Client({ connectionString: cluster.url() })
  await client.connect()
  t.teardown(async () => await client.end())
  const key = BigInt.asIntN(64, BigInt(sync.lockKey))
  await client.query('select pg_advisory_lock($1::int, $2::int)', [Number(BigInt.asIntN(32, key >> 32n)), Number(BigInt.asIntN(32, key))])
  t.equal(await app.isSyncing(), false)
})

t.test('one question about the holder is in flight, and its answer serves for half a second', async t => {
  const stage = await setStage(t, cluster)
  const hands = handClock()
  const { sync, pool } = stage.bare({ enabled: false }, hands)
  let questions = 0
  pool.on('acquire', () => { questions++ })
  await Promise.all(Array.from({ length: 20 }, async () => await sync.isSyncing()))
  t.equal(questions, 1, 'twenty at once are one')
  await hands.advance(500)
  await sync.isSyncing()
  t.equal(questions, 1, 'half a second later it is still the same')
  await hands.advance(1)
  await sync.isSyncing()
  t.equal(questions, 2, 'and then it is another')
})

t.test('an answer serves only as long as nothing has changed that it is said to depend on', async t => {
  let version = 1
  const open = [gate<string>(), gate<string>()]
  let asked = 0
  const answer = sharedAnswer(handClock(), async () => await open[asked++]!.passed, () => version)
  const old = answer()
  version++
  const fresh = answer()
  open[0]!.open('old')
  open[1]!.open('fresh')
  t.strictSame(await Promise.all([old, fresh, answer()]), ['old', 'fresh', 'fresh'])
  t.equal(asked, 2)
})

t.test('a question that fails is asked again', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = stage.bare({ enabled: false }, undefined, { connectionString: cluster.url('no_such_database') })
  await t.rejects(sync.isSyncing(), { code: '3D000' })
  await stage.query('create database no_such_database')
  t.equal(await sync.isSyncing(), false)
})

t.test('a run of this process is known without a question', async t => {
  const stage = await setStage(t, cluster)
  const on = gate()
  const { app, pool } = await stage.host({ sync: async () => await on.passed }, { max: 2 })
  await app.triggerSync()
  const clients = [await pool.connect()] // now the pool has none left
  t.equal(await app.isSyncing(), true)
  on.open()
  for (const client of clients) client.release()
})

t.test('who holds the lock is known without a question where this process does', async t => {
  const stage = await setStage(t, cluster)
  const on = gate()
  const host = await stage.host({ sync: async () => await on.passed }, { max: 2 })
  const other = await stage.host()
  const answer = await host.app.triggerSync()
  const known = { ...(await other.sync.status()).holder, address: null }
  const client = await host.pool.connect() // now the pool has none left
  const began = performance.now()
  t.strictSame(await host.app.triggerSync(), { started: false, reason: 'running', holder: known })
  t.match(await host.sync.runOnce(), { outcome: 'running' })
  t.ok(performance.now() - began < 900, 'it waits for nobody') // a second is what it would wait to be told of another holder
  t.equal(known.runId, answer.started && answer.runId)

  await t.test('and told when the database does not answer', async t => {
    client.release()
    await stage.query(`alter table ${stage.schema}.run rename to away`)
    t.match(await host.sync.status(), { unavailable: /does not exist/, syncing: true, holder: known })
    await stage.query(`alter table ${stage.schema}.away rename to run`)
  })
  on.open()
  await (answer.started && answer.finished)
})

t.test('who was locked out waits a second to be told by whom', async t => {
  const stage = await setStage(t, cluster)
  const on = gate()
  const one = await stage.host({ sync: async () => await on.passed })
  const other = await stage.host()
  await other.sync.runOnce({ force: true }) // its preparation
  await one.app.triggerSync()
  const client = new pg.Client({ connectionString: cluster.url() })
  await client.connect()
  t.teardown(async () => await client.end())
  await client.query(`begin; lock table ${stage.schema}.run in access exclusive mode`)
  const began = performance.now()
  t.strictSame(await other.app.triggerSync(), { started: false, reason: 'running' })
  t.ok(performance.now() - began < 8_000, 'and not ten')
  await client.query('rollback')
  on.open()
})

// runs

t.test('the history is read newest first', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host()
  const ids: string[] = []
  for (let i = 0; i < 3; i++) ids.push((await sync.runOnce({ force: true })).run!.id)
  t.strictSame((await sync.runs()).map(({ id }) => id), [...ids].reverse())
})

t.test('the history is read as the run gave it', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({ sync: async () => ({ stats: { orders: 2 } }) })
  const { run } = await sync.runOnce()
  t.strictSame(await sync.runs(), [run])
  t.match(run, { duration: run!.finishedAt.getTime() - run!.startedAt.getTime(), slice: 1, slices: 1, target: '', worker: /:\d+$/ })
})

t.test('pages of the history hold still while runs are added', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host()
  await sync.runOnce()
  const ids = [(await sync.runs())[0]!.id]
  // several of one instant: their ids decide
  for (let i = 0; i < 9; i++) ids.push(await addRun(stage, new Date(Date.parse('2025-03-01T00:00:00Z') - DAY * Math.floor(i / 3))))
  const expected = (await sync.runs()).map(({ id }) => id)
  t.strictSame([...expected].sort(), [...ids].sort())
  const pages: string[] = []
  for (let before: string | undefined; ;) {
    const page = await sync.runs({ limit: 4, ...(before && { before }) })
    if (page.length === 0) break
    pages.push(...page.map(({ id }) => id))
    before = page.at(-1)!.id
    await addRun(stage, new Date('2025-04-01T00:00:00Z')) // newer than all
  }
  t.strictSame(pages, expected)
})

t.test('before a run that is gone there is nothing', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host()
  await sync.runOnce()
  t.strictSame(await sync.runs({ before: randomUUID() }), [])
})

t.test('a history of another sync in the same schema is not read', async t => {
  const stage = await setStage(t, cluster)
  const one = await stage.host()
  const other = await stage.host({ name: 'other' })
  await one.sync.runOnce()
  t.strictSame(await other.sync.runs(), [])
})

t.test('a page of no possible size, or from no possible run, is refused', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host()
  await sync.runOnce()
  for (const limit of [0, -1, 1_001, 2.5, NaN, '5', null] as any[]) await t.rejects(sync.runs({ limit }), { code: 'FST_HOURLY_SYNC_INVALID_OPTION' }, `limit ${limit}`)
  for (const before of ['', 'x', 7, null, "'; drop table run"] as any[]) await t.rejects(sync.runs({ before }), { code: 'FST_HOURLY_SYNC_INVALID_OPTION' }, `before ${before}`)
  t.equal((await sync.runs({ limit: 1_000 })).length, 1)
})

// retention

t.test('old runs are pruned, but never the last success', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({ sync: () => { throw new Error('no') }, history: { keepFor: '30d' } })
  await stage.clock.at('2025-03-10T10:00:00Z')
  await sync.runOnce()
  const ago = (days: number): Date => new Date(Date.parse('2025-03-12T10:00:00Z') - days * DAY)
  await addRun(stage, ago(41), { state: 'succeeded' })
  const success = await addRun(stage, ago(40), { state: 'succeeded' })
  await addRun(stage, ago(35))
  await addRun(stage, ago(30.01))
  const kept = await addRun(stage, ago(29.9))
  await stage.clock.at('2025-03-12T10:00:00Z')
  await sync.runOnce()
  const ids = (await stage.history()).map(({ id }) => id)
  t.equal(ids.length, 4)
  t.ok(ids.includes(success) && ids.includes(kept))
})

t.test('the watermark outlives what is pruned', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({ history: { keepFor: '1d' }, overlap: 0 })
  await stage.clock.at('2025-03-10T10:00:00Z')
  const { run } = await sync.runOnce()
  await stage.query(`delete from ${stage.schema}.run`)
  await stage.clock.at('2025-05-10T10:00:00Z')
  t.strictSame((await sync.runOnce()).run!.since, run!.until)
})

t.test('the history is pruned at most once a day', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({ history: { keepFor: '1d' } })
  await stage.clock.at('2025-03-10T10:00:00Z')
  await sync.runOnce()
  const old = await addRun(stage, new Date('2025-01-01T00:00:00Z'))
  const isThere = async (): Promise<boolean> => (await stage.history()).some(({ id }) => id === old)
  await stage.clock.at('2025-03-11T09:00:00Z')
  await sync.runOnce()
  t.equal(await isThere(), true)
  await stage.clock.at('2025-03-11T10:00:01Z')
  await sync.runOnce()
  t.equal(await isThere(), false)
})

t.test('a history that cannot be pruned harms no run', async t => {
  const stage = await setStage(t, cluster)
  const { sync, log } = await stage.host()
  await sync.runOnce()
  await addRun(stage, new Date('2024-01-01T00:00:00Z'))
  await stage.query(`
    create function ${stage.schema}.refuse() returns trigger language plpgsql as $$ begin raise 'refused'; end $$;
    create trigger refuse before delete on ${stage.schema}.run for each row execute function ${stage.schema}.refuse();
    update ${stage.schema}.sync set pruned_at = null`)
  t.match(await sync.runOnce({ force: true }), { outcome: 'succeeded' })
  t.match(log.said('the history could not be pruned'), [{ level: levels.warn, err: { message: 'refused' } }])
  t.equal(await stage.holders(), 0)
})

t.test('a prune that waits for somebody else does not keep the lock', async t => {
  const stage = await setStage(t, cluster)
  const { sync, log } = stage.bare({ enabled: false }, fastClock(20))
  await sync.runOnce()
  const id = await addRun(stage, new Date('2024-01-01T00:00:00Z'))
  await stage.query(`update ${stage.schema}.sync set pruned_at = null`)
  const client = new pg.Client({ connectionString: cluster.url() })
  await client.connect()
  t.teardown(async () => await client.end())
  await client.query('begin')
  await client.query(`select from ${stage.schema}.run where id = $1 for update`, [id])
  t.match(await sync.runOnce({ force: true }), { outcome: 'succeeded' })
  await until(async () => await stage.holders() === 0)
  t.match(log.said('the history could not be pruned'), [{ err: { code: 'FST_HOURLY_SYNC_UNAVAILABLE' } }])
})
