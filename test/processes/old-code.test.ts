import t from 'tap'
import { startPostgres } from '../helpers/postgres.js'
import { clean, startApi, startServer, type Boot, type Server } from '../helpers/server.js'
import { until } from '../helpers/until.js'

const EVERY = 2_000
const SLOTS = 6

const cluster = await startPostgres(t)

/** The package as it was before version 2 of the schema, and as it is. */
const packages = { old: { FIXTURE_PACKAGE: './old-core/index.js' }, new: {} } as const
type Code = keyof typeof packages
const both: Array<[first: Code, second: Code]> = [['old', 'new'], ['new', 'old']]

const version = async (database: string): Promise<number> =>
  (await cluster.query('select max(version)::int as version from hourly_sync.migration', [], database)).rows[0].version
const runs = async (database: string): Promise<any[]> =>
  (await cluster.query('select *, extract(epoch from slot)::float8 * 1000 as at from hourly_sync.run order by started_at', [], database)).rows
const pidOf = (run: { worker: string }): number => Number(run.worker.split(':').at(-1))
const warned = (servers: Server[]): unknown[] => servers.flatMap(({ log }) => log).filter(({ level }) => level >= 40)
const looked = async (server: Server): Promise<void> => { await until(async () => (await server.call('status')).lastLook, 'it has looked') }

t.jobs = 3
for (const [first, second] of both) {
  t.test(`${second} code joins ${first} code: both serve slots, each slot once`, { buffered: true }, async t => {
    const database = await cluster.database()
    // by the jitter, now the one looks first and now the other
    const boot: Boot = { url: cluster.url(database), work: { kind: 'rest', ms: 0 }, options: { every: EVERY, jitter: 400 } }
    const one = await startServer(t, boot, packages[first])
    await looked(one)
    t.equal(await version(database), first === 'old' ? 1 : 2, 'the schema as the first has made it')
    const other = await startServer(t, boot, packages[second])
    await looked(other)
    t.equal(await version(database), 2, 'the schema as the newer needs it')

    const from = Math.ceil(Date.now() / EVERY + 1) * EVERY
    const servers = [one, other]
    await until(async () => {
      const workers = new Set((await runs(database)).filter(({ at }) => at >= from).map(pidOf))
      return Date.now() > from + SLOTS * EVERY && workers.size === 2
    }, 'the slots have passed and each has served one', 90_000)
    const end = Math.floor(Date.now() / EVERY) * EVERY // the slot that is under way is not over
    const served = (await runs(database)).filter(({ at }) => at >= from && at < end)
    t.strictSame(served.map(({ at, state }) => [at, state]), Array.from({ length: (end - from) / EVERY }, (_, index) => [from + index * EVERY, 'succeeded']))
    t.strictSame(warned(servers), [])
    for (const server of servers) t.strictSame(await server.end(), clean)
  })

  t.test(`${first} and ${second} code exclude each other's run by hand`, { buffered: true }, async t => {
    const database = await cluster.database()
    const api = await startApi(t)
    const boot: Boot = { url: cluster.url(database), work: { kind: 'fetch', url: api.url }, options: { enabled: false } }
    const servers = [await startServer(t, boot, packages[first]), await startServer(t, boot, packages[second])]
    for (let round = 1; round <= 3; round++) {
      const answers = await Promise.all(servers.map(async server => await server.call('trigger')))
      t.equal(answers.filter(({ started }) => started).length, 1, 'one starts')
      t.match(answers.find(({ started }) => !started), { reason: 'running' })
      for (const server of servers) await until(async () => await server.call('isSyncing'), 'each sees it') // an answer may be half a second old
      const { answer } = await api.request()
      answer()
      await until(async () => (await runs(database)).length === round, 'the end is recorded')
      for (const server of servers) await until(async () => !(await server.call('status')).syncing, 'the lock is free')
    }
    t.strictSame(warned(servers), [])
    for (const server of servers) t.strictSame(await server.end(), clean)
  })

  t.test(`${second} code takes over from ${first} code that was killed, and records what it was`, { buffered: true }, async t => {
    const database = await cluster.database()
    const api = await startApi(t)
    const boot: Boot = { url: cluster.url(database), work: { kind: 'fetch', url: api.url }, options: { standby: '1s' } }
    const holder = await startServer(t, boot, packages[first])
    await api.request()
    const next = await startServer(t, boot, packages[second])
    await until(() => next.log.some(({ msg }) => msg === 'sync running elsewhere'), 'it has lost')
    const { rows: [{ started }] } = await cluster.query('select started from hourly_sync.sync', [], database)
    holder.kill('SIGKILL')
    const again = await api.request()
    again.answer()
    const [vanished, success] = await until(async () => {
      const rows = await runs(database)
      return rows.length === 2 && rows
    }, 'it has run')
    t.match(vanished, { id: started.id, state: 'vanished', attempt: 1, slice: 1, window_end: new Date(started.until) })
    t.match(success, { state: 'succeeded', attempt: 1, slot: vanished.slot, window_start: vanished.window_start })
    t.strictSame([pidOf(vanished), pidOf(success)], [holder.pid, next.pid])
    t.strictSame(await next.end(), clean)
  })
}
