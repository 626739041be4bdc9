import pg from 'pg'
import t, { type Test } from 'tap'
import { again } from '../lib/again.js'
import { levels, setStage, type Stage } from './helpers/host.js'
import { startPostgres } from './helpers/postgres.js'
import { until } from './helpers/until.js'

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
