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

interface Load { rate: number, seconds: number }

/** The host's route alone. */
async function without (load: Load): Promise<number> {
  const { child, said } = start('./server.ts')
  const { address } = await said()
  try {
    await p99(`${address}/orders`, { ...load, seconds: 2 })
    return await p99(`${address}/orders`, load)
  } finally {
    child.disconnect()
  }
}

/** The same with a run under way, and clients that listen to it. */
async function beside (load: Load, count: string): Promise<{ p99: number, heard: number }> {
  const { child, said } = start('./server.ts')
  const { address } = await said()
  const listeners = start('./listeners.ts', `${address}/hourly-sync/long/events`, count)
  try {
    await listeners.said()
    child.send('run')
    if (!(await said()).started) throw new Error('the run has not started')
    await p99(`${address}/orders`, { ...load, seconds: 2 })
    const found = await p99(`${address}/orders`, load)
    listeners.child.send('how many')
    return { p99: found, heard: (await listeners.said()).heard }
  } finally {
    listeners.child.disconnect()
    child.disconnect()
    await once(child, 'exit') // and its run with it
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
    const ratios: number[] = []
    for (let pair = 0; pair < Number(flags.pairs); pair++) {
      const first = pair % 2 === 0 ? await without(load) : undefined
      const with200 = await beside(load, flags.listeners)
      const alone = first ?? await without(load)
      ratios.push(with200.p99 / alone)
      console.log(`| ${pair + 1} | ${ms(alone)} | ${ms(with200.p99)} | ${ratios.at(-1)!.toFixed(2)} | ${with200.heard} |`)
    }
    console.log(`\nmedian ratio ${median(ratios).toFixed(2)}`)
  }
} finally {
  for (const fn of teardowns.reverse()) await fn()
}
