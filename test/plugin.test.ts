import fastifyPostgres from '@fastify/postgres'
import Fastify, { type FastifyInstance } from 'fastify'
import pg from 'pg'
import t, { type Test } from 'tap'
import hourlySync from '../index.js'
import { lockKey } from '../lib/lock-key.js'
import { captureLog, levels, setStage } from './helpers/host.js'
import { freePort, startPostgres } from './helpers/postgres.js'
import { gate, until } from './helpers/until.js'

const cluster = await startPostgres(t)
const sync = async (): Promise<void> => {}
const base = { enabled: false, sync }

/** A server without a database, to which a pool has nevertheless been given. */
function server (t: Test, log = captureLog()): FastifyInstance {
  const app = Fastify({ logger: log.logger })
  t.teardown(async () => await app.close())
  return app
}

const refused: Array<[string, any, RegExp]> = [
  ['an unknown option', { nmae: 'a', name: 'a', sync }, /'nmae'.*did you mean/],
  ['no name', { sync }, /'name'/],
  ['no sync', { name: 'a' }, /'sync'/],
  ['an option of a wrong type', { name: 'a', sync, enabled: 'true' }, /'enabled'.*true or false.*'true'/],
  ['a bad duration', { name: 'a', sync, every: '1M' }, /'every'.*'1M'/],
  ['a duration that is too short', { name: 'a', sync, every: 10 }, /'every'.*at least 1000 ms/],
  ['something that is no pool', { name: 'a', sync, pool: {} }, /'pool'/],
  ['a client in the place of a pool', { name: 'a', sync, pool: new pg.Client() }, /'pool' should be a pg\.Pool/]
]
for (const [what, options, message] of refused) {
  t.test(`${what} is refused while registering`, async t => {
    const app = server(t)
    await t.rejects(async () => await app.register(hourlySync, options), { code: 'FST_HOURLY_SYNC_INVALID_OPTION', message })
  })
}

t.test('two syncs of one name are refused while registering', async t => {
  const app = server(t)
  await app.register(hourlySync, { ...base, name: 'orders' })
  await t.rejects(async () => await app.register(hourlySync, { ...base, name: 'orders' }), { code: 'FST_HOURLY_SYNC_DUPLICATE' })
})

t.test('two syncs of one lock name are refused while registering', async t => {
  const app = server(t)
  await app.register(hourlySync, { ...base, name: 'orders' })
  await t.rejects(async () => await app.register(hourlySync, { ...base, name: 'others', lockName: 'orders' }), { code: 'FST_HOURLY_SYNC_DUPLICATE' })
})

t.test('two syncs of one name are refused across contexts of an app', async t => {
  const app = server(t)
  await app.register(hourlySync, { ...base, name: 'orders' })
  app.register(async child => { await child.register(hourlySync, { ...base, name: 'orders' }) })
  await t.rejects(async () => await app.ready(), { code: 'FST_HOURLY_SYNC_DUPLICATE' })
})

t.test('without a pool the app does not get ready', async t => {
  const app = server(t)
  await app.register(hourlySync, { ...base, name: 'orders' })
  await t.rejects(async () => await app.ready(), { code: 'FST_HOURLY_SYNC_NO_POOL', message: /fastify\.pg/ })
})

t.test('with a pool of another name the app does not get ready', async t => {
  const app = server(t)
  await app.register(fastifyPostgres, { connectionString: cluster.url() })
  await app.register(hourlySync, { ...base, name: 'orders', pg: 'warehouse' })
  await t.rejects(async () => await app.ready(), { code: 'FST_HOURLY_SYNC_NO_POOL', message: /fastify\.pg\.warehouse/ })
})

t.test('what was put in the place of a pool is none', async t => {
  const app = server(t)
  app.decorate('pg', { pool: new pg.Client() } as any)
  await app.register(hourlySync, { ...base, name: 'orders' })
  await t.rejects(async () => await app.ready(), { code: 'FST_HOURLY_SYNC_NO_POOL', message: /fastify\.pg/ })
})

t.test("a pool of pg's native client is refused when the app gets ready", async t => {
  class Native {} // pg-native is not here; what matters is what its client lacks
  const app = server(t)
  const pool = new pg.Pool({ connectionString: cluster.url() })
  t.teardown(async () => await pool.end())
  Object.assign(pool, { Client: Native })
  await app.register(hourlySync, { ...base, name: 'orders', pool })
  await t.rejects(async () => await app.ready(), { code: 'FST_HOURLY_SYNC_NATIVE' })
})

t.test('before the app is ready there is nothing to ask', async t => {
  const app = server(t)
  await app.register(hourlySync, { ...base, name: 'orders' })
  const orders = app.hourlySync.get()
  const code = { code: 'FST_HOURLY_SYNC_NO_POOL', message: "sync 'orders' found no pg.Pool so far: the app is not ready yet, await app.ready() first" }
  await t.rejects(app.triggerSync(), code)
  await t.rejects(app.isSyncing(), code)
  await t.rejects(orders.runOnce(), code)
  t.match(await orders.status(), { unavailable: /not ready yet/, enabled: false, disabledBecause: 'not ready', syncing: false, holder: null, nextLook: null })
  t.throws(() => orders.start(), code)
})

t.test('the only sync of an app needs no name, and can be named', async t => {
  const app = server(t)
  await app.register(hourlySync, { ...base, name: 'orders' })
  t.equal(app.hourlySync.get(), app.hourlySync.get('orders'))
  t.strictSame(app.hourlySync.names, ['orders'])
  t.match(app.hourlySync.get(), { name: 'orders', lockKey: lockKey('orders').toString() })
})

t.test('a name that no sync has is refused', async t => {
  const app = server(t)
  await app.register(hourlySync, { ...base, name: 'orders' })
  const code = { code: 'FST_HOURLY_SYNC_UNKNOWN', message: /'ordres'.*'orders'/ }
  t.throws(() => app.hourlySync.get('ordres'), code)
  await t.rejects(app.triggerSync('ordres'), code)
  await t.rejects(app.isSyncing('ordres'), code)
})

t.test('a call in an app of several syncs has to name one', async t => {
  const app = server(t)
  await app.register(hourlySync, { ...base, name: 'orders' })
  await app.register(hourlySync, { ...base, name: 'prices' })
  const code = { code: 'FST_HOURLY_SYNC_NAME_REQUIRED', message: /'orders', 'prices'/ }
  t.throws(() => app.hourlySync.get(), code)
  await t.rejects(app.triggerSync(), code)
  await t.rejects(app.isSyncing(), code)
})

t.test('the caller keeps its options as they were', async t => {
  const app = server(t)
  const options = Object.freeze({ ...base, name: 'orders', retry: Object.freeze({ limit: 1 }), requires: Object.freeze({ KEY: '' }) })
  await app.register(hourlySync, options)
  t.strictSame(Object.keys(options), ['enabled', 'sync', 'name', 'retry', 'requires'])
})

t.test('two syncs of an app run on their own', async t => {
  const stage = await setStage(t, cluster)
  const ran: string[] = []
  const app = server(t)
  await app.register(fastifyPostgres, stage.poolConfig)
  for (const name of ['orders', 'prices']) {
    await app.register(hourlySync, { ...base, name, schema: stage.schema, sync: async run => { ran.push(run.name) } })
  }
  await app.ready()
  const answers = await Promise.all([app.triggerSync('orders'), app.triggerSync('prices')])
  for (const answer of answers) t.match(answer.started ? await answer.finished : answer, { state: 'succeeded' })
  t.strictSame(ran.sort(), ['orders', 'prices'])
})

t.test('a sync in a child context is known to the whole app and uses the pool of its context', async t => {
  const stage = await setStage(t, cluster)
  const app = server(t)
  app.register(async child => {
    await child.register(fastifyPostgres, stage.poolConfig)
    await child.register(hourlySync, { ...base, name: stage.name, schema: stage.schema })
  })
  await app.register(hourlySync, { ...base, name: 'beside', pool: stage.pool() })
  await app.ready()
  t.strictSame(app.hourlySync.names.sort(), [stage.name, 'beside'].sort())
  t.match(await app.hourlySync.get(stage.name).runOnce(), { outcome: 'succeeded' })
})

t.test('a pool of a named instance is used', async t => {
  const stage = await setStage(t, cluster)
  const app = server(t)
  await app.register(fastifyPostgres, { ...stage.poolConfig, name: 'warehouse' })
  await app.register(hourlySync, { ...base, name: stage.name, schema: stage.schema, pg: 'warehouse' })
  await app.ready()
  t.match(await app.hourlySync.get().runOnce(), { outcome: 'succeeded' })
})

t.test('the plugin can be registered before the pool', async t => {
  const stage = await setStage(t, cluster)
  const app = server(t)
  await app.register(hourlySync, { ...base, name: stage.name, schema: stage.schema })
  await app.register(fastifyPostgres, stage.poolConfig)
  await app.ready()
  t.match(await app.hourlySync.get().runOnce(), { outcome: 'succeeded' })
})

t.test('two apps in one process do not meet', async t => {
  const stage = await setStage(t, cluster)
  const one = await stage.host()
  const other = await stage.host({ name: 'other' })
  t.strictSame([one.app.hourlySync.names, other.app.hourlySync.names], [[stage.name], ['other']])
  await one.app.close()
  t.match(await other.sync.runOnce(), { outcome: 'succeeded' })
  t.match(await one.app.triggerSync(), { started: false, reason: 'closing' })
})

t.test('two apps that share a name share its lock', async t => {
  const stage = await setStage(t, cluster)
  const on = gate()
  const one = await stage.host({ sync: async () => await on.passed })
  const other = await stage.host()
  const first = await one.app.triggerSync()
  t.match(await other.app.triggerSync(), { started: false, reason: 'running', holder: { pid: process.pid, trigger: 'manual', runId: first.started && first.runId } })
  on.open()
  t.match(first.started && await first.finished, { state: 'succeeded' })
})

t.test('of two triggers in two apps at once exactly one starts', async t => {
  const stage = await setStage(t, cluster)
  const on = gate()
  const hosts = [await stage.host({ sync: async () => await on.passed }), await stage.host({ sync: async () => await on.passed })]
  for (const { sync } of hosts) await sync.status() // both have their tables and a connection
  const answers = await Promise.all(hosts.map(async ({ app }) => await app.triggerSync()))
  t.strictSame(answers.map(({ started }) => started).sort(), [false, true])
  on.open()
})

t.test('of two triggers in one app at once exactly one starts, before the sync has ended', async t => {
  const stage = await setStage(t, cluster)
  const on = gate()
  const { app } = await stage.host({ sync: async () => await on.passed })
  const answers = await Promise.all([app.triggerSync(), app.triggerSync(), app.triggerSync()])
  t.strictSame(answers.map(({ started }) => started).sort(), [false, false, true])
  on.open()
  t.strictSame((await Promise.all(answers.map(async answer => answer.started && await answer.finished))).filter(record => record).length, 1)
})

t.test('a sync that is not configured boots, says once what is missing, and runs nothing', async t => {
  const stage = await setStage(t, cluster)
  const { app, log, sync } = await stage.host({ enabled: true, requires: { API_KEY: undefined, HOST: '', USER: null, SET: 0, SECRET: 'sesame' } })
  t.match(log.said('sync is not configured: the loop stays off'), [{ level: levels.warn, missing: ['API_KEY', 'HOST', 'USER'] }])
  t.match(await app.triggerSync(), { started: false, reason: 'not-configured' })
  t.match(await sync.runOnce({ force: true }), { outcome: 'not-configured', run: null })
  t.match(await sync.status(), { enabled: false, disabledBecause: /API_KEY, HOST, USER/, nextLook: null })
  sync.start()
  t.match(await sync.status(), { enabled: false })
  t.notMatch(JSON.stringify(log.lines), /sesame/)
  t.equal(log.lines.filter(({ level }) => level >= levels.warn).length, 1)
})

t.test('a sync that is not enabled sends nothing, and can be triggered', async t => {
  const stage = await setStage(t, cluster, undefined, { empty: true })
  const { app, sync, pool } = await stage.host({ enabled: false })
  await app.inject('/')
  t.equal(pool.totalCount, 0)
  const { rows } = await stage.query(`select 1 from pg_namespace where nspname = '${stage.schema}'`)
  t.strictSame(rows, [], 'there are not even tables')
  t.match(await sync.status(), { enabled: false, disabledBecause: 'not enabled' })
  const answer = await app.triggerSync()
  t.match(answer.started && await answer.finished, { state: 'succeeded' })
})

t.test('a loop starts when the app is ready', async t => {
  const stage = await setStage(t, cluster)
  const { app } = await stage.host({ enabled: true })
  await until(async () => (await app.hourlySync.get().runs().catch(() => [])).length > 0)
  t.match(await app.hourlySync.get().status(), { enabled: true, disabledBecause: null, lastRun: { state: 'succeeded', trigger: 'schedule' } })
})

t.test('a loop that waits for listen does not start under inject', async t => {
  const stage = await setStage(t, cluster)
  const { app, sync } = await stage.host({ enabled: true, start: 'listen' })
  await app.inject('/')
  t.match(await sync.status(), { enabled: false, disabledBecause: 'not listening' })
  await app.listen({ port: 0, host: '127.0.0.1' })
  t.match(await sync.status(), { enabled: true })
  sync.stop()
  t.match(await sync.status(), { enabled: false, disabledBecause: 'stopped' })
})

t.test('a loop that the environment has switched off says so, until it is started by hand', async t => {
  process.env.FASTIFY_HOURLY_SYNC_LOOP = 'off'
  t.teardown(() => { delete process.env.FASTIFY_HOURLY_SYNC_LOOP })
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({ enabled: true })
  t.match(await sync.status(), { enabled: false, disabledBecause: 'FASTIFY_HOURLY_SYNC_LOOP is off' })
  sync.start()
  t.match(await sync.status(), { enabled: true, disabledBecause: null })
  sync.stop()
  t.match(await sync.status(), { enabled: false, disabledBecause: 'stopped' })
})

t.test('starting twice starts one loop, and stopping twice stops it', async t => {
  const stage = await setStage(t, cluster)
  const { sync, log } = stage.bare({ startupDelay: 50 })
  sync.stop()
  sync.start()
  sync.start()
  await until(async () => (await sync.runs().catch(() => [])).length > 0)
  t.equal(log.said('sync started').length + log.said('sync not due').length, 1)
  sync.stop()
  sync.stop()
  t.match(await sync.status(), { enabled: false, disabledBecause: 'stopped', nextLook: null })
})

t.test('a loop that was stopped can be started again', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host()
  sync.start()
  sync.stop()
  sync.start()
  await until(async () => (await sync.runs().catch(() => [])).length > 0)
  t.match(await sync.status(), { enabled: true })
})

t.test('a stop lets the run under way go on', async t => {
  const stage = await setStage(t, cluster)
  const on = gate()
  const began = gate()
  const { sync } = await stage.host({
    enabled: true,
    sync: async () => {
      began.open()
      await on.passed
    }
  })
  await began.passed
  sync.stop()
  on.open()
  await until(async () => (await sync.runs()).length > 0)
  t.match(await stage.history(), [{ state: 'succeeded' }])
})

t.test('a start after the app has closed starts nothing', async t => {
  const stage = await setStage(t, cluster)
  const { app, sync } = await stage.host()
  await app.close()
  sync.start()
  t.match(await sync.status(), { enabled: false, disabledBecause: 'closing' })
})

t.test('an app that closes before it was ready closes', async t => {
  const app = server(t)
  await app.register(hourlySync, { ...base, enabled: true, name: 'orders', pool: (await setStage(t, cluster)).pool() })
  await app.close()
  t.pass('it has')
})

t.test('a database that is away does not hold up boot', async t => {
  const log = captureLog()
  const app = server(t, log)
  const pool = new pg.Pool({ connectionString: `postgres://postgres@127.0.0.1:${await freePort()}/none` })
  t.teardown(async () => await pool.end())
  await app.register(hourlySync, { enabled: true, startupDelay: 0, name: 'orders', sync, pool })
  app.get('/', async () => 'here')
  await app.ready()
  t.equal((await app.inject('/')).body, 'here')
  await until(() => log.said('database unavailable')[0])
  t.match(await app.triggerSync(), { started: false, reason: 'unavailable', message: /ECONNREFUSED/ })
  t.match(await app.hourlySync.get().status(), { unavailable: /ECONNREFUSED/, lastLook: { outcome: 'unavailable' }, syncing: false, due: null })
})

t.test('a pool without an error listener is given one, and the host is told', async t => {
  const stage = await setStage(t, cluster)
  const pool = new pg.Pool(stage.poolConfig)
  t.teardown(async () => await pool.end())
  const log = captureLog()
  const app = server(t, log)
  await app.register(hourlySync, { ...base, name: 'orders', schema: stage.schema, pool })
  await app.register(hourlySync, { ...base, name: 'prices', schema: stage.schema, pool })
  await app.ready()
  t.equal(pool.listenerCount('error'), 1)
  t.equal(log.lines.filter(({ msg }) => msg.startsWith('the pool had no error listener')).length, 1)
  await pool.query('select 1') // which leaves a client idle
  await stage.query(`select pg_terminate_backend(pid) from pg_stat_activity where application_name = '${stage.poolConfig.application_name}'`)
  t.match(await until(() => log.said('an idle database connection was lost')[0]), { level: levels.warn })
})
