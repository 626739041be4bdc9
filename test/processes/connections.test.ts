import t from 'tap'
import { startPostgres } from '../helpers/postgres.js'
import { clean, startServer } from '../helpers/server.js'
import { until } from '../helpers/until.js'

const cluster = await startPostgres(t)

t.test('a server lives on when its idle connections are killed', async t => {
  const database = await cluster.database()
  const server = await startServer(t, {
    url: cluster.url(database), applicationName: 'victim', work: { kind: 'rest', ms: 0 }, options: { enabled: false }
  })
  await server.call('isSyncing') // leaves a client in the pool
  const { rows } = await cluster.query("select pg_terminate_backend(pid) as killed from pg_stat_activity where application_name = 'victim'")
  t.strictSame(rows, [{ killed: true }])
  await until(() => server.log.some(({ msg }) => msg === 'an idle database connection was lost'), 'the server has noticed')

  t.equal(await (await fetch(server.address)).text(), 'ok', 'it answers')
  t.match(await server.call('runOnce'), { outcome: 'succeeded' }, 'and runs')
  t.strictSame(await server.end(), clean)
})

t.test("a role's idle_session_timeout of 1.5 s, and a sync of 10 s that does not touch the database", async t => {
  const database = await cluster.database()
  await cluster.query("create role impatient login superuser password 'postgres'")
  await cluster.query("alter role impatient set idle_session_timeout = '1.5s'")
  const boot = {
    url: cluster.url(database, 'impatient'), work: { kind: 'rest' as const, ms: 10_000 }, options: { standby: '1s' }
  }
  const servers = [await startServer(t, boot), await startServer(t, boot)]
  const runs = async (): Promise<any[]> =>
    (await cluster.query('select state, attempt, finished_at - started_at as took from hourly_sync.run', [], database)).rows
  await until(async () => {
    const { rows } = await cluster.query("select to_regclass('hourly_sync.run') is not null as made", [], database)
    return rows[0].made && (await runs()).length > 0
  }, 'a run is recorded')

  await t.test('there is one run, and nothing is lost', async t => {
    t.match(await runs(), [{ state: 'succeeded', attempt: 1 }])
  })

  await t.test('both servers live on, though the database ends their idle connections', async t => {
    for (const server of servers) {
      await server.call('status') // leaves clients in the pool
      await until(() => server.log.some(({ msg }) => msg === 'an idle database connection was lost'), 'a connection was ended')
      t.equal(await (await fetch(server.address)).text(), 'ok')
    }
  })

  await t.test('and none of them runs it again', async t => {
    // the standby looks each second while it is locked out, and then sees that the slot is served
    await until(async () => (await Promise.all(servers.map(async server => (await server.call('status')).nextLook))).every(next => next !== null), 'both wait')
    t.equal((await runs()).length, 1)
    for (const server of servers) t.strictSame(await server.end(), clean)
    t.equal((await runs()).length, 1)
  })
})
