import { startPostgres } from '../../test/helpers/postgres.js'
import { median, open, rest, type Scope, table } from './tools.js'

const ROUNDS = 5
const MIB = 2 ** 20

/** What a peer adds to the memory of a server that has a pool already. */
export async function memory (scope: Scope): Promise<string> {
  const cluster = await startPostgres(scope)
  const names = ['fastify + @fastify/postgres', 'fastify-hourly-sync', 'pg-boss', 'graphile-worker']
  const found = new Map(names.map(name => [name, [] as Array<{ heap: number, rss: number }>]))
  for (let round = 0; round < ROUNDS; round++) {
    for (const name of names) {
      const child = await open(scope, { name, url: cluster.url(), applicationName: 'memory', options: { startupDelay: 0 } })
      await rest(3_000) // past its first look and run
      found.get(name)!.push(await child.tell({ what: 'memory' }))
      child.process.kill('SIGKILL')
    }
  }
  const bare = found.get(names[0]!)!
  const rows = names.slice(1).map(name => {
    const own = found.get(name)!
    const over = (field: 'heap' | 'rss'): string => ((median(own.map(one => one[field])) - median(bare.map(one => one[field]))) / MIB).toFixed(2)
    return [name, over('heap'), over('rss')]
  })
  return table(`Memory over a bare ${names[0]}, MiB (median of ${ROUNDS} processes, after gc)`, ['', 'heap and buffers', 'resident'], rows)
}
