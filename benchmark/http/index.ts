/**
 * What the routes cost: a request over a year of history beside one over a day; and a route of the host while 200 clients listen
 * to a run that tells its progress ten times a second, beside the same route without.
 *
 *   npx tsx benchmark/http/index.ts [--turns 200] [--pairs 5] [--seconds 8] [--rate 300] [--only history|load]
 */
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { cpus, loadavg } from 'node:os'
import { parseArgs } from 'node:util'
import { startPostgres } from '../../test/helpers/postgres.js'
import { measureHistory } from './history.js'
import { p99 } from './load.js'
import { median } from './numbers.js'

const { values: flags } = parseArgs({
  options: {
    turns: { type: 'string', default: '200' },
    pairs: { type: 'string', default: '5' },
    seconds: { type: 'string', default: '8' },
    rate: { type: 'string', default: '300' },
    listeners: { type: 'string', default: '200' },
    only: { type: 'string' }
  }
})
const teardowns: Array<() => unknown> = []
const cluster = await startPostgres({ teardown: fn => { teardowns.push(fn) } })
const ms = (value: number): string => `${value.toFixed(2)} ms`

function start (file: string, ...args: string[]): { child: ChildProcess, said: () => Promise<any> } {
  const child = fork(new URL(file, import.meta.url), args, { execArgv: ['--import', 'tsx'], env: { ...process.env, DATABASE_URL: cluster.url() } })
  return { child, said: async () => (await once(child, 'message'))[0] }
}

/** Pairs of the host's route alone and beside a run with its listeners: one server, so that both are equally warm. */
async function measureLoad (load: { rate: number, seconds: number }, pairs: number, count: string): Promise<void> {
  const server = start('./server.ts')
  const { address } = await server.said()
  const listeners = start('./listeners.ts', `${address}/hourly-sync/long/events`, count)
  await listeners.said()
  const tell = async ({ child, said }: ReturnType<typeof start>, what: string): Promise<any> => {
    const answer = said()
    child.send(what)
    return await answer
  }
  const measured = async (): Promise<number> => {
    await p99(`${address}/orders`, { ...load, seconds: 1 })
    return await p99(`${address}/orders`, load)
  }
  async function beside (): Promise<{ found: number, heard: number }> {
    await tell(listeners, 'come')
    if (!(await tell(server, 'run')).started) throw new Error('the run has not started')
    const found = await measured()
    await tell(server, 'end')
    return { found, heard: (await tell(listeners, 'go')).heard }
  }
  try {
    await p99(`${address}/orders`, { ...load, seconds: 4 })
    await beside()
    const ratios: number[] = []
    for (let pair = 1; pair <= pairs; pair++) {
      const first = pair % 2 === 0 ? await measured() : undefined
      const { found, heard } = await beside()
      const alone = first ?? await measured()
      ratios.push(found / alone)
      console.log(`| ${pair} | ${ms(alone)} | ${ms(found)} | ${ratios.at(-1)!.toFixed(2)} | ${heard} |`)
    }
    console.log(`\nmedian ratio ${median(ratios).toFixed(2)}`)
  } finally {
    listeners.child.disconnect()
    server.child.disconnect()
  }
}

try {
  console.log(`node ${process.version}, ${cpus().length} × ${cpus()[0]!.model.trim()}, load ${loadavg()[0]!.toFixed(2)}\n`)
  if (flags.only !== 'load') {
    console.log('| request | a day of history | a year | ratio |\n|---|---|---|---|')
    for (const { path, day, year } of await measureHistory(cluster, Number(flags.turns))) console.log(`| \`GET ${path}\` | ${ms(day)} | ${ms(year)} | ${(year / day).toFixed(2)} |`)
  }
  if (flags.only !== 'history') {
    const load = { rate: Number(flags.rate), seconds: Number(flags.seconds) }
    console.log(`\np99 of a route of the host, ${load.rate} requests/s for ${load.seconds} s\n\n| pair | without | ${flags.listeners} listeners, progress 10/s | ratio | events heard |\n|---|---|---|---|---|`)
    await measureLoad(load, Number(flags.pairs), flags.listeners)
  }
} finally {
  for (const fn of teardowns.reverse()) await fn()
}
