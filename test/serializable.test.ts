import pg from 'pg'
import t, { type Test } from 'tap'
import { again } from '../lib/again.js'
import { levels, setStage, type Stage } from './helpers/host.js'
import { startPostgres } from './helpers/postgres.js'
import { until } from './helpers/until.js'

const HOUR = 3_600_000
const cluster = await startPostgres(t)

// again

/** Fails so often, with that. */
function failing (times: number, error: unknown): { send: () => Promise<string>, sent: () => number } {
  let sent = 0
  return {
    sent: () => sent,
    send: async () => {
      if (sent++ < times) throw error
      return 'done'
    }
  }
}
const conflict = Object.assign(new Error('could not serialize access'), { code: '40001' })

t.test('what could not be serialized is sent again, five times at most', async t => {
  const four = failing(4, conflict)
  t.equal(await again(four.send), 'done')
  t.equal(four.sent(), 5)
  const five = failing(5, conflict)
  await t.rejects(again(five.send), conflict)
  t.equal(five.sent(), 5)
})

for (const [what, error] of [['any other error', Object.assign(new Error('no'), { code: '23505' })], ['null', null], ['an error without a code', new Error('no')]] as const) {
  t.test(`${what} is passed on at once`, async t => {
    const once = failing(1, error)
    t.equal(await again(once.send).catch(thrown => thrown), error)
    t.equal(once.sent(), 1)
  })
}

// a host whose transactions are serializable

const level = 'default_transaction_isolation=serializable'
const serializable = (stage: Stage): pg.PoolConfig => ({ options: `${stage.poolConfig.options!} -c ${level}` })

/**
 * Somebody else's transaction on the row of the sync, which ends when somebody waits for it: who has begun before then cannot be serialized after it.
 */
async function disturb (t: Test, stage: Stage): Promise<{ done: Promise<void> }> {
  const client = new pg.Client({ connectionString: cluster.url() })
  await client.connect()
  t.teardown(async () => await client.end())
  await client.query('begin')
  await client.query(`update ${stage.schema}.sync set lock_key = lock_key where name = $1`, [stage.name])
  const done = (async () => {
    await until(async () => (await stage.query("select from pg_locks where not granted and locktype = 'transactionid'")).rowCount === 1, 'somebody waits')
    await client.query('commit')
  })()
  return { done }
}

t.test('a begin that cannot be serialized with another transaction is made again', async t => {
  const stage = await setStage(t, cluster)
  const { sync, log } = await stage.host({}, serializable(stage))
  t.match(await sync.runOnce(), { outcome: 'succeeded' })
  const { done } = await disturb(t, stage)
  t.match(await sync.runOnce({ force: true }), { outcome: 'succeeded' })
  await done
  t.strictSame(log.lines.filter(({ level }) => level >= levels.warn), [])
})

t.test('an end that cannot be serialized with another transaction is recorded again, and its success stands', async t => {
  const stage = await setStage(t, cluster)
  let disturbed: { done: Promise<void> } | undefined
  let isolation: unknown
  const { sync, log } = await stage.host({
    sync: async run => {
      isolation = (await run.query("select current_setting('transaction_isolation') as level")).rows[0].level
      disturbed = await disturb(t, stage)
      return { cursor: 1 }
    }
  }, serializable(stage))
  t.match(await sync.runOnce(), { outcome: 'succeeded', run: { error: null } })
  await disturbed!.done
  t.equal(isolation, 'serializable', 'the host has what it has asked for')
  t.match(await stage.state(), { cursor: 1, started: null })
  t.match(await stage.history(), [{ state: 'succeeded' }])
  t.strictSame(log.lines.filter(({ level }) => level >= levels.warn), [])
})

t.test('the end of a run without its session that cannot be serialized is recorded again', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({
    sync: async run => {
      const { rows: [{ backend }] } = await run.query('select pg_backend_pid() as backend')
      await disturb(t, stage)
      await stage.query('select pg_terminate_backend($1)', [backend])
      await run.sleep(60_000)
    }
  }, serializable(stage))
  t.match(await sync.runOnce(), { outcome: 'lock-lost', run: { state: 'lock-lost' } })
  t.match(await stage.history(), [{ state: 'lock-lost' }])
})

/**
 * Two transactions that make it impossible to serialize a statement whose snapshot is older, once it reads the row of the sync. The server's clock, which
 * a look asks before it reads, stands still for them.
 */
async function interfere (t: Test, stage: Stage): Promise<{ done: Promise<void> }> {
  const shim = stage.clock.searchPath.split(',')[0]!
  await stage.query(`create table ${shim}.other (n int);
    insert into ${shim}.other values (0);
    create or replace function ${shim}.clock_timestamp() returns timestamptz language plpgsql volatile as
      'begin perform pg_advisory_xact_lock_shared(7); return (select pg_catalog.clock_timestamp() + shift from ${shim}.clock); end'`)
  const [first, second] = await Promise.all([1, 2].map(async () => {
    const client = new pg.Client({ connectionString: cluster.url(), options: `-c ${level}` })
    await client.connect()
    t.teardown(async () => await client.end())
    return client
  })) as [pg.Client, pg.Client]
  await first.query('select pg_advisory_lock(7)')
  const done = (async () => {
    await until(async () => (await stage.query("select from pg_locks where not granted and locktype = 'advisory'")).rowCount === 1, 'somebody asks for the time')
    await first.query(`begin; select * from ${shim}.other`)
    await second.query(`update ${shim}.other set n = 1`)
    await first.query(`update ${stage.schema}.sync set lock_key = lock_key where name = '${stage.name}'; commit`)
    await first.query('select pg_advisory_unlock(7)')
  })()
  return { done }
}

t.test('a look that cannot be serialized with other transactions is made again', async t => {
  const stage = await setStage(t, cluster)
  const { sync, log } = await stage.host({}, serializable(stage))
  t.match(await sync.runOnce(), { outcome: 'succeeded' })
  await stage.clock.pass(HOUR)
  const { done } = await interfere(t, stage)
  t.match(await sync.runOnce(), { outcome: 'succeeded' })
  await done
  t.strictSame(log.lines.filter(({ level }) => level >= levels.warn), [])
})

t.test('a claim that fails after it took the lock, and then finds the slot served, leaves no lock behind', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host()
  await stage.clock.at('2025-03-10T09:00:00Z')
  t.match(await sync.runOnce(), { outcome: 'succeeded' })
  const shim = stage.clock.searchPath.split(',')[0]!
  await stage.query(`create sequence ${shim}.failures;
    create function ${shim}.pg_try_advisory_lock(key bigint) returns boolean language plpgsql volatile as $$ begin
      if pg_catalog.pg_try_advisory_lock(key) then perform nextval('${shim}.failures'); end if;
      raise exception 'could not serialize access' using errcode = '40001';
    end $$;
    create or replace function ${shim}.clock_timestamp() returns timestamptz language sql volatile as
      $$ select case when is_called then timestamptz '2025-03-10T09:30:00Z' else timestamptz '2025-03-10T10:00:00Z' end from ${shim}.failures $$`)
  t.match(await sync.runOnce(), { outcome: 'not-due', reason: 'served' })
  await until(async () => await stage.holders() === 0, 'the session that took it has ended', 5_000)
})

t.test('four servers that are serializable, and asked for their status all the time, serve each slot once', async t => {
  const stage = await setStage(t, cluster)
  const hosts = await Promise.all([1, 2, 3, 4].map(async () => await stage.host({ sync: async run => { await run.query('select 1') } }, serializable(stage))))
  await stage.clock.at('2025-03-10T10:00:00Z')
  await hosts[0]!.sync.runOnce() // makes the tables
  const over = new AbortController()
  const asking = Promise.all(hosts.map(async ({ sync }) => {
    while (!over.signal.aborted) t.match(await sync.status(), { unavailable: null })
  }))
  for (let hour = 11; hour < 21; hour++) {
    await stage.clock.at(`2025-03-10T${hour}:00:00Z`)
    const outcomes = await Promise.all(hosts.map(async ({ sync }) => (await sync.runOnce()).outcome))
    t.equal(outcomes.filter(outcome => outcome === 'succeeded').length, 1, outcomes.join())
    t.strictSame(outcomes.filter(outcome => !['succeeded', 'running', 'not-due'].includes(outcome)), [])
  }
  over.abort()
  await asking
  t.equal((await stage.history()).length, 11)
})
