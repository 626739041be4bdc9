import t from 'tap'
import { startPostgres } from '../helpers/postgres.js'
import { clean, startApi, startServer } from '../helpers/server.js'
import { until } from '../helpers/until.js'

const CLOSE_TIMEOUT = 3_000

const cluster = await startPostgres(t)

/** How a host's function can take it that its signal aborts. */
const hosts = [
  { host: 'honours its signal', kind: 'fetch' },
  { host: 'ignores its signal, and goes on when the API answers', kind: 'deaf' },
  { host: 'ignores its signal, and never settles', kind: 'never' }
] as const

t.jobs = 3
for (const order of ['before', 'after'] as const) {
  for (const { host, kind } of hosts) {
    t.test(`close() during a run, registered ${order} @fastify/postgres, with a host that ${host}`, { buffered: true }, async t => {
      const database = await cluster.database()
      const api = await startApi(t)
      const server = await startServer(t, {
        url: cluster.url(database), order, work: { kind, url: api.url }, options: { closeTimeout: CLOSE_TIMEOUT }
      })
      const request = await api.request()
      if (kind === 'never') {
        request.answer()
        await request.aborted // the answer is out
      }

      const took = await server.call('close')
      if (kind === 'deaf') request.answer()

      t.ok(took <= CLOSE_TIMEOUT + 250, `resolves within closeTimeout, and what the rest of the app takes (${took} ms)`)
      if (kind === 'fetch') {
        t.ok(took < CLOSE_TIMEOUT, 'and sooner, when the host stops')
        t.ok(await request.aborted, 'which the API sees')
      }
      t.strictSame(await server.exited, clean, 'the process exits by itself')
      await until(async () => {
        const { rows } = await cluster.query("select 1 from pg_locks where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())", [], database)
        return rows.length === 0
      }, 'the lock is gone', 5_000)
      const { rows } = await cluster.query('select state from hourly_sync.run', [], database)
      t.strictSame(rows, [{ state: 'interrupted' }], 'there is no success row')
    })
  }
}
