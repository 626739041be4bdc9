import t from 'tap'
import { startPostgres } from '../helpers/postgres.js'
import { clean, type Exit, forkServer, startApi, startServer } from '../helpers/server.js'
import { until } from '../helpers/until.js'

const cluster = await startPostgres(t)

const killed: Exit = { code: null, signal: 'SIGKILL', stderr: '' }

/** How many advisory locks are held in a database. */
async function locks (database: string): Promise<number> {
  const { rows: [{ count }] } = await cluster.query(
    "select count(*)::int from pg_locks where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())", [], database)
  return count
}

async function runs (database: string): Promise<any[]> {
  return (await cluster.query('select * from hourly_sync.run order by started_at', [], database)).rows
}

t.test('a runner is killed while it awaits the API', async t => {
  const database = await cluster.database()
  const api = await startApi(t)
  const boot = { url: cluster.url(database), work: { kind: 'fetch' as const, url: api.url }, options: { overlap: '10m', standby: '1s' } }

  const first = await startServer(t, boot)
  const before = await api.request()
  before.answer()
  await until(async () => (await runs(database)).length === 1, 'a first run succeeds')
  t.strictSame(await first.end(), clean)
  // as if all that had been two hours ago
  await cluster.query(`update hourly_sync.sync set last_slot = last_slot - interval '2 hours', watermark = watermark - interval '2 hours',
    succeeded_at = succeeded_at - interval '2 hours'`, [], database)
  await cluster.query("update hourly_sync.run set started_at = started_at - interval '2 hours', finished_at = finished_at - interval '2 hours'", [], database)
  const { rows: [{ watermark }] } = await cluster.query('select watermark from hourly_sync.sync', [], database)

  const runner = await startServer(t, boot)
  await api.request()
  const { rows: [{ started }] } = await cluster.query('select started from hourly_sync.sync', [], database)
  runner.kill('SIGKILL')
  t.strictSame(await runner.exited, killed)

  await t.test('its lock is free at once', async t => {
    const asked = performance.now()
    await until(async () => await locks(database) === 0, 'the lock is free')
    const took = performance.now() - asked
    t.ok(took < 2_000, `after ${took} ms`)
  })

  await t.test('nothing was recorded for it, and the watermark is where it was', async t => {
    t.equal((await runs(database)).length, 1)
    const { rows } = await cluster.query('select watermark from hourly_sync.sync', [], database)
    t.strictSame(rows, [{ watermark }])
  })

  const next = await startServer(t, boot)
  const again = await api.request()
  again.answer()
  const [, vanished, success] = await until(async () => {
    const rows = await runs(database)
    return rows.length === 3 && rows
  }, 'the next look runs')

  await t.test('the next look runs the same window again', async t => {
    t.strictSame(success.window_start, new Date(watermark.getTime() - 600_000))
    t.equal(success.window_start.getTime(), started.since)
    t.equal(success.state, 'succeeded')
    t.ok(success.worker.endsWith(`:${next.pid}`))
  })

  await t.test('the killed run has vanished, as it was: its slot, window, attempt, start and process', async t => {
    const { id, state, trigger, attempt, worker } = vanished
    t.strictSame({ id, state, trigger, attempt, worker }, {
      id: started.id, state: 'vanished', trigger: started.trigger, attempt: started.attempt, worker: `${started.host}:${runner.pid}`
    })
    t.strictSame([vanished.slot, vanished.window_start, vanished.window_end, vanished.started_at].map(Number),
      [started.slot, started.since, started.until, started.at])
  })

  t.strictSame(await next.end(), clean)
})

t.test('a standby takes over from a killed runner, without a new look by anybody else', async t => {
  const database = await cluster.database()
  const api = await startApi(t)
  const boot = { url: cluster.url(database), work: { kind: 'fetch' as const, url: api.url }, options: { standby: '1s' } }
  const runner = await startServer(t, boot)
  await api.request()
  const standby = await startServer(t, boot)
  await until(() => standby.log.some(({ msg }) => msg === 'sync running elsewhere'), 'the second server has lost')

  runner.kill('SIGKILL')
  const again = await api.request()
  again.answer()
  await until(async () => (await runs(database)).length === 2, 'the run of the second server ends')

  t.strictSame((await runs(database)).map(({ state, worker }) => [state, Number(worker.split(':').at(-1))]), [['vanished', runner.pid], ['succeeded', standby.pid]])
  t.strictSame(await standby.end(), clean)
})

t.test('a sync that kills its process each time takes down three of five, and the fourth says so', async t => {
  const database = await cluster.database()
  const boot = { url: cluster.url(database), work: { kind: 'kill' as const }, options: { every: '24h', standby: '1s' } } // no slot ends meanwhile
  const servers = await Promise.all(Array.from({ length: 5 }, async () => await forkServer(t)))
  // one that is killed while it boots does not answer any more
  for (const server of servers) server.call('boot', boot).catch(() => {})
  const ends = new Map<number, Exit>()
  for (const { pid, exited } of servers) exited.then(exit => ends.set(pid, exit))
  const alive = (): typeof servers => servers.filter(({ pid }) => !ends.has(pid))
  const said = (server: typeof servers[number]): unknown[] => server.log.filter(({ msg }) => msg === 'runs of this sync keep vanishing with their process: it waits for the next slot')
  await until(() => servers.some(server => said(server).length > 0), 'one says so', 60_000)
  await until(async () => {
    const states = await Promise.all(alive().map(async server => await server.call('status').catch(() => undefined)))
    return states.every(status => status?.hold === 'paused' && status.nextLook !== null)
  }, 'all that are left wait for the next slot')

  t.strictSame([...ends.values()], [killed, killed, killed])
  t.strictSame((await runs(database)).map(({ state, attempt }) => [state, attempt]), [['vanished', 1], ['vanished', 1], ['vanished', 1]])
  t.match(alive().flatMap(said), [{ level: 50, deaths: 3 }], 'one of the two that are left, once, at error')
  for (const server of alive()) t.strictSame(await server.end(), clean)
})

t.test('isSyncing', async t => {
  const database = await cluster.database()
  const api = await startApi(t)
  const boot = { url: cluster.url(database), work: { kind: 'fetch' as const, url: api.url }, options: { enabled: false } }
  const runner = await startServer(t, boot)
  const watcher = await startServer(t, boot)
  t.equal(await watcher.call('isSyncing'), false)

  /** When the watcher was last asked and still said the opposite, milliseconds after `since`. */
  const lastWrong = async (right: boolean, since: number): Promise<number> => {
    let last = 0
    await until(async () => {
      const asked = performance.now() - since
      if (await watcher.call('isSyncing') === right) return true
      last = asked
    }, `isSyncing() is ${right}`)
    return last
  }

  await t.test('sees the run of another process within half a second', async t => {
    t.match(await runner.call('trigger'), { started: true })
    const after = await lastWrong(true, performance.now())
    t.ok(after <= 500, `still false ${after} ms after the start`)
  })

  await t.test('is false once that process is killed', async t => {
    runner.kill('SIGKILL')
    t.strictSame(await runner.exited, killed)
    const after = await lastWrong(false, performance.now())
    t.ok(after <= 1_000, `still true ${after} ms after the death`) // an answer serves for half a second; the rest is for the server to end a session
  })

  t.strictSame(await watcher.end(), clean)
})
