import { startPostgres } from '../../test/helpers/postgres.js'
import { median, open, quantile, type Scope, table } from './tools.js'

const TIMES = 300

/** From the call to the first line of what runs, in the same process. */
export async function trigger (scope: Scope): Promise<string> {
  const cluster = await startPostgres(scope)
  const rows: Array<Array<string | number>> = []
  let byHand = 0
  for (const [name, cold, times] of [['lock by hand', false, TIMES], ['fastify-hourly-sync', false, TIMES], ['fastify-hourly-sync', true, TIMES], ['graphile-worker', false, TIMES], ['pg-boss', false, 10]] as const) {
    const child = await open(scope, { name, url: cluster.url(await cluster.database()), applicationName: 'trigger', options: { startupDelay: '1h' } })
    await child.tell({ what: 'trigger', times: Math.min(50, times / 5), cold }) // code is compiled
    const found = await child.tell<number[]>({ what: 'trigger', times, cold })
    await child.tell({ what: 'close' })
    const p50 = median(found)
    if (name === 'lock by hand') byHand = p50
    rows.push([name + (cold ? ', cold pool' : ''), p50.toFixed(2), quantile(found, 0.99).toFixed(2), (p50 / byHand).toFixed(1)])
  }
  return table(`From the trigger to the first line, milliseconds (${TIMES} times; pg-boss 10)`, ['', 'p50', 'p99', '× by hand'], rows)
}
