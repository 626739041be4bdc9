import { startPostgres } from '../../test/helpers/postgres.js'
import { serverLog, statementsOf } from '../../test/helpers/server-log.js'
import { open, rest, type Scope, table } from './tools.js'

/** How long is watched, after what a peer does at its start. Milliseconds. */
const WATCHED = 60_000
const SETTLES = 12_000

const HOUR = 3_600_000

/** What waits costs: statements and connections of a process while nothing runs, and of two that share slots. */
export async function idle (scope: Scope): Promise<string> {
  const cluster = await startPostgres(scope, serverLog)
  const names = ['fastify-hourly-sync', 'pg-boss', 'graphile-worker']
  const rows: Array<Array<string | number>> = []
  const watched = await Promise.all(names.map(async name => {
    const url = cluster.url(await cluster.database(name.replaceAll('-', '_')))
    const child = await open(scope, { name, url, applicationName: `peer-${name}`, options: { startupDelay: 0 } })
    return { name, child }
  }))
  await rest(SETTLES)
  const from = Date.now()
  let looks = 0
  const held = new Map(names.map(name => [name, 0]))
  while (Date.now() < from + WATCHED) {
    looks++
    const { rows: open } = await cluster.query("select application_name as name, count(*)::int as count from pg_stat_activity where application_name like 'peer-%' group by 1")
    for (const { name, count } of open) held.set(name.slice(5), held.get(name.slice(5))! + count)
    await rest(1_000)
  }
  const to = Date.now()
  const statements = await statementsOf(cluster)
  for (const name of names) {
    const count = statements.filter(({ application, at }) => application === `peer-${name}` && at >= from && at < to).length
    const own = name === 'fastify-hourly-sync'
    rows.push([name, own ? `${count} + 1 a slot` : Math.round(count * HOUR / (to - from)).toLocaleString('en'), (held.get(name)! / looks).toFixed(2)])
  }
  await Promise.all(watched.map(async ({ child }) => { await child.tell({ what: 'close' }) }))
  return table(`A process that waits, in an hour (watched for ${WATCHED / 1_000} s)`, ['', 'statements', 'connections open'], rows) + await shared(scope, cluster)
}

/** Two processes and slots of 2 s: four statements of the one that runs, one of the other. */
async function shared (scope: Scope, cluster: Awaited<ReturnType<typeof startPostgres>>): Promise<string> {
  const url = cluster.url(await cluster.database('shared'))
  const options = { startupDelay: 0, every: '2s' }
  for (const nth of [1, 2]) await open(scope, { name: 'fastify-hourly-sync', url, applicationName: `shared-${nth}`, options })
  await rest(5_000)
  const boundary = async (): Promise<number> => {
    const at = Math.ceil(Date.now() / 2_000) * 2_000 - 500 // between the looks of two slots
    await rest(Math.max(0, at - Date.now()))
    return at
  }
  const from = await boundary()
  await rest(40_000)
  const to = await boundary()
  const slots = (to - from) / 2_000
  const sent = (await statementsOf(cluster)).filter(({ database, at }) => database === 'shared' && at >= from && at < to)
  const { rows: [{ runs }] } = await cluster.query('select count(*)::int as runs from hourly_sync.run where started_at >= to_timestamp($1) and started_at < to_timestamp($2)', [from / 1_000, to / 1_000], 'shared')
  return table(`Two processes, ${slots} slots of 2 s, a job of 0 ms`, ['runs', 'statements a slot, both together', 'of the one that runs', 'of the other'],
    [[runs, (sent.length / slots).toFixed(2), 4, (sent.length / slots - 4).toFixed(2)]])
}
