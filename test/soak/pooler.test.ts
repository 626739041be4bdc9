import fastifyPostgres from '@fastify/postgres'
import Fastify from 'fastify'
import t, { type Test } from 'tap'
import hourlySync from '../../index.js'
import type { HourlySyncOptions, SyncRun } from '../../lib/types.js'
import { captureLog, levels, type Stage } from '../helpers/host.js'
import { noPgBouncer, type Pooler, startPgBouncer } from '../helpers/pgbouncer.js'
import { startPostgres } from '../helpers/postgres.js'
import { serverLog, statementsOf } from '../helpers/server-log.js'
import { gate, until } from '../helpers/until.js'
import { setPooledStage } from '../helpers/ways.js'

/*
 * What holds on a direct connection holds through PgBouncer in transaction mode as well, with a direct connection for the lock.
 */

const MINUTE = 60_000
const cluster = await startPostgres(t, serverLog)
const poolers: Partial<Record<'transaction' | 'session', Pooler>> = noPgBouncer === false
  ? { transaction: await startPgBouncer(t, cluster, 'transaction', 5), session: await startPgBouncer(t, cluster, 'session', 20) }
  : {}
const skip = { skip: noPgBouncer }

async function setStage (t: Test, mode: 'transaction' | 'session' = 'transaction'): Promise<Stage> {
  const database = await cluster.database()
  await cluster.query('create table orders (id int primary key)', [], database)
  return await setPooledStage(t, cluster, poolers[mode]!, database)
}

const saved = async (stage: Stage): Promise<number[]> => (await stage.query('select id from orders order by id')).rows.map(({ id }) => id)

t.test('a pool of transactions without a direct connection is refused, with its cause and its cure', skip, async t => {
  const stage = await setStage(t)
  let ran = false
  const { app, sync, log } = await stage.host({ lock: undefined, sync: async () => { ran = true } })
  const message = /transaction pooler stands between.*give a direct connection in the option 'lock'/
  t.match(await app.triggerSync(), { started: false, reason: 'refused', message })
  t.match(await sync.runOnce(), { outcome: 'refused', reason: message })
  t.match(log.said('sync refused'), [{ level: levels.error, err: { code: 'FST_HOURLY_SYNC_POOLED', message } }], 'once')
  t.match(await sync.status(), { lastLook: { outcome: 'refused', reason: message } })
  t.equal(ran, false)
  t.equal((await stage.query("select from pg_locks where locktype = 'advisory'")).rowCount, 0, 'no lock is left')
})

t.test('a pool of sessions is no false alarm', skip, async t => {
  const stage = await setStage(t, 'session')
  const { sync, log } = await stage.host({ lock: undefined })
  t.match(await sync.runOnce(), { outcome: 'succeeded' })
  t.strictSame(log.lines.filter(({ level }) => level >= levels.warn), [])
})

t.test('a direct connection for the lock is no false alarm', skip, async t => {
  const stage = await setStage(t)
  const { sync, log } = await stage.host()
  t.match(await sync.runOnce(), { outcome: 'succeeded' })
  t.strictSame(log.lines.filter(({ level }) => level >= levels.warn), [])
})

t.test('what a run sends goes through the direct session that holds the lock', skip, async t => {
  const stage = await setStage(t)
  const seen: unknown[] = []
  const whoAmI = "select application_name as name, (select pid from pg_locks where locktype = 'advisory' and granted) = pg_backend_pid() as holds from pg_stat_activity where pid = pg_backend_pid()"
  const { sync, app } = await stage.host({
    sync: async run => {
      seen.push((await run.query(whoAmI)).rows[0])
      await run.transaction(async tx => { seen.push((await tx.query(whoAmI)).rows[0]) })
      seen.push((await run.client.query(whoAmI)).rows[0])
      seen.push((await (app as any).pg.query(whoAmI)).rows[0])
    }
  })
  t.match(await sync.runOnce(), { outcome: 'succeeded' })
  t.match(seen, [{ name: /^hourly-sync:/, holds: true }, { name: /^hourly-sync:/, holds: true }, { name: /^hourly-sync:/, holds: true }, { name: 'pooled', holds: false }])
})

t.test('a window starts an overlap before the end of the one of the last success', skip, async t => {
  const stage = await setStage(t)
  const { sync } = await stage.host({ overlap: '5m' })
  await stage.clock.at('2025-03-10T10:00:30Z')
  t.match(await sync.runOnce(), { run: { since: null, until: new Date('2025-03-10T10:00:30Z') } })
  await stage.clock.at('2025-03-10T11:00:10Z')
  t.match(await sync.runOnce(), { run: { since: new Date('2025-03-10T09:55:30Z'), until: new Date('2025-03-10T11:00:10Z') } })
})

t.test('three failures in a row move no watermark', skip, async t => {
  const stage = await setStage(t)
  let fails = false
  const { sync } = await stage.host({ retry: { limit: 5, delay: 0 }, sync: () => { if (fails) throw new Error('no') } })
  await stage.clock.at('2025-03-10T10:00:00Z')
  await sync.runOnce()
  fails = true
  await stage.clock.at('2025-03-10T11:00:00Z')
  for (let attempt = 1; attempt <= 3; attempt++) {
    t.match(await sync.runOnce(), { outcome: 'failed', run: { attempt, since: new Date('2025-03-10T09:50:00Z') } })
    await stage.clock.pass(1)
  }
  t.match(await stage.state(), { watermark: new Date('2025-03-10T10:00:00Z') })
  fails = false
  t.match(await sync.runOnce(), { outcome: 'succeeded', run: { since: new Date('2025-03-10T09:50:00Z') } })
})

t.test('of two triggers in two processes, or in one, exactly one starts', skip, async t => {
  const stage = await setStage(t)
  let on = gate()
  const sync = async (): Promise<void> => await on.passed
  const [one, other] = [await stage.host({ sync }), await stage.host({ sync })]
  for (const pair of [[one, other], [other, one], [one, one], [other, other]] as const) {
    const answers = await Promise.all(pair.map(async ({ app }) => await app.triggerSync()))
    t.equal(answers.filter(({ started }) => started).length, 1)
    t.match(answers.find(({ started }) => !started), { reason: 'running' })
    on.open()
    for (const answer of answers) if (answer.started) t.match(await answer.finished, { state: 'succeeded' })
    await until(async () => await stage.holders() === 0)
    on = gate()
  }
})

t.test('isSyncing() sees the run of another process, not one of another database, and not one that has ended', skip, async t => {
  const stage = await setStage(t)
  const elsewhere = await setStage(t)
  const on = gate()
  const one = await stage.host({ sync: async () => await on.passed })
  const other = await stage.host()
  const stranger = await elsewhere.host()
  t.equal(await other.app.isSyncing(), false)
  const answer = await one.app.triggerSync()
  await until(async () => await other.app.isSyncing())
  t.match(await other.sync.status(), { syncing: true, holder: { pid: process.pid, applicationName: /^hourly-sync:/ } })
  t.equal(await stranger.app.isSyncing(), false)
  on.open()
  t.match(answer.started && await answer.finished, { state: 'succeeded' })
  await until(async () => !await other.app.isSyncing())
})

t.test('a holder whose session is killed is replaced with the same window, and its success is none', skip, async t => {
  const stage = await setStage(t)
  const first = await stage.host()
  await stage.clock.at('2025-03-10T09:00:00Z')
  await first.sync.runOnce()
  await stage.clock.at('2025-03-10T10:00:00Z')
  const one = await stage.host({
    sync: async run => {
      await run.query('insert into orders values (1)')
      await stage.query("select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' and granted and database = (select oid from pg_database where datname = current_database())")
      await run.sleep(10 * MINUTE).catch(() => {})
      await run.query('insert into orders values (2)').catch(() => {})
    }
  })
  t.match(await one.sync.runOnce(), { outcome: 'lock-lost', run: { state: 'lock-lost' } })
  t.strictSame(await saved(stage), [1])
  t.match(await first.sync.runOnce(), { outcome: 'succeeded', run: { since: new Date('2025-03-10T08:50:00Z'), slot: new Date('2025-03-10T10:00:00Z') } })
  t.strictSame((await stage.history()).map(({ state }) => state), ['succeeded', 'lock-lost', 'succeeded'])
})

t.test('between looks nothing is sent, no client is out, and there is no direct session; a look that is not due opens none', skip, async t => {
  const stage = await setStage(t)
  const { sync, pool } = await stage.host()
  t.match(await sync.runOnce(), { outcome: 'succeeded' })
  const { rows: [{ database }] } = await stage.query('select current_database() as database')
  const ofHost = async (): Promise<string[]> => (await statementsOf(cluster)).filter(line => line.database === database && line.application !== 'test').map(({ text }) => text)
  const direct = async (): Promise<number> => (await stage.query("select from pg_stat_activity where datname = current_database() and (application_name = 'direct' or application_name like 'hourly-sync:%')")).rowCount!
  await until(async () => await direct() === 0, 'the direct session has ended')
  t.equal(pool.totalCount - pool.idleCount, 0)
  const before = (await ofHost()).length
  t.match(await sync.runOnce(), { outcome: 'not-due' })
  await new Promise(resolve => setTimeout(resolve, 300)) // so that what might be sent would have been
  const sent = (await ofHost()).slice(before).filter(text => !text.startsWith('SET ')) // the pooler's own
  t.equal(sent.length, 1, sent.join('\n'))
  t.equal(await direct(), 0)
  t.equal(pool.totalCount - pool.idleCount, 0)
})

for (const order of ['before', 'after'] as const) {
  t.test(`registered ${order} the pool, a close during a run resolves in time, and nothing is left`, skip, async t => {
    const stage = await setStage(t)
    const log = captureLog()
    const app = Fastify({ logger: log.logger })
    t.teardown(async () => await app.close())
    const options: HourlySyncOptions = {
      name: stage.name, schema: stage.schema, ...stage.options, enabled: false, closeTimeout: '20s', sync: async run => { await run.sleep(10 * MINUTE) }
    }
    if (order === 'before') await app.register(hourlySync, options)
    await app.register(fastifyPostgres, stage.poolConfig)
    if (order === 'after') await app.register(hourlySync, options)
    await app.ready()
    const answer = await app.triggerSync()
    const began = performance.now()
    await app.close()
    const took = performance.now() - began
    t.ok(took < 10_000, `it took ${took} ms`)
    t.match(answer.started && await answer.finished, { state: 'interrupted' })
    await until(async () => await stage.holders() === 0)
    t.strictSame((await stage.history()).map(({ state }) => state), ['interrupted'])
  })
}

t.test('begin without commit fails the run, and nothing of it is stored', skip, async t => {
  const stage = await setStage(t)
  const { sync } = await stage.host({
    sync: async run => {
      await run.query('begin')
      await run.query('insert into orders values (1)')
    }
  })
  t.match(await sync.runOnce(), { outcome: 'failed', run: { error: { code: 'FST_HOURLY_SYNC_OPEN_TRANSACTION' } } })
  t.strictSame(await saved(stage), [])
})

for (const statement of ['discard all', 'select pg_advisory_unlock_all()']) {
  t.test(`after "${statement}" the lock is lost, and no success recorded`, skip, async t => {
    const stage = await setStage(t)
    const { sync } = await stage.host({ sync: async run => { await run.query(statement) } })
    t.match(await sync.runOnce(), { outcome: 'lock-lost' })
    t.strictSame((await stage.history()).map(({ state }) => state), ['lock-lost'])
  })
}

t.test('a nested call is refused at once, and twenty queries at once all land', skip, async t => {
  const stage = await setStage(t)
  let nested: any
  const insert = async (run: Pick<SyncRun, 'query'>, id: number): Promise<unknown> => await run.query('insert into orders values ($1)', [id])
  const { sync } = await stage.host({
    sync: async run => {
      await Promise.all(Array.from({ length: 20 }, async (_, id) => await insert(run, id)))
      await run.transaction(async tx => {
        nested = await insert(run, 100).catch(error => error)
        await insert(tx, 20)
      })
    }
  })
  t.match(await sync.runOnce(), { outcome: 'succeeded' })
  t.match(nested, { code: 'FST_HOURLY_SYNC_NESTED' })
  t.strictSame(await saved(stage), Array.from({ length: 21 }, (_, id) => id))
})
