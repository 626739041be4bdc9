import t from 'tap'
import type { SyncRun } from '../lib/types.js'
import { setStage } from './helpers/host.js'
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
