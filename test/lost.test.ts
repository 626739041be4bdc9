import pg from 'pg'
import t, { type Test } from 'tap'
import type { SyncRun } from '../lib/types.js'
import { startCuttingProxy } from './helpers/cutting-proxy.js'
import { handClock } from './helpers/hand-clock.js'
import { levels, setStage, type Stage } from './helpers/host.js'
import { startPostgres } from './helpers/postgres.js'
import { gate, until } from './helpers/until.js'

const MINUTE = 60_000
const cluster = await startPostgres(t)
await cluster.query('create table orders (id int primary key)')
t.beforeEach(async () => { await cluster.query('truncate orders') })
const saved = async (): Promise<number[]> => (await cluster.query('select id from orders order by id')).rows.map(({ id }) => id)

/** Texts that are in one statement of ours only. */
const FINISH = '$25::jsonb'
const UNLOCK = 'pg_advisory_unlock($1'

const backendOf = async (run: SyncRun): Promise<number> => (await run.query('select pg_backend_pid() as pid')).rows[0].pid

/** Ends a session as an administrator does, and waits until it is gone. */
async function kill (stage: Stage, backend: number): Promise<void> {
  await stage.query('select pg_terminate_backend($1)', [backend])
  await until(async () => (await stage.query('select from pg_stat_activity where pid = $1', [backend])).rowCount === 0)
}

/** A success in the slot before, so that a window has a start. */
async function succeedBefore (stage: Stage): Promise<void> {
  const { app, sync } = await stage.host()
  await stage.clock.at('2025-03-10T09:00:00Z')
  await sync.runOnce()
  await app.close()
  await stage.clock.at('2025-03-10T10:00:00Z')
}

/** That a run came to nothing, and the next one does what it should have done. */
async function isRepeated (t: Test, stage: Stage): Promise<void> {
  t.match(await stage.state(), { started: null, watermark: new Date('2025-03-10T09:00:00Z'), last_slot: new Date('2025-03-10T09:00:00Z'), attempts: 0 })
  t.strictSame((await stage.history()).map(({ state }) => state), ['succeeded', 'lock-lost'])
  await until(async () => await stage.holders() === 0) // a server that ends a session says so before it lets go of its locks
  const other = await stage.host()
  t.match(await other.sync.runOnce(), { outcome: 'succeeded', run: { attempt: 1, since: new Date('2025-03-10T08:50:00Z'), slot: new Date('2025-03-10T10:00:00Z') } })
}

// the session ends

t.test('a session that is ended while the host awaits something else loses the run', async t => {
  const stage = await setStage(t, cluster)
  await succeedBefore(stage)
  let reason: any
  let late: any
  const { app, sync, log } = await stage.host({
    sync: async run => {
      const backend = await backendOf(run)
      await run.query('insert into orders values (1)')
      const asleep = run.sleep(10 * MINUTE)
      kill(stage, backend)
      await asleep.catch(error => { reason = error })
      await run.query('insert into orders values (2)').catch(error => { late = error })
      return { cursor: 1 }
    }
  })
  t.match(await sync.runOnce(), { outcome: 'lock-lost', run: { error: { code: 'FST_HOURLY_SYNC_LOCK_LOST' } } })
  t.match([reason, late], [{ code: 'FST_HOURLY_SYNC_LOCK_LOST' }, { code: 'FST_HOURLY_SYNC_LOCK_LOST' }])
  t.strictSame(await saved(), [1])
  t.match(log.said('sync lock-lost'), [{ level: levels.warn }])
  t.equal((await app.inject('/')).statusCode, 404, 'the server answers')
  await isRepeated(t, stage)
})

t.test('a session that is ended inside a transaction loses the run and the transaction', async t => {
  const stage = await setStage(t, cluster)
  await succeedBefore(stage)
  const { sync } = await stage.host({
    sync: async run => {
      const backend = await backendOf(run)
      await run.transaction(async tx => {
        await tx.query('insert into orders values (1)')
        await kill(stage, backend)
        await tx.query('insert into orders values (2)').catch(() => {})
      })
    }
  })
  t.match(await sync.runOnce(), { outcome: 'lock-lost' })
  t.strictSame(await saved(), [])
  await isRepeated(t, stage)
})

t.test('a session that is ended inside a statement loses the run', async t => {
  const stage = await setStage(t, cluster)
  await succeedBefore(stage)
  const { sync } = await stage.host({
    sync: async run => {
      const backend = await backendOf(run)
      const write = run.query('insert into orders select 1 from pg_sleep(600)')
      await until(async () => (await stage.query("select from pg_stat_activity where pid = $1 and wait_event = 'PgSleep'", [backend])).rowCount)
      kill(stage, backend)
      await write
    }
  })
  t.match(await sync.runOnce(), { outcome: 'lock-lost' })
  t.strictSame(await saved(), [])
  await isRepeated(t, stage)
})

t.test('a session that is ended between the last write and the end loses the run', async t => {
  const stage = await setStage(t, cluster)
  await succeedBefore(stage)
  const { sync } = await stage.host({
    sync: async run => {
      await run.query('insert into orders values (1)')
      await kill(stage, await backendOf(run))
      return { cursor: 1 }
    }
  })
  t.match(await sync.runOnce(), { outcome: 'lock-lost' })
  t.strictSame(await saved(), [1])
  await isRepeated(t, stage)
})

t.test('a session that is ended by recording its success loses the run', async t => {
  const stage = await setStage(t, cluster)
  await succeedBefore(stage)
  await stage.query(`
    create function ${stage.schema}.die() returns trigger language plpgsql as $$
      begin
        perform pg_terminate_backend(pg_backend_pid());
        return new;
      end $$;
    create trigger die after insert on ${stage.schema}.run for each row when (new.state = 'succeeded') execute function ${stage.schema}.die()`)
  const { sync } = await stage.host({ sync: async () => ({ cursor: 1 }) })
  t.match(await sync.runOnce(), { outcome: 'lock-lost' })
  await stage.query(`drop trigger die on ${stage.schema}.run`)
  await isRepeated(t, stage)
})

t.test('a success whose answer was lost is a success', async t => {
  const stage = await setStage(t, cluster)
  const proxy = await startCuttingProxy(t, cluster.port)
  const { sync } = await stage.host({ sync: async () => ({ cursor: 1, stats: 5 }) }, { connectionString: cluster.url().replace(`:${cluster.port}/`, `:${proxy.port}/`) })
  proxy.cut(FINISH, 'after')
  await stage.clock.at('2025-03-10T10:00:00Z')
  t.match(await sync.runOnce(), { outcome: 'succeeded', run: { state: 'succeeded', stats: 5, error: null } })
  t.match(await stage.history(), [{ state: 'succeeded' }])
  t.match(await stage.state(), { watermark: new Date('2025-03-10T10:00:00Z'), cursor: 1, started: null, deaths: 0, last_failure: null })
  t.match(await sync.runOnce(), { outcome: 'not-due', reason: 'served' })
})

t.test('a failure whose answer was lost is one attempt', async t => {
  const stage = await setStage(t, cluster)
  const proxy = await startCuttingProxy(t, cluster.port)
  const { sync } = await stage.host({ sync: () => { throw new Error('no') } }, { connectionString: cluster.url().replace(`:${cluster.port}/`, `:${proxy.port}/`) })
  proxy.cut(FINISH, 'after')
  t.match(await sync.runOnce(), { outcome: 'failed', run: { error: { message: 'no' } } })
  t.match(await stage.history(), [{ state: 'failed' }])
  t.match(await stage.state(), { attempts: 1, started: null })
})

t.test('an unlock that nobody answers ends the session, and so the lock', async t => {
  const stage = await setStage(t, cluster)
  const proxy = await startCuttingProxy(t, cluster.port)
  const { sync } = await stage.host({}, { connectionString: cluster.url().replace(`:${cluster.port}/`, `:${proxy.port}/`) })
  proxy.cut(UNLOCK, 'never')
  t.match(await sync.runOnce(), { outcome: 'succeeded' })
  await until(async () => await stage.holders() === 0)
  t.match(await sync.runOnce({ force: true }), { outcome: 'succeeded' })
})

t.test('a rollback that nobody answers ends the session, and the end of an abandoned run is recorded', async t => {
  const stage = await setStage(t, cluster)
  const proxy = await startCuttingProxy(t, cluster.port)
  const { sync } = await stage.host({
    timeout: 100,
    abandonAfter: 100,
    sync: async run => await run.transaction(async tx => {
      await tx.query('insert into orders values (1)')
      proxy.cut('rollback', 'never')
      await new Promise(() => {})
    })
  }, { connectionString: cluster.url().replace(`:${cluster.port}/`, `:${proxy.port}/`) })
  t.match(await sync.runOnce(), { outcome: 'timed-out' })
  t.match(await stage.history(), [{ state: 'timed-out' }])
  await until(async () => await stage.holders() === 0)
  t.strictSame(await saved(), [])
})

// the lock goes, the session stays

t.test('a lock that is gone is noticed by the next proof', async t => {
  const stage = await setStage(t, cluster)
  let reason: any
  const { sync } = await stage.host({
    heartbeat: 100,
    sync: async run => {
      await run.query('select pg_advisory_unlock_all()')
      await run.sleep(10 * MINUTE).catch(error => { reason = error })
    }
  })
  t.match(await sync.runOnce(), { outcome: 'lock-lost' })
  t.match(reason, { code: 'FST_HOURLY_SYNC_LOCK_LOST' })
})

t.test('a proof under way as the run ends does not cost it its success', async t => {
  const stage = await setStage(t, cluster)
  const hands = handClock()
  const on = gate()
  const { sync } = stage.bare({ heartbeat: '20s', sync: run => { run.upsert('orders', (async function * () { await on.passed })(), { key: ['id'] }) } }, hands) // nobody awaits it
  const outcome = sync.runOnce()
  await until(async () => await stage.holders().catch(() => 0) === 1)
  const client = new pg.Client({ connectionString: cluster.url() })
  await client.connect()
  t.teardown(async () => await client.end())
  const { rows: [{ pid }] } = await client.query('select pg_backend_pid() as pid')
  await client.query('begin; lock table pg_locks in access exclusive mode') // the proof looks there
  await hands.advance(20_000)
  await until(async () => (await stage.query('select from pg_stat_activity where $1 = any (pg_blocking_pids(pid))', [pid])).rowCount === 1)
  on.open()
  await new Promise(resolve => setImmediate(resolve)) // the upsert ends, and with it the run
  await client.query('rollback')
  t.match(await outcome, { outcome: 'succeeded' })
})

t.test('a lock that is there is proven again and again', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({
    heartbeat: 100,
    sync: async run => {
      await run.query('select pg_sleep(0.5)') // some heartbeats, while one statement is under way
      await run.sleep(500) // and some between statements
      await run.transaction(async () => { await run.sleep(300) }) // and some inside a transaction
    }
  })
  t.match(await sync.runOnce(), { outcome: 'succeeded' })
})

// runs that vanished

/** Notes the start of a run as a process does that is then killed: no end follows. */
async function die (stage: Stage, mark: object = {}): Promise<string> {
  const { rows: [{ id }] } = await stage.query(`
    insert into ${stage.schema}.sync as s (name, lock_key, every, "offset", started)
    select $1, 0, 3600000, 0, jsonb_build_object('id', gen_random_uuid(), 'slot', $2::bigint, 'trigger', 'schedule', 'slice', 1, 'slices', 1, 'attempt', 1,
      'since', null, 'until', $2::bigint + 5, 'host', 'gone', 'pid', 4711, 'at', $2::bigint + 5, 'backend', 1, 'connected', '1741600800.000001') || $3
    on conflict (name, target) do update set started = excluded.started
    returning started->>'id' as id`, [stage.name, Date.parse('2025-03-10T10:00:00Z'), mark])
  return id
}

t.test('a run notes its start as it would be needed if it vanished', async t => {
  const stage = await setStage(t, cluster)
  let started: any
  const { sync } = await stage.host({ sync: async () => { started = (await stage.state()).started } })
  await sync.runOnce()
  const id = await die(stage)
  const { started: made } = await stage.state()
  t.strictSame(Object.keys(started).sort(), Object.keys(made).sort())
  t.ok(id)
})

t.test('a run that vanished is recorded by the next, as it was', async t => {
  const stage = await setStage(t, cluster)
  const { sync, log } = await stage.host()
  await sync.runOnce()
  const slot = Date.parse('2025-03-10T11:00:00Z')
  const id = await die(stage, { slot, trigger: 'retry', attempt: 2, since: slot - 1000, until: slot + 2000, at: slot + 2000 })
  await stage.clock.at('2025-03-10T11:30:00Z')
  t.match(await sync.runOnce(), { outcome: 'succeeded' })
  t.match((await stage.history()).find(run => run.id === id), {
    state: 'vanished',
    trigger: 'retry',
    attempt: 2,
    slot: new Date(slot),
    window_start: new Date(slot - 1000),
    window_end: new Date(slot + 2000),
    started_at: new Date(slot + 2000),
    finished_at: new Date('2025-03-10T11:30:00Z'),
    worker: 'gone:4711'
  })
  t.match(log.said('the run before vanished with its process'), [{ level: levels.warn, run: id, deaths: 1 }])
  t.match(await stage.state(), { deaths: 0, started: null })
})

t.test('a run that vanished was no attempt, and moved nothing', async t => {
  const stage = await setStage(t, cluster)
  await succeedBefore(stage)
  await die(stage)
  const { sync } = await stage.host()
  t.match(await sync.runOnce(), { outcome: 'succeeded', run: { attempt: 1, since: new Date('2025-03-10T08:50:00Z') } })
})

t.test('a mark of a run whose end is recorded makes no second row', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host()
  const { run } = await sync.runOnce()
  await die(stage, { id: run!.id })
  await sync.runOnce({ force: true })
  t.strictSame((await stage.history()).map(({ state }) => state), ['succeeded', 'succeeded'])
})

t.test('after three runs in a row that vanished, a sync waits for its next slot', async t => {
  const stage = await setStage(t, cluster)
  const { sync, log } = await stage.host()
  await sync.status() // makes no tables
  await stage.clock.at('2025-03-10T10:00:00Z')
  await sync.runOnce()
  const slot = Date.parse('2025-03-10T11:00:00Z')
  await stage.clock.at('2025-03-10T11:10:00Z')
  await die(stage, { slot })
  await stage.query(`update ${stage.schema}.sync set deaths = 2 where name = $1`, [stage.name])
  t.match(await sync.runOnce(), { outcome: 'not-due', reason: 'vanished' })
  t.match(log.lines.filter(({ msg }) => msg.startsWith('runs of this sync keep vanishing')), [{ level: levels.error, deaths: 3 }])
  t.match(await sync.runOnce(), { outcome: 'not-due', reason: 'paused' })
  t.match(await sync.status(), { hold: 'paused', due: false })
  t.equal(await stage.holders(), 0)
  await stage.clock.at('2025-03-10T11:59:59.999Z')
  t.match(await sync.runOnce(), { outcome: 'not-due', reason: 'paused' })
  await stage.clock.at('2025-03-10T12:00:00Z')
  t.match(await sync.runOnce(), { outcome: 'succeeded', run: { trigger: 'catch-up' } })
  t.match(await stage.state(), { deaths: 0, paused_until: null })
})

t.test('deaths in a row are counted by those who find them', async t => {
  const stage = await setStage(t, cluster)
  const deaths: number[] = []
  const { sync } = await stage.host({
    sync: async run => {
      deaths.push((await stage.state()).deaths)
      await run.query('select pg_advisory_unlock_all()') // so that the end of this run changes nothing
      await stage.query(`update ${stage.schema}.sync set started = started || jsonb_build_object('id', gen_random_uuid()) where name = $1`, [stage.name])
    }
  })
  await stage.clock.at('2025-03-10T10:00:00Z')
  const outcomes: string[] = []
  for (let look = 0; look < 5; look++) outcomes.push((await sync.runOnce()).outcome)
  t.strictSame(deaths, [0, 1, 2])
  t.strictSame(outcomes, ['lock-lost', 'lock-lost', 'lock-lost', 'not-due', 'not-due'])
})

t.test('a run by hand is made while a sync waits because its runs vanished', async t => {
  const stage = await setStage(t, cluster)
  const { app, sync } = await stage.host()
  await sync.runOnce()
  await stage.clock.at('2025-03-10T11:10:00Z')
  await die(stage, { slot: Date.parse('2025-03-10T11:00:00Z') })
  await stage.query(`update ${stage.schema}.sync set deaths = 5 where name = $1`, [stage.name])
  await sync.runOnce()
  const answer = await app.triggerSync()
  t.match(answer.started && await answer.finished, { state: 'succeeded' })
  t.match(await sync.runOnce(), { outcome: 'not-due', reason: 'served' })
})

t.test('a run that vanished in a slot before makes nobody wait', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host()
  await sync.runOnce()
  await die(stage, { slot: Date.parse('2025-03-10T11:00:00Z') })
  await stage.query(`update ${stage.schema}.sync set deaths = 2 where name = $1`, [stage.name])
  await stage.clock.at('2025-03-10T12:10:00Z')
  t.match(await sync.runOnce(), { outcome: 'succeeded' })
})

t.test('a run that lost its lock but lives says so over the vanished that another wrote, and leaves the mark of the other', async t => {
  const stage = await setStage(t, cluster)
  let backend = 0
  const proxy = await startCuttingProxy(t, cluster.port)
  const one = await stage.host({
    sync: async run => {
      backend = await backendOf(run)
      await run.sleep(10 * MINUTE)
    }
  }, { connectionString: cluster.url().replace(`:${cluster.port}/`, `:${proxy.port}/`) })
  const lost = one.sync.runOnce()
  await until(() => backend)
  proxy.hold() // what it has to say comes late
  await kill(stage, backend)
  const on = gate()
  const other = await stage.host({ sync: async () => await on.passed })
  const answer = await other.app.triggerSync()
  t.match(answer, { started: true })
  const id = (await stage.history())[0].id
  t.match(await stage.history(), [{ state: 'vanished' }])
  t.match(await stage.state(), { deaths: 1 })
  proxy.letThrough()
  t.match(await lost, { outcome: 'lock-lost', run: { id, state: 'lock-lost' } })
  t.match(await stage.history(), [{ id, state: 'lock-lost', error: { code: 'FST_HOURLY_SYNC_LOCK_LOST' } }])
  t.match(await stage.state(), { deaths: 0, started: { id: answer.started && answer.runId } })
  on.open()
  t.match(answer.started && await answer.finished, { state: 'succeeded' })
})

t.test('a run that says that it lost its lock while the next holder finds it vanished makes no deadlock', async t => {
  const stage = await setStage(t, cluster)
  await succeedBefore(stage)
  const next = new pg.Client({ connectionString: cluster.url() })
  await next.connect()
  t.teardown(async () => await next.end())
  const { rows: [{ pid }] } = await next.query('select pg_backend_pid() as pid')
  const { sync } = await stage.host({
    sync: async run => {
      const backend = await backendOf(run)
      await next.query(`begin; select from ${stage.schema}.sync for update`) // as a begin does
      await kill(stage, backend)
    }
  })
  const outcome = sync.runOnce()
  await until(async () => (await stage.query('select from pg_stat_activity where $1 = any (pg_blocking_pids(pid))', [pid])).rowCount === 1)
  await next.query(`
    with s as (update ${stage.schema}.sync set deaths = deaths + 1 returning *)
    insert into ${stage.schema}.run (id, name, target, trigger, state, slot, slice, slices, attempt, window_start, window_end, started_at, finished_at, worker)
    select (started->>'id')::uuid, name, target, 'schedule', 'vanished', now(), 1, 1, 1, now(), now(), now(), now(), 'a:1' from s;
    commit`)
  t.match(await outcome, { outcome: 'lock-lost' })
  t.strictSame((await stage.history()).map(({ state }) => state), ['succeeded', 'lock-lost'])
  t.match(await stage.state(), { deaths: 0, last_failure: { state: 'lock-lost' } }, 'noted over the vanished')
})

t.test('a run that said that it lost its lock is not found vanished', async t => {
  const stage = await setStage(t, cluster)
  const one = await stage.host({ sync: async run => { await kill(stage, await backendOf(run)) } })
  t.match(await one.sync.runOnce(), { outcome: 'lock-lost' })
  const other = await stage.host()
  t.match(await other.sync.runOnce(), { outcome: 'succeeded' })
  t.strictSame((await stage.history()).map(({ state }) => state), ['lock-lost', 'succeeded'])
})
