import pg from 'pg'
import t from 'tap'
import type { SyncRun } from '../lib/types.js'
import { setStage } from './helpers/host.js'
import { until } from './helpers/until.js'
import { startPostgres } from './helpers/postgres.js'
import { serverLog, statementsOf } from './helpers/server-log.js'

const cluster = await startPostgres(t, serverLog)

t.test('with a connection of its own for the lock, a sync looks through the pool and opens it only when it is due', async t => {
  const stage = await setStage(t, cluster)
  const lock = { ...stage.poolConfig, application_name: `direct_${stage.schema}` }
  let session: unknown
  const { sync } = await stage.host({ lock, sync: async run => { session = await backendOf(run) } })
  t.match(await sync.runOnce(), { outcome: 'succeeded' })
  t.not(session, undefined)

  const sent = async (): Promise<string[]> => (await statementsOf(cluster)).map(({ application }) => application).filter(name => [lock.application_name, stage.poolConfig.application_name].includes(name))
  const before = (await sent()).length
  t.match(await sync.runOnce(), { outcome: 'not-due', reason: 'served' })
  t.strictSame((await sent()).slice(before), [stage.poolConfig.application_name], 'one statement, through the pool')
})

async function backendOf (run: SyncRun): Promise<number> {
  return (await run.query('select pg_backend_pid() as pid')).rows[0].pid
}

t.test('a first look through the pool that waits for the next slot counts this one as served', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({ lock: { ...stage.poolConfig }, firstRun: 'wait' })
  await stage.clock.at('2025-03-10T10:20:00Z')
  t.match(await sync.runOnce(), { outcome: 'not-due', reason: 'first-run' })
  t.match(await sync.runOnce(), { outcome: 'not-due', reason: 'served' })
  await stage.clock.at('2025-03-10T11:00:00Z')
  t.match(await sync.runOnce(), { outcome: 'succeeded' })
})

t.test('a direct connection that cannot be made is said, and the pool is as it was', async t => {
  const stage = await setStage(t, cluster)
  const { sync, pool } = await stage.host({ lock: { ...stage.poolConfig, connectionString: cluster.url('nowhere') } })
  t.match(await sync.runOnce(), { outcome: 'unavailable', reason: /nowhere/ })
  t.equal(pool.idleCount, pool.totalCount)
})

for (const force of [false, true]) {
  t.test(`a lock that leads to another database is refused, ${force ? 'by hand' : 'by the loop'}, and nothing is done there`, async t => {
    const stage = await setStage(t, cluster)
    const elsewhere = await cluster.database()
    let runs = 0
    const { sync, pool } = await stage.host({ lock: { connectionString: cluster.url(elsewhere) }, sync: () => { runs++ } })
    t.match(await sync.runOnce({ force }), { outcome: 'refused', reason: /'lock' leads to another database, or another server, than the pool/ })
    await until(async () => (await cluster.query('select from pg_stat_activity where datname = $1', [elsewhere])).rowCount === 0, 'the connection is closed')
    t.strictSame([runs, (await cluster.query('select from pg_namespace where nspname = $1', [stage.schema], elsewhere)).rowCount, pool.totalCount - pool.idleCount], [0, 0, 0])
    t.match(await sync.runOnce({ force }), { outcome: 'refused' })
  })
}

t.test('a lock that leads to the same database leaves no other lock on its session', async t => {
  const stage = await setStage(t, cluster)
  let locks: unknown
  const { sync } = await stage.host({ lock: { ...stage.poolConfig }, sync: async run => { locks = (await run.query("select count(*)::int as count from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()")).rows } })
  t.match(await sync.runOnce(), { outcome: 'succeeded' })
  t.strictSame(locks, [{ count: 1 }])
})

t.test('while the pool does not answer, where a lock leads is not judged', async t => {
  const stage = await setStage(t, cluster)
  const { sync, pool } = await stage.host({ lock: { ...stage.poolConfig } }, { max: 1 })
  const only = await pool.connect()
  t.match(await sync.runOnce({ force: true }), { outcome: 'succeeded' })
  only.release()
})

// a driver that is too old

/** As pg was before 8.21. */
class Old extends pg.Client {}
Object.assign(Old.prototype, { getTransactionStatus: undefined })

t.test('a pg that is too old is refused before anything is done, with the version that is needed', async t => {
  const stage = await setStage(t, cluster)
  let runs = 0
  const old = { sync: () => { runs++ } }
  const { sync, pool } = await stage.host(old, { Client: Old } as pg.PoolConfig)
  t.match(await sync.runOnce(), { outcome: 'refused', reason: /pg 8\.21 or later/ })
  t.match(await sync.trigger(), { started: false, reason: 'refused', message: /pg 8\.21 or later/ })
  t.strictSame([runs, await stage.holders(), pool.totalCount - pool.idleCount], [0, 0, 0])
})

t.test('a lock of its own needs no more of the pool than that it answers', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({ lock: { ...stage.poolConfig } }, { Client: Old } as pg.PoolConfig)
  t.match(await sync.runOnce(), { outcome: 'succeeded' })
})
