import pg from 'pg'
import { startPostgres } from '../../test/helpers/postgres.js'
import { serverLog, statementsOf } from '../../test/helpers/server-log.js'
import { peers } from './peers.js'
import { median, rest, type Scope, table } from './tools.js'

const LOOPS = 50
const SLOTS = 5
const EVERY = 4_000

/** Fifty loops due at one instant, each with a pool of its own, and a job of 0 ms. */
export async function instant (scope: Scope): Promise<string> {
  const cluster = await startPostgres(scope, serverLog)
  const rows = [await ours(scope, cluster), await byHand(scope, cluster)]
  return table(`${LOOPS} loops due at one instant, job of 0 ms (median and worst of ${SLOTS} slots)`, ['', 'runs', 'statements', 'settled after, ms'], rows)
}

type Cluster = Awaited<ReturnType<typeof startPostgres>>

/** What one slot came to, from the log of the server: all that happened around it. */
async function seen (cluster: Cluster, database: string, slots: number[]): Promise<Array<{ count: number, settled: number }>> {
  const sent = (await statementsOf(cluster)).filter(statement => statement.database === database && statement.application === 'loop')
  return slots.map(slot => {
    const own = sent.filter(({ at }) => at >= slot - EVERY / 4 && at < slot + EVERY * 3 / 4)
    return { count: own.length, settled: Math.max(...own.map(({ at }) => at)) - slot }
  })
}

const shown = (numbers: number[]): string => `${median(numbers)} (${Math.max(...numbers)})`

async function ours (scope: Scope, cluster: Cluster): Promise<Array<string | number>> {
  const database = await cluster.database('ours')
  for (let nth = 0; nth < LOOPS; nth++) {
    const { close } = await peers['fastify-hourly-sync']!({ url: cluster.url(database), applicationName: 'loop', ran: () => {}, options: { every: EVERY, startupDelay: 0 } })
    scope.teardown(close)
  }
  await rest(EVERY) // all have looked
  const first = (Math.floor(Date.now() / EVERY) + 1) * EVERY
  const slots = Array.from({ length: SLOTS }, (_, nth) => first + nth * EVERY)
  await rest(first + SLOTS * EVERY - Date.now())
  const { rows: runs } = await cluster.query('select count(*)::int as runs from hourly_sync.run where slot >= to_timestamp($1) group by slot', [first / 1_000], database)
  const found = await seen(cluster, database, slots)
  return ['fastify-hourly-sync', shown(runs.slice(0, SLOTS).map(({ runs }) => runs)), shown(found.map(({ count }) => count)), shown(found.map(({ settled }) => settled))]
}

async function byHand (scope: Scope, cluster: Cluster): Promise<Array<string | number>> {
  const database = await cluster.database('by_hand')
  const pools = Array.from({ length: LOOPS }, () => new pg.Pool({ connectionString: cluster.url(database), application_name: 'loop' }))
  scope.teardown(async () => { await Promise.all(pools.map(async pool => await pool.end())) })
  await Promise.all(pools.map(async pool => await pool.query('select 1')))
  const ran: number[] = []
  const slots: number[] = []
  for (let nth = 0; nth < SLOTS; nth++) {
    const slot = (Math.floor(Date.now() / EVERY) + 1) * EVERY
    slots.push(slot)
    let runs = 0
    await Promise.all(pools.map(async pool => {
      await rest(slot - Date.now())
      const client = await pool.connect()
      const { rows: [row] } = await client.query('select pg_try_advisory_lock(42) as locked')
      if (row.locked === true) {
        runs++
        await client.query('select pg_advisory_unlock(42)')
      }
      client.release()
    }))
    ran.push(runs)
  }
  const found = await seen(cluster, database, slots)
  return ['lock by hand', shown(ran), shown(found.map(({ count }) => count)), shown(found.map(({ settled }) => settled))]
}
