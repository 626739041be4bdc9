import t from 'tap'
import { noPgBouncer, startPgBouncer } from '../helpers/pgbouncer.js'
import { startPostgres } from '../helpers/postgres.js'
import { clean, startApi, startServer, type Boot } from '../helpers/server.js'
import { until } from '../helpers/until.js'

const EVERY = 2_000
const SLOTS = 5

const cluster = await startPostgres(t)

t.test('through PgBouncer in transaction mode, with a direct connection for the lock', { skip: noPgBouncer }, async t => {
  const { url } = await startPgBouncer(t, cluster, 'transaction', 5)
  const runs = async (database: string): Promise<any[]> =>
    (await cluster.query('select *, extract(epoch from slot)::float8 * 1000 as at from hourly_sync.run order by started_at', [], database)).rows

  await t.test('two processes make one run in each slot', async t => {
    const database = await cluster.database()
    const boot: Boot = { url: url(database), work: { kind: 'rest', ms: 0 }, options: { every: EVERY, lock: { connectionString: cluster.url(database) } } }
    const servers = await Promise.all([1, 2].map(async () => await startServer(t, boot)))
    for (const server of servers) await until(async () => (await server.call('status')).lastLook, 'each has looked once')
    const from = Math.ceil(Date.now() / EVERY + 1) * EVERY // a slot that both wait for
    const end = from + SLOTS * EVERY
    await until(() => Date.now() > end + 500, 'the slots have passed')
    const served = (await runs(database)).filter(({ at }) => at >= from && at < end)
    t.strictSame(served.map(({ at, state }) => [at, state]), Array.from({ length: SLOTS }, (_, index) => [from + index * EVERY, 'succeeded']))
    for (const server of servers) {
      t.strictSame(await server.end(), clean)
      t.strictSame(server.log.filter(({ level }) => level >= 40), [])
    }
  })

  await t.test('a runner that is killed is replaced with the same window, and seen to be gone', async t => {
    const database = await cluster.database()
    const api = await startApi(t)
    const boot: Boot = {
      url: url(database), work: { kind: 'fetch', url: api.url }, options: { every: '24h', standby: '1s', lock: { connectionString: cluster.url(database) } }
    }
    const runner = await startServer(t, boot)
    await api.request()
    const standby = await startServer(t, boot)
    await until(() => standby.log.some(({ msg }) => msg === 'sync running elsewhere'), 'the second server has lost')
    const watcher = await startServer(t, { ...boot, options: { ...boot.options, enabled: false } })
    t.equal(await watcher.call('isSyncing'), true)
    standby.kill('SIGSTOP') // so that nobody takes over yet
    runner.kill('SIGKILL')
    await until(async () => !await watcher.call('isSyncing'), 'nobody is syncing')
    standby.kill('SIGCONT')
    const again = await api.request()
    again.answer()
    const [vanished, success] = await until(async () => {
      const rows = await runs(database)
      return rows.length === 2 && rows
    }, 'the run of the second server ends')
    t.match([vanished, success], [{ state: 'vanished', attempt: 1 }, { state: 'succeeded', attempt: 1, window_start: vanished.window_start }])
    for (const server of [standby, watcher]) t.strictSame(await server.end(), clean)
  })
})
