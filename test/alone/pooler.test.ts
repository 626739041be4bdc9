import t from 'tap'
import { noPgBouncer, startPgBouncer } from '../helpers/pgbouncer.js'
import { startPostgres } from '../helpers/postgres.js'
import { judge, races, through } from '../helpers/race.js'
import { clean, startApi, startServer, type Boot } from '../helpers/server.js'
import { serverLog, statementsOf } from '../helpers/server-log.js'
import { until } from '../helpers/until.js'
import { compareZones } from '../helpers/zones.js'

/** `npm run soak` takes more of them. */
const SOAK = process.env.SOAK === 'true'
const SLOTS = SOAK ? 30 : 8
const AHEAD = 120_000

const cluster = await startPostgres(t, serverLog)

t.test('through PgBouncer in transaction mode, with a direct connection for the lock', { skip: noPgBouncer }, async t => {
  const pooler = await startPgBouncer(t, cluster, 'transaction', 5)
  const reach = through(pooler, cluster)

  const right = (SOAK ? [2, 4] : [4]).flatMap(processes => [0, 500].map(work => ({ clocks: Array(processes).fill(0), work, slots: SLOTS })))
  const wrong = [[AHEAD], [-AHEAD], [AHEAD, -AHEAD]].map(clocks => ({ clocks, work: 0, slots: 6 }))
  const raced = await races(t, cluster, reach, [...right, ...wrong])
  const statements = await statementsOf(cluster)

  for (const one of raced.slice(0, right.length)) {
    t.test(`${one.servers.length} processes, a sync of ${one.work} ms, ${SLOTS} slots`, async t => judge(t, one, statements))
  }

  for (const { clocks, rows, begins } of raced.slice(right.length)) {
    t.test(`clocks that are wrong by ${clocks.map(ms => `${ms / 1_000} s`).join(' and ')}: no slot is served twice, and none skipped`, async t => {
      t.strictSame(rows.map(({ slot, state }) => [slot, state]), begins.map(slot => [slot, 'succeeded']))
    })
  }

  t.test('every server closes and ends by itself, without a word on stderr, a warning or an error', async t => {
    for (const { servers, exits } of raced) {
      for (const exit of exits) t.strictSame(exit, clean)
      t.strictSame(servers.flatMap(({ log }) => log).filter(({ level }) => level >= 40), [])
    }
  })

  t.test('another TZ of the process changes no slot', async t => {
    await compareZones(t, cluster, reach, ['Asia/Kolkata', 'America/New_York', 'Australia/Lord_Howe'])
  })

  t.test('a runner that is killed is replaced with the same window, and seen to be gone', async t => {
    const database = await cluster.database()
    const api = await startApi(t)
    const boot: Boot = {
      url: pooler.url(database), work: { kind: 'fetch', url: api.url }, options: { every: '24h', standby: '1s', lock: { connectionString: cluster.url(database) } }
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
      const { rows } = await cluster.query('select * from hourly_sync.run order by started_at', [], database)
      return rows.length === 2 && rows
    }, 'the run of the second server ends')
    t.match([vanished, success], [{ state: 'vanished', attempt: 1 }, { state: 'succeeded', attempt: 1, window_start: vanished.window_start }])
    for (const server of [standby, watcher]) t.strictSame(await server.end(), clean)
  })
})
