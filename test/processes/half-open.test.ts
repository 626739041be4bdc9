import t from 'tap'
import { startPostgres } from '../helpers/postgres.js'
import { startProxy } from '../helpers/proxy.js'
import { clean, startApi, startServer } from '../helpers/server.js'

const CLOSE_TIMEOUT = 2_000
/** What a destroyed session is given to say goodbye, and what a busy machine needs to end a process. */
const GOODBYE = 3_000

const cluster = await startPostgres(t)

for (const [what, isLock] of [['a client of the pool', false], ['a direct connection', true]] as const) {
  t.test(`a process whose lock session is half-open (${what}) closes, and ends by itself`, async t => {
    const database = await cluster.database()
    const proxy = await startProxy(t, cluster.port)
    const api = await startApi(t)
    const direct = cluster.url(database)
    const silent = direct.replace(`:${cluster.port}/`, `:${proxy.port}/`)
    const server = await startServer(t, {
      url: isLock ? direct : silent,
      work: { kind: 'fetch', url: api.url },
      options: { closeTimeout: CLOSE_TIMEOUT, ...(isLock && { lock: { connectionString: silent } }) }
    })
    await api.request()
    t.equal(proxy.open(), 1, 'the session of the run goes through the proxy')
    proxy.silence()
    const asked = performance.now()
    const took = await server.call('close')
    t.strictSame(await server.exited, clean)
    const ended = performance.now() - asked
    t.ok(took <= CLOSE_TIMEOUT + 500, `close() took ${took} ms`)
    t.ok(ended <= CLOSE_TIMEOUT + GOODBYE, `the process has ended after ${ended} ms`)
  })
}
