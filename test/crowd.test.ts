import Fastify from 'fastify'
import fastifyPostgres from '@fastify/postgres'
import pg from 'pg'
import t from 'tap'
import hourlySync from '../index.js'
import { captureLog, setStage, type Stage } from './helpers/host.js'
import { startCuttingProxy } from './helpers/cutting-proxy.js'
import { fastClock } from './helpers/hand-clock.js'
import { startPostgres } from './helpers/postgres.js'
import { gate, until } from './helpers/until.js'
import { POOLED, ways } from './helpers/ways.js'

const cluster = await startPostgres(t)
const { both, pooled } = await ways(t, cluster)

/** Takes every client of a pool, as requests of the host do, until it gives them back. */
async function exhaust (pool: pg.Pool): Promise<() => void> {
  const clients = await Promise.all(Array.from({ length: pool.options.max }, async () => await pool.connect()))
  return () => { for (const client of clients) client.release() }
}

/** Takes every session that the pooler has for a database. */
async function exhaustPooler ({ pool: make }: Stage): Promise<() => void> {
  const pool = make({ max: POOLED })
  const clients = await Promise.all(Array.from({ length: POOLED }, async () => await pool.connect()))
  await Promise.all(clients.map(async client => await client.query('begin')))
  return () => { for (const client of clients) client.release(true) }
}

t.test('a trigger that finds no connection in its time answers unavailable', async t => {
  const stage = await setStage(t, cluster)
  const { sync, pool } = stage.bare({ enabled: false }, fastClock(20), { max: 3 })
  const giveBack = await exhaust(pool)
  t.match(await sync.trigger(), { started: false, reason: 'unavailable', message: /getting a connection was not done within 10000 ms/ })
  t.match(await sync.runOnce(), { outcome: 'unavailable', run: null })
  giveBack()
  const answer = await sync.trigger()
  t.match(answer.started && await answer.finished, { state: 'succeeded' })
  await until(() => pool.waitingCount === 0 && pool.idleCount === pool.totalCount) // what came late went back
})

for (const what of ['pool', 'pooler']) {
  pooled(`a look at an exhausted ${what} is unavailable in its time, and a trigger needs none of it`, async (t, set) => {
    const stage = await set()
    const { sync, pool } = stage.bare({ enabled: false }, fastClock(20), { max: 3 })
    const giveBack = await (what === 'pool' ? exhaust(pool) : exhaustPooler(stage))
    t.match(await sync.runOnce(), { outcome: 'unavailable', reason: /was not done within 10000 ms/ })
    const answer = await sync.trigger()
    t.match(answer.started && await answer.finished, { state: 'succeeded' })
    giveBack()
    await until(() => pool.waitingCount === 0 && pool.idleCount === pool.totalCount)
    t.match(await sync.runOnce(), { outcome: 'not-due' })
  })
}

pooled('a trigger whose direct connection is not made in its time answers unavailable', async (t, set) => {
  const stage = await set()
  const proxy = await startCuttingProxy(t, cluster.port)
  proxy.hold()
  const { sync } = stage.bare({ enabled: false, lock: { host: '127.0.0.1', port: proxy.port, user: 'postgres' } }, fastClock(20))
  t.match(await sync.trigger(), { started: false, reason: 'unavailable', message: /getting a connection was not done within 10000 ms/ })
})

both('a loop whose pool was exhausted goes on when it no longer is', async (t, set) => {
  const stage = await set()
  const { sync, pool, log } = stage.bare({}, fastClock(20), { max: 3 })
  const giveBack = await exhaust(pool)
  sync.start()
  await until(() => log.said('database unavailable')[0])
  giveBack()
  await until(() => log.said('sync succeeded')[0])
  t.equal(log.said('database unavailable').length, 1, 'it has said so once')
  t.match(await sync.status(), { lastSuccess: { state: 'succeeded' } })
})

t.test('of two triggers that wait for a connection one starts, and tells the other', async t => {
  const stage = await setStage(t, cluster)
  const on = gate()
  const { sync, pool } = await stage.host({ sync: async () => await on.passed }, { max: 2 })
  const giveBack = await exhaust(pool)
  const answers = [sync.runOnce({ force: true }), sync.runOnce({ force: true })]
  await until(() => pool.waitingCount > 0)
  giveBack()
  t.match(await Promise.race(answers), { outcome: 'running' })
  on.open()
  t.match((await Promise.all(answers)).map(({ outcome }) => outcome).sort(), ['running', 'succeeded'])
})

t.test('of two triggers that have a connection each one starts, and the other gives its own back', async t => {
  const stage = await setStage(t, cluster)
  const on = gate()
  const { sync, pool } = await stage.host({ sync: async () => await on.passed })
  await Promise.all([1, 2, 3].map(async () => await pool.query('select')))
  const answers = [sync.runOnce({ force: true }), sync.runOnce({ force: true })]
  t.match(await Promise.race(answers), { outcome: 'running' })
  on.open()
  t.match((await Promise.all(answers)).map(({ outcome }) => outcome).sort(), ['running', 'succeeded'])
  t.equal(pool.idleCount, pool.totalCount)
})

t.test('a status that finds no connection in its time says that it is unknown', async t => {
  const stage = await setStage(t, cluster)
  const { sync, pool } = stage.bare({ enabled: false }, fastClock(20), { max: 1 })
  const giveBack = await exhaust(pool)
  t.match(await sync.status(), { unavailable: /was not done within 10000 ms/, syncing: false, due: null })
  giveBack()
})

both('a close is not held up by a pool that is exhausted', async (t, set) => {
  const stage = await set()
  const { sync, pool } = stage.bare({ closeTimeout: '60s' }, undefined, { max: 2 })
  const giveBack = await exhaust(pool)
  sync.start()
  const answer = sync.runOnce()
  await until(() => pool.waitingCount === 1)
  const began = performance.now()
  await sync.close()
  const took = performance.now() - began
  t.ok(took < 8_000, `it took ${took} ms`) // a claim would wait for ten seconds, the close for sixty
  t.match(await answer, { outcome: 'closing' })
  giveBack()
  await until(() => pool.waitingCount === 0 && pool.idleCount === pool.totalCount)
})

both('twelve syncs on a pool of ten leave room for requests, and all run', async (t, set, isPooled) => {
  const stage = await set()
  const log = captureLog()
  const app = Fastify({ logger: log.logger })
  t.teardown(async () => await app.close())
  await app.register(fastifyPostgres, { ...stage.poolConfig, max: 10 })
  const on = gate()
  const started: string[] = []
  const ended: string[] = []
  const names = Array.from({ length: 12 }, (_, index) => `twelve ${index}`)
  for (const name of names) {
    await app.register(hourlySync, {
      name,
      schema: stage.schema,
      ...stage.options,
      enabled: true,
      startupDelay: 0,
      sync: async run => {
        started.push(run.name)
        await on.passed
        ended.push(run.name)
      }
    })
  }
  app.get('/orders', async () => (await (app as any).pg.query('select 7 as orders')).rows)
  await app.ready()
  const atWork = isPooled ? 12 : 5 // half of the pool; with connections of their own for the locks they hold none of it
  await until(() => started.length >= atWork)
  const answers = await Promise.all(Array.from({ length: 20 }, async () => (await app.inject('/orders')).json()))
  t.strictSame(answers, Array.from({ length: 20 }, () => [{ orders: 7 }]))
  t.equal(started.length, atWork, 'no more are at work')
  on.open()
  await until(() => ended.length === 12)
  t.strictSame([...ended].sort(), [...names].sort())
  t.equal(log.said('database unavailable').length, 0, 'who had to wait did not complain')
})

t.test('a trigger whose turn among the syncs of a pool does not come answers unavailable', async t => {
  const stage = await setStage(t, cluster)
  const clock = fastClock(20)
  const on = gate()
  const { gate: shared, sync: one } = stage.bare({ enabled: false, heartbeat: '1h', timeout: '10h', sync: async () => await on.passed }, clock, { max: 3 })
  const { sync: other } = stage.bare({ enabled: false, name: 'the other' }, clock, {}, shared)
  t.match(await one.trigger(), { started: true })
  t.match(await one.trigger(), { started: false, reason: 'running' }, 'for its own run it need not wait')
  t.match(await other.trigger(), { started: false, reason: 'unavailable', message: /waiting for the other syncs/ })
  on.open()
  await until(async () => (await other.trigger()).started)
})

t.test('on a pool of one a run is made all the same', async t => {
  const stage = await setStage(t, cluster)
  const { sync, log } = await stage.host({ sync: async run => { await run.query('select 1') } }, { max: 1 })
  t.match(await sync.runOnce(), { outcome: 'succeeded' })
  t.equal(log.lines.filter(({ msg }) => msg.startsWith('the pool has one client')).length, 1)
})
