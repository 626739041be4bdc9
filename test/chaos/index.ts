/**
 * A storm over a fleet of servers that share one sync, and then a calm in which everything has to be as it was.
 *
 * `npm run chaos -- --minutes N --seed S`. Ends with 0 when no invariant was broken; otherwise with 1, the seed, and what was broken.
 */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import pg from 'pg'
import { noPgBouncer, startPgBouncer } from '../helpers/pgbouncer.js'
import { calm, closeAll } from './calm.js'
import { breaches } from './checker.js'
import { type Database, NAME, startDatabase } from './database.js'
import { gather } from './evidence.js'
import { createFaults, insist } from './faults.js'
import { openFleet, type Way } from './fleet.js'
import { SEATS } from './limits.js'
import { overlaps } from './overlaps.js'
import { type Proxy, startProxy } from './proxy.js'
import { report, tails } from './report.js'
import { schedule } from './schedule.js'
import { openScope, type Scope } from './scope.js'
import { startOrderService } from './service.js'
import { storm } from './storm.js'
import { TAKEOVER, takeovers } from './takeovers.js'

const { values } = parseArgs({ options: { keep: { type: 'boolean', default: false }, minutes: { type: 'string', default: '1' }, seed: { type: 'string', default: String(Date.now() % 100_000) } } })
const length = Number(values.minutes) * 60_000
const seed = Number(values.seed)
if (!(length > 0) || !Number.isInteger(seed)) throw new TypeError('chaos wants --minutes, more than 0, and --seed, a whole number')

const scope = openScope()
const interrupted = new AbortController()
// the database's package ends the process by itself, and too soon
for (const event of ['SIGINT', 'SIGTERM', 'SIGHUP', 'exit', 'beforeExit']) process.removeAllListeners(event)
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => interrupted.abort(new Error('interrupted')))

const began = performance.now()
const say = (line: string): void => console.log(`${((performance.now() - began) / 1_000).toFixed(1).padStart(6)} s  ${line}`)

try {
  process.exitCode = await run() ? 0 : 1
} catch (error) {
  if (!interrupted.signal.aborted) console.error(error)
  process.exitCode = interrupted.signal.aborted ? 130 : 2
} finally {
  await scope.end()
}

async function run (): Promise<boolean> {
  const broken: string[] = []
  const breach = (what: string): void => {
    say(`BREACH ${what}`)
    broken.push(what)
  }
  const { signal } = interrupted
  say(`seed ${seed}, ${values.minutes} minutes`)
  const database = await startDatabase(scope)
  const service = await startOrderService(scope, seed)
  const { ways, proxies, consoles } = await lay(scope, database)
  const fleet = openFleet(scope, ways, { orders: service.url, key: service.key, seed })
  scope.teardown(() => { if (broken.length === 0 && !values.keep) fleet.forget() })
  await Promise.all(ways.map(async (_, seat) => await fleet.start(seat).listens))
  say('all servers listen; the storm begins')

  const over = new AbortController()
  signal.addEventListener('abort', () => over.abort())
  const faults = createFaults({ database, fleet, proxies, say, over: over.signal, scope })
  const { triggers, lasting } = await storm({ plan: schedule(seed, length), length, seed, faults, fleet, signal })
  over.abort() // who is stopped goes on, what is frozen thaws
  await lasting
  signal.throwIfAborted()
  await insist(async () => await database.bend(0), signal)
  await Promise.all(ways.map(async (_, seat) => await (fleet.at(seat) ?? fleet.start(seat)).listens))
  say('the storm is over')
  await calm({ database, fleet, service, consoles, breach, say, signal })
  await closeAll(fleet)

  const { writes, runs } = await gather(database)
  const found = overlaps(service.calls, fleet.all, faults.log)
  for (const { older, newer, awake, bound } of found) {
    if (awake > bound) breach(`run ${older} went on calling for ${awake} ms after run ${newer} had begun, ${bound} ms is the most`)
  }
  const taken = takeovers(writes, faults.log)
  for (const { fault, took } of taken) {
    if (took > TAKEOVER) breach(`the holder, server ${fault.pid}, was replaced only ${took} ms after its ${fault.kind} at ${new Date(fault.at).toISOString()}, ${TAKEOVER} ms is the most`)
  }
  for (const what of breaches({ writes, runs, faults: faults.log, servers: fleet.all, started: triggers.started })) breach(what)
  writeFileSync(join(fleet.folder, 'evidence.json'), JSON.stringify({ runs, faults: faults.log, writes, calls: service.calls }, null, 1))
  console.log(`\n${report({ faults, writes, runs, triggers, overlaps: found, takeovers: taken })}\n`)
  if (broken.length === 0) {
    say(`seed ${seed}: nothing was broken`)
    return true
  }
  console.log(tails(fleet))
  console.error(`\nseed ${seed}, ${values.minutes} minutes: ${broken.length} broken\n${broken.map(what => `  ${what}`).join('\n')}\nwhat the servers said is in ${fleet.folder}`)
  return false
}

/** The ways to the database, one for each seat: direct, through proxies of ours, and through poolers. */
async function lay (scope: Scope, { cluster }: Database): Promise<{ ways: Way[], proxies: Array<Proxy | undefined>, consoles: Array<(text: string) => Promise<any[]>> }> {
  const proxies: Array<Proxy | undefined> = Array.from({ length: SEATS })
  const direct = cluster.url(NAME)
  const through = async (seat: number): Promise<string> => {
    const proxy = proxies[seat] = await startProxy(cluster.port)
    scope.teardown(proxy.close)
    return `postgres://postgres:postgres@127.0.0.1:${proxy.port}/${NAME}`
  }
  const ways: Way[] = [
    { what: 'direct', pool: direct },
    { what: 'proxy', pool: await through(1) },
    { what: 'direct, lock of its own through a proxy', pool: direct, lock: await through(2) },
    { what: 'direct', pool: direct },
    { what: 'direct, its clock two minutes ahead', pool: direct, clockShift: 120_000 },
    { what: 'proxy, its clock two minutes behind', pool: await through(5), clockShift: -120_000 }
  ]
  if (noPgBouncer) {
    say(noPgBouncer)
    return { ways, proxies, consoles: [] }
  }
  const poolers = [await startPgBouncer(scope, cluster, 'transaction', 5), await startPgBouncer(scope, cluster, 'session', 20)]
  Object.assign(ways[2]!, { what: 'pooled transactions, lock of its own through a proxy', pool: poolers[0]!.url(NAME) })
  Object.assign(ways[3]!, { what: 'pooled sessions', pool: poolers[1]!.url(NAME) })
  const consoles = poolers.map(({ url }) => async (text: string) => {
    const client = new pg.Client({ connectionString: url('pgbouncer') })
    await client.connect()
    const { rows } = await client.query(text)
    await client.end()
    return rows
  })
  return { ways, proxies, consoles }
}
