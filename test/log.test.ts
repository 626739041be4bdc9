import Fastify, { type FastifyBaseLogger } from 'fastify'
import t, { type Test } from 'tap'
import hourlySync from '../index.js'
import { guarded } from '../lib/log.js'
import { captureLog, levels, setStage, type Line } from './helpers/host.js'
import { freePort, startPostgres } from './helpers/postgres.js'
import { until } from './helpers/until.js'

const cluster = await startPostgres(t)

/** As of a host that expects the errors of its HTTP client. */
const serializers: any = { err: (error: any) => ({ status: error.response.status }) }

/** A logger of a host, and what it has written. */
function made (options: object = {}): { log: FastifyBaseLogger, lines: Line[] } {
  const { lines, logger } = captureLog()
  return { log: Fastify({ logger: { ...logger, ...options } }).log, lines }
}

const disk = new Error('disk full')

t.test('what can be written is written as it is', async t => {
  const { log, lines } = made()
  const child = guarded(log).child({ sync: 'orders' }).child({ run: 1 })
  child.warn({ code: 7 }, 'well')
  child.info('so so')
  t.match(lines, [{ level: levels.warn, msg: 'well', sync: 'orders', run: 1, code: 7 }, { level: levels.info, msg: 'so so', sync: 'orders', run: 1 }])
})

t.test('it is a logger of the host in all else', async t => {
  const { log, lines } = made()
  const child = guarded(log).child({ sync: 'orders' })
  t.equal(child.level, 'debug')
  child.level = 'error'
  child.warn('not wanted')
  t.strictSame([child.level, log.level, lines], ['error', 'debug', []])
})

t.test('a line that cannot be written keeps its message, and says why', async t => {
  const { log, lines } = made({ serializers })
  guarded(log).child({ sync: 'orders' }).error({ err: disk, sync: 'orders' }, 'sync failed')
  t.match(lines, [{ level: levels.error, sync: 'orders', msg: 'sync failed', unlogged: /undefined \(reading 'status'\)/ }])
  guarded(log).error(disk)
  t.match(lines[1], { level: levels.error, unlogged: /reading 'status'/ })
})

t.test('a log that takes nothing at all does no harm', async t => {
  const { log, lines } = made()
  lines.push = () => { throw disk }
  for (const level of ['fatal', 'error', 'warn', 'info', 'debug'] as const) t.doesNotThrow(() => guarded(log)[level]('no'), level)
})

t.test('a child that cannot be made is its parent', async t => {
  const { log, lines } = made()
  log.child = () => { throw disk }
  guarded(log).child({ sync: 'orders' }).info('without')
  t.match(lines, [{ msg: 'without' }])
})

// what it is for

t.test('a failed run is told and recorded as what it was, whatever the serializers of the host do', async t => {
  const stage = await setStage(t, cluster)
  const app = Fastify({ logger: { ...captureLog().logger, serializers } })
  t.teardown(async () => await app.close())
  const told: unknown[] = []
  await app.register(hourlySync, {
    name: stage.name, schema: stage.schema, pool: stage.pool(), enabled: false, sync: () => { throw new Error('of the sync') }, onError: error => { told.push(error) }
  })
  await app.ready()
  t.match(await app.hourlySync.get().runOnce(), { outcome: 'failed', reason: 'of the sync' })
  t.match(told, [{ message: 'of the sync' }])
})

t.test('with the database away, a serializer that throws ends neither process nor loop', async t => {
  const rejections = unhandled(t)
  const { lines, logger } = captureLog()
  const app = Fastify({ logger: { ...logger, serializers } })
  t.teardown(async () => await app.close())
  const stage = await setStage(t, cluster)
  const pool = stage.pool({ connectionString: `postgres://postgres:postgres@127.0.0.1:${await freePort()}/none` })
  await app.register(hourlySync, { name: stage.name, pool, enabled: true, startupDelay: 0, sync: () => {} })
  await app.ready()
  await until(() => lines.find(({ msg }) => msg === 'database unavailable'), 'it is said')
  await until(async () => (await app.hourlySync.get().status()).nextLook, 'the loop goes on')
  t.strictSame(rejections, [])
})

t.test('a lost idle connection is no uncaught exception, whatever the serializers of the host do', async t => {
  const { lines, logger } = captureLog()
  const app = Fastify({ logger: { ...logger, serializers } })
  t.teardown(async () => await app.close())
  const stage = await setStage(t, cluster)
  const pool = stage.pool()
  await app.register(hourlySync, { name: stage.name, pool, enabled: false, sync: () => {} })
  await app.ready()
  t.doesNotThrow(() => pool.emit('error', new Error('gone'), undefined as any))
  t.match(lines.find(({ msg }) => msg === 'an idle database connection was lost'), { unlogged: String })
})

/** Unhandled rejections while a test runs. */
function unhandled (t: Test): unknown[] {
  const reasons: unknown[] = []
  const listener = (reason: unknown): void => { reasons.push(reason) }
  process.on('unhandledRejection', listener)
  t.teardown(() => { process.removeListener('unhandledRejection', listener) })
  return reasons
}
