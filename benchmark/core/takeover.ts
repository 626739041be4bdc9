import { startPostgres } from '../../test/helpers/postgres.js'
import { median, open, rest, type Scope, table } from './tools.js'

const ROUNDS = 5
const standby = 1_000
const heartbeat = 1_000

/** From the fault to the first line of the next run, in another process. */
export async function takeover (scope: Scope): Promise<string> {
  const cluster = await startPostgres(scope)
  const rows: Array<Array<string | number>> = []
  for (const [what, signal, limit] of [['killed (SIGKILL)', 'SIGKILL', standby + 1_000], ['frozen (SIGSTOP)', 'SIGSTOP', 3 * heartbeat + standby + 1_000]] as const) {
    const took: number[] = []
    for (let round = 0; round < ROUNDS; round++) {
      const url = cluster.url(await cluster.database())
      const order = { name: 'fastify-hourly-sync', url, applicationName: 'takeover', hang: true, options: { startupDelay: 0, standby, heartbeat } }
      const first = await open(scope, { ...order, options: { ...order.options, enabled: false } })
      const begun = first.began()
      first.tell({ what: 'trigger', times: 1 }).catch(() => {})
      await begun
      const second = await open(scope, order)
      const next = second.began()
      await rest(1_500 + Math.random() * standby) // anywhere between two looks
      const at = Date.now()
      first.process.kill(signal)
      took.push(await next - at)
      for (const { process } of [first, second]) process.kill('SIGKILL')
    }
    rows.push([what, (median(took) / 1_000).toFixed(2), (Math.max(...took) / 1_000).toFixed(2), (limit / 1_000).toFixed(2)])
  }
  return table(`Takeover, seconds, with standby ${standby} ms and heartbeat ${heartbeat} ms (${ROUNDS} rounds)`, ['holder', 'median', 'longest', 'promised'], rows)
}
