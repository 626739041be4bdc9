import type { Cluster } from './postgres.js'
import { until } from './until.js'

/** Settings of a cluster that writes every statement to its log, with who sent it. */
export const serverLog = {
  log_statement: 'all',
  log_line_prefix: '%n|%d|%a|%p|'
}

/** One statement, as the server saw it. */
export interface Statement {
  /** Epoch milliseconds. */
  at: number
  database: string
  application: string
  backend: number
  text: string
}

/** Every statement sent to the cluster so far, in the order of the log. */
export async function statementsOf (cluster: Cluster): Promise<Statement[]> {
  const last = `select 'all before is in the log: ${Math.random()}'`
  await cluster.query(last)
  await until(() => cluster.log().includes(last), 'the log of the server')
  const entries = cluster.log().split(/\n(?!\t)/) // further lines of a statement are indented
  return entries.flatMap(entry => {
    const found = /^(\d+\.\d+)\|([^|]*)\|([^|]*)\|(\d+)\|LOG: {2}(?:execute [^:]*|statement): ([^]*)/.exec(entry)
    if (found === null) return []
    const [, at, database, application, backend, text] = found as unknown as [string, string, string, string, string, string]
    return [{ at: Math.round(Number(at) * 1_000), database, application, backend: Number(backend), text }]
  })
}
