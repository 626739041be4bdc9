import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { readArguments, usage } from './demo/arguments.js'
import type { DatabaseReady } from './demo/database.js'
import { type Member, openFamily } from './demo/family.js'
import { openHistory } from './demo/history.js'
import { removeLeftovers } from './demo/leftovers.js'
import { logLineIn, openNarrator } from './demo/narrator.js'
import { reachVerdict } from './demo/verdict.js'

const every = 20_000

for (const name of Object.keys(process.env)) {
  if (name.startsWith('PG')) delete process.env[name] // meant for another database
}

/** Shows one sync shared by two servers. @returns the exit code */
async function demo (slots: number | null): Promise<number> {
  const folder = mkdtempSync(join(tmpdir(), 'hourly-sync-demo-'))
  const narrator = openNarrator()
  const members: Member[] = []
  const ending = new AbortController()
  const { signal } = ending
  const say = (line: string): void => console.log(line)
  const early: string[] = []
  let narrate = (line: string): void => { early.push(line) } // a server that is up first waits with its story for the other

  for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(name, () => ending.abort(name))
  if (process.env['npm_lifecycle_event'] !== undefined) {
    const parent = process.ppid // npm's shell does not hand on a signal that was sent to npm alone
    setInterval(() => { if (process.ppid !== parent) ending.abort('SIGHUP') }, 500).unref()
  }
  process.stdout.on('error', () => ending.abort('SIGPIPE')) // `| head` has seen enough
  const stopped = new Promise<never>((_resolve, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason))
  })
  stopped.catch(() => {})

  const family = openFamily({
    onLine: (name, text, stream) => {
      const line = logLineIn(text)
      const told = line === undefined ? undefined : narrator.tell(name, line)
      if (told !== undefined) narrate(told)
      if (line === undefined && stream === 'stderr') console.error(`${name}: ${text}`)
    },
    onDeath: (name, how) => ending.abort(new Error(`${name} ended unexpectedly (${how})`))
  })
  const start: typeof family.start = (...how) => {
    const member = family.start(...how)
    members.push(member)
    return member
  }
  const whenListening = async (member: Member): Promise<string> => await Promise.race([stopped, member.first(said =>
    typeof said === 'string' ? /Server listening at (http:\/\/127\.0\.0\.1:\d+)/.exec(said)?.[1] : undefined)])

  try {
    say('starting PostgreSQL, the order service and two servers ...')
    const database = start('PostgreSQL', './database.ts', { args: [folder], polite: 'disconnect' })
    const service = start('order service', '../order-service.ts', {
      env: { PORT: '0', ORDER_API_KEY: 'demo-key', ORDER_CALL_EVERY: '250', ORDER_COUNT: '240' }
    })
    const [databaseUrl, orderServiceUrl] = await Promise.all([
      Promise.race([stopped, database.first(said => (said as Partial<DatabaseReady>).url)]),
      whenListening(service)
    ])
    const servers = ['server A', 'server B'].map(name => start(name, '../server.ts', {
      env: {
        PORT: '0',
        DATABASE_URL: databaseUrl,
        ORDER_SERVICE_URL: orderServiceUrl,
        ORDER_API_KEY: 'demo-key',
        ORDER_CALL_EVERY: '250',
        ORDER_PAGE_SIZE: '100',
        AUTO_SYNC: 'true',
        FASTIFY_HOURLY_SYNC_LOOP: '',
        SYNC_EVERY: `${every}ms`,
        SYNC_STARTUP_DELAY: '1s',
        SYNC_OVERLAP: '6s', // the order service shows a change 3 seconds after its stamp
        SYNC_RETRY_DELAY: '2s',
        LOG_LEVEL: 'debug'
      }
    }))
    const urls = await Promise.all(servers.map(whenListening)) as [string, string]

    say(`
  the dashboard, by server A:                          ${urls[0]}/hourly-sync/order-sync/
  the same by server B:                                ${urls[1]}/hourly-sync/order-sync/
  the orders, as server A reads them from PostgreSQL:  curl ${urls[0]}/orders
  the same by server B:                                curl ${urls[1]}/orders
  sync now (a second one at once is turned down):      curl -X POST ${urls[1]}/orders/refresh
  what the servers asked the order service:            curl ${orderServiceUrl}/admin/log
  the history:                                         psql ${databaseUrl} -c 'table hourly_sync.run'

A slot lasts ${every / 1000} seconds; both servers look at each, one works.${slots === null ? ' Ctrl-C ends everything.' : ''}
`)
    narrate = say
    for (const line of early.splice(0)) say(line)
    if (slots === null) return await stopped

    const history = await openHistory(databaseUrl)
    try {
      const good = await Promise.race([stopped, reachVerdict({
        slots, every, history, orderServiceUrl, serverUrl: urls[0], whoRan: narrator.whoRan, say, signal
      })])
      say(good ? 'as promised' : 'NOT as promised')
      return good ? 0 : 1
    } finally {
      await history.close()
    }
  } catch (error) {
    const reason: unknown = signal.aborted ? signal.reason : error
    if (reason instanceof Error) {
      console.error(`the demo failed: ${reason.message}`)
      return 1
    }
    return slots === null ? 0 : 130 // stopped by hand is how the endless form ends, but nothing has been checked
  } finally {
    for (const line of early) say(line)
    const [database, service, ...servers] = members
    await Promise.all(servers.map(async server => await server.stop())) // first: they use the rest until they have ended
    await Promise.all([service?.stop(), database?.stop()])
    await removeLeftovers(folder)
  }
}

function readCommandLine (): { help: boolean, slots: number | null } | undefined {
  try {
    return readArguments(process.argv.slice(2))
  } catch (error) {
    console.error(`${(error as Error).message}\n\n${usage}`)
  }
}

const asked = readCommandLine()
if (asked === undefined) process.exitCode = 2
else if (asked.help) console.log(usage)
else process.exitCode = await demo(asked.slots)
