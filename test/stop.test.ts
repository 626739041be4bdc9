import fastifyPostgres from '@fastify/postgres'
import Fastify from 'fastify'
import type pg from 'pg'
import t, { type Test } from 'tap'
import hourlySync from '../index.js'
import type { HourlySyncOptions, SyncRun } from '../lib/types.js'
import { captureLog, type Host, levels, setStage, type Stage } from './helpers/host.js'
import { createManualClock } from './helpers/manual-clock.js'
import { startPostgres } from './helpers/postgres.js'
import { startProxy } from './helpers/proxy.js'
import { gate, until } from './helpers/until.js'

const MINUTE = 60_000
const cluster = await startPostgres(t)
await cluster.query('create table orders (id int primary key)')
t.beforeEach(async () => { await cluster.query('truncate orders') })
const saved = async (): Promise<number[]> => (await cluster.query('select id from orders order by id')).rows.map(({ id }) => id)

/** Milliseconds that something takes. */
async function timed (work: Promise<unknown>): Promise<number> {
  const began = performance.now()
  await work
  return performance.now() - began
}

// timeout

t.test('a run that takes too long is told to stop, and has timed out', async t => {
  const stage = await setStage(t, cluster)
  let reason: any
  const { sync, log } = await stage.host({
    timeout: 100,
    sync: async run => {
      run.signal.addEventListener('abort', () => { reason = run.signal.reason })
      await run.sleep(10 * MINUTE)
    }
  })
  t.match(await sync.runOnce(), { outcome: 'timed-out', run: { state: 'timed-out', error: { code: 'FST_HOURLY_SYNC_TIMEOUT' } } })
  t.match(reason, { code: 'FST_HOURLY_SYNC_TIMEOUT' })
  t.match(await stage.history(), [{ state: 'timed-out' }])
  t.match(log.said('sync timed-out'), [{ level: levels.error }])
  t.equal(await stage.holders(), 0)
})

t.test('a run that returns as if nothing were the matter, after its time was up, has timed out', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({
    timeout: 100,
    sync: async run => {
      await run.sleep(10 * MINUTE).catch(() => {})
      return { cursor: 1 }
    }
  })
  t.match(await sync.runOnce(), { outcome: 'timed-out' })
  t.match(await stage.state(), { watermark: null, cursor: null, last_slot: null })
})

t.test('what a run writes after its time was up lands', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({
    timeout: 100,
    sync: async run => {
      await run.sleep(10 * MINUTE).catch(() => {})
      await run.transaction(async tx => { await tx.query('insert into orders values (1)') })
      await run.query('insert into orders values (2)')
    }
  })
  t.match(await sync.runOnce(), { outcome: 'timed-out' })
  t.strictSame(await saved(), [1, 2])
})

t.test('a run that timed out was an attempt', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({ timeout: 100, sync: async run => { await run.sleep(10 * MINUTE) } })
  await sync.runOnce()
  t.match(await sync.runOnce(), { outcome: 'not-due', reason: 'waiting' })
  await stage.clock.pass(10 * MINUTE)
  t.match(await sync.runOnce(), { outcome: 'timed-out', run: { attempt: 2, trigger: 'retry' } })
})

t.test('a wall clock that is set ahead neither times a run out nor wakes it', async t => {
  const stage = await setStage(t, cluster)
  const clock = createManualClock(Date.now())
  let sleeping = 0
  const { sync } = stage.bare({
    heartbeat: '1h',
    timeout: '10m',
    sync: async run => {
      sleeping++
      await run.sleep(2 * MINUTE).finally(() => { sleeping-- })
    }
  }, clock)
  const running = sync.runOnce()
  await until(() => sleeping)
  clock.jump(15 * MINUTE)
  await clock.pass(2 * MINUTE - 1)
  t.equal(sleeping, 1)
  t.match(await sync.status(), { syncing: true, aborted: null })
  await clock.pass(1)
  t.match(await running, { outcome: 'succeeded' })
})

t.test('a wall clock that is set ahead abandons no deaf run', async t => {
  const stage = await setStage(t, cluster)
  const clock = createManualClock(Date.now())
  const on = gate()
  let ran = false
  const { sync, log } = stage.bare({
    heartbeat: '1h',
    timeout: '10m',
    abandonAfter: '5m',
    sync: async () => {
      ran = true
      await on.passed
    }
  }, clock)
  const running = sync.runOnce()
  await until(() => ran)
  await clock.pass(10 * MINUTE)
  clock.jump(15 * MINUTE)
  await clock.pass(5 * MINUTE - 1)
  t.match(await sync.status(), { syncing: true, aborted: 'timed-out' })
  t.notOk(log.lines.some(({ msg }) => msg.startsWith('sync ignores its timeout')))
  await clock.pass(1)
  t.match(await running, { outcome: 'timed-out' })
  on.open()
})

t.test('a deaf run keeps its lock after its time was up, and status says so', async t => {
  const stage = await setStage(t, cluster)
  const on = gate()
  const one = await stage.host({ timeout: 100, sync: async () => await on.passed })
  const other = await stage.host()
  const answer = await one.app.triggerSync()
  await until(async () => (await one.sync.status()).aborted === 'timed-out')
  t.match(await one.sync.status(), { syncing: true, holder: { pid: process.pid } })
  t.match(await one.app.triggerSync(), { started: false, reason: 'running' })
  t.match(await other.app.triggerSync(), { started: false, reason: 'running' })
  on.open()
  t.match(answer.started && await answer.finished, { state: 'timed-out' })
  const again = await other.app.triggerSync()
  t.match(again.started && await again.finished, { state: 'succeeded' })
})

t.test('a deaf run is abandoned: recorded, without its session, and another process may run', async t => {
  const stage = await setStage(t, cluster)
  const on = gate()
  let kept: SyncRun | undefined
  const one = await stage.host({
    timeout: 100,
    abandonAfter: 100,
    sync: async run => {
      kept ??= run
      await on.passed
    }
  })
  const other = await stage.host()
  t.match(await one.sync.runOnce({ force: true }), { outcome: 'timed-out' })
  await until(async () => await stage.holders() === 0, 'the lock is free')
  await t.rejects(kept!.query('insert into orders values (1)'), { code: 'FST_HOURLY_SYNC_RUN_ENDED' })
  t.strictSame(await saved(), [])
  t.match(one.log.lines.filter(({ msg }) => msg.startsWith('sync ignores its timeout')), [{ level: levels.error }])
  t.match(await one.app.triggerSync(), { started: false, reason: 'running', message: 'the function of the run before has not settled in this process' }, 'this process takes no run before it settles')
  t.match(await other.sync.runOnce({ force: true }), { outcome: 'succeeded' })
  on.open()
  const answer = await until(async () => {
    const answer = await one.app.triggerSync()
    return answer.started && answer
  })
  t.match(await answer.finished, { state: 'succeeded' })
})

t.test('a deaf run inside a statement is abandoned, and the statement ended', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({ timeout: 100, abandonAfter: 100, sync: async run => { await run.query('insert into orders select 1 from pg_sleep(600)') } })
  t.match(await sync.runOnce(), { outcome: 'timed-out' })
  t.match(await stage.history(), [{ state: 'timed-out' }])
  await until(async () => await stage.holders() === 0) // the server looks at the connection every second
  t.strictSame(await saved(), [])
})

t.test('a deaf run between two statements of a transaction is abandoned, and the transaction rolled back', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({
    timeout: 100,
    abandonAfter: 100,
    sync: async run => await run.transaction(async tx => {
      await tx.query('insert into orders values (1)')
      await new Promise(() => {})
    })
  })
  t.match(await sync.runOnce(), { outcome: 'timed-out' })
  t.strictSame(await saved(), [])
  t.match(await stage.history(), [{ state: 'timed-out' }], 'recorded on its own session')
  t.equal(await stage.holders(), 0)
})

t.test('a transaction of a run that was abandoned sends nothing more', async t => {
  const stage = await setStage(t, cluster)
  const on = gate()
  let late: Promise<unknown> | undefined
  const { sync } = await stage.host({
    timeout: 100,
    abandonAfter: 100,
    sync: async run => await run.transaction(async tx => {
      await on.passed
      late = tx.query('insert into orders values (1)')
      await late
    })
  })
  t.match(await sync.runOnce(), { outcome: 'timed-out' })
  on.open()
  await t.rejects(until(() => late).then(async () => await late), { code: 'FST_HOURLY_SYNC_RUN_ENDED' })
  t.strictSame(await saved(), [])
})

t.test('a run that timed out and is then told to close has timed out', async t => {
  const stage = await setStage(t, cluster)
  const on = gate()
  const { app, sync } = await stage.host({ timeout: 100, sync: async () => await on.passed })
  const answer = await app.triggerSync()
  await until(async () => (await sync.status()).aborted === 'timed-out')
  const closed = app.close()
  await until(async () => (await sync.status().catch(() => undefined))?.disabledBecause === 'closing')
  on.open()
  await closed
  t.match(answer.started && await answer.finished, { state: 'timed-out' })
})

t.test('a run that settles in time is not bothered by its timeout', async t => {
  const stage = await setStage(t, cluster)
  let run: SyncRun | undefined
  const { sync } = await stage.host({ timeout: 150, sync: async given => { run = given } })
  t.match(await sync.runOnce(), { outcome: 'succeeded' })
  await new Promise(resolve => setTimeout(resolve, 300)) // past the timeout, for nothing to happen
  t.equal(run!.signal.aborted, false)
})

// close

/** An app with the plugin before or after the pool. */
async function hostIn (order: 'before' | 'after', stage: Stage, options: Partial<HourlySyncOptions>, pool: pg.PoolConfig = {}): Promise<{ app: any, log: ReturnType<typeof captureLog> }> {
  const log = captureLog()
  const app = Fastify({ logger: log.logger })
  const all: HourlySyncOptions = { name: stage.name, schema: stage.schema, enabled: false, sync: async () => {}, ...options }
  if (order === 'before') await app.register(hourlySync, all)
  await app.register(fastifyPostgres, { ...stage.poolConfig, ...pool })
  if (order === 'after') await app.register(hourlySync, all)
  await app.ready()
  return { app, log }
}

for (const order of ['before', 'after'] as const) {
  t.test(`registered ${order} the pool, a close during a run that listens is quick, and the run interrupted`, async t => {
    const stage = await setStage(t, cluster)
    let reason: any
    const { app } = await hostIn(order, stage, {
      closeTimeout: '20s',
      sync: async run => {
        await run.sleep(10 * MINUTE).catch(error => { reason = error })
        return { cursor: 1 }
      }
    })
    const answer = await app.triggerSync()
    const took = await timed(app.close())
    t.ok(took < 10_000, `it took ${took} ms`)
    t.match(reason, { code: 'FST_HOURLY_SYNC_CLOSING' })
    t.match(await answer.finished, { state: 'interrupted', error: { code: 'FST_HOURLY_SYNC_CLOSING' } })
    t.match(await stage.history(), [{ state: 'interrupted' }])
    t.match(await stage.state(), { started: null, watermark: null, last_slot: null, cursor: null, attempts: 0 })
    t.equal(await stage.holders(), 0)
  })

  t.test(`registered ${order} the pool, a close during a deaf run takes closeTimeout, and the run is interrupted`, async t => {
    const stage = await setStage(t, cluster)
    const { app } = await hostIn(order, stage, { closeTimeout: '3s', sync: async () => await new Promise(() => {}) })
    const answer = await app.triggerSync()
    const took = await timed(app.close())
    t.ok(took > 1_500 && took < 8_000, `it took ${took} ms`) // the limit itself is three seconds; a busy machine adds to it
    t.match(await answer.finished, { state: 'interrupted' })
    t.match(await stage.history(), [{ state: 'interrupted' }])
    await until(async () => await stage.holders() === 0, 'the lock is free')
  })

  t.test(`registered ${order} the pool, a close during a statement ends it`, async t => {
    const stage = await setStage(t, cluster)
    const { app } = await hostIn(order, stage, { closeTimeout: '2s', sync: async run => { await run.query('insert into orders select 1 from pg_sleep(600)') } })
    const answer = await app.triggerSync()
    const took = await timed(app.close())
    t.ok(took < 8_000, `it took ${took} ms`)
    t.match(await answer.finished, { state: 'interrupted' })
    await until(async () => await stage.holders() === 0)
    t.strictSame(await saved(), [])
    t.notMatch(await stage.history(), [{ state: 'succeeded' }])
  })

  t.test(`registered ${order} the pool, what a run writes after it was told to stop lands`, async t => {
    const stage = await setStage(t, cluster)
    const { app } = await hostIn(order, stage, {
      closeTimeout: '20s',
      sync: async run => {
        await run.sleep(10 * MINUTE).catch(() => {})
        await run.query('insert into orders values (1)')
      }
    })
    const answer = await app.triggerSync()
    await app.close()
    t.match(await answer.finished, { state: 'interrupted' })
    t.strictSame(await saved(), [1])
  })

  t.test(`registered ${order} the pool, a close with nothing under way is quick`, async t => {
    const stage = await setStage(t, cluster)
    const { app } = await hostIn(order, stage, { enabled: true, startupDelay: 0, closeTimeout: '60s' })
    await until(async () => (await app.hourlySync.get().runs().catch(() => [])).length > 0)
    const took = await timed(app.close())
    t.ok(took < 10_000, `it took ${took} ms`)
    t.equal(await stage.holders(), 0)
  })

  for (const question of ['isSyncing', 'status', 'runs'] as const) {
    t.test(`registered ${order} the pool, a close does not wait for the answer of a silent server to ${question}()`, async t => {
      const stage = await setStage(t, cluster)
      const proxy = await startProxy(t, cluster.port)
      const { app } = await hostIn(order, stage, { closeTimeout: '500ms' }, { connectionString: cluster.url().replace(`:${cluster.port}/`, `:${proxy.port}/`) })
      const sync = app.hourlySync.get()
      await sync.runOnce()
      proxy.silence()
      const asked = sync[question]().then((status: any) => status.unavailable, (error: any) => error.message)
      await until(() => app.pg.pool.totalCount > app.pg.pool.idleCount)
      const took = await timed(app.close())
      t.ok(took < 5_000, `it took ${took} ms`) // ten seconds are the limit of a question
      t.match(await asked, 'the server is closing')
    })
  }
}

t.test('a question of one app is not called off when another on the same pool closes', async t => {
  const stage = await setStage(t, cluster)
  const pool = stage.pool({ max: 10 })
  const [one, other] = [await stage.host({ pool }), await stage.host({ pool })]
  await one.sync.runOnce()
  const client = await pool.connect()
  await client.query(`begin; lock table ${stage.schema}.run in access exclusive mode`)
  const mine = t.rejects(one.sync.runs(), { code: 'FST_HOURLY_SYNC_CLOSING' })
  const theirs = other.sync.runs()
  await until(async () => (await stage.query("select from pg_stat_activity where wait_event_type = 'Lock' and application_name = $1", [stage.poolConfig.application_name])).rowCount === 2)
  await one.app.close()
  await mine
  await t.rejects(one.sync.runs(), { code: 'FST_HOURLY_SYNC_CLOSING' }, 'nothing more is asked')
  await client.query('commit')
  client.release()
  t.match(await theirs, [{ state: 'succeeded' }])
})

t.test('what is asked while an app closes is still answered', async t => {
  const stage = await setStage(t, cluster)
  const app = Fastify()
  await app.register(fastifyPostgres, stage.poolConfig)
  await app.register(hourlySync, { name: stage.name, schema: stage.schema, enabled: false, sync: async () => {} })
  let asked: any
  app.addHook('preClose', async () => { asked = await app.hourlySync.get().runs() }) // after ours, as a request in flight is
  await app.ready()
  await app.hourlySync.get().runOnce()
  await app.close()
  t.match(asked, [{ state: 'succeeded' }])
})

t.test('a run that was interrupted was no attempt, and the slot is due at once', async t => {
  const stage = await setStage(t, cluster)
  const one = await stage.host({ sync: async run => { await run.sleep(10 * MINUTE) } })
  const run = one.sync.runOnce()
  await until(async () => await one.app.isSyncing())
  await one.app.close()
  t.match(await run, { outcome: 'interrupted', run: { attempt: 1 } })
  const other = await stage.host()
  t.match(await other.sync.runOnce(), { outcome: 'succeeded', run: { attempt: 1, trigger: 'schedule' } })
})

t.test('an interruption is logged, but not handed to the host', async t => {
  const stage = await setStage(t, cluster)
  let told = 0
  const { app, log } = await stage.host({ sync: async run => { await run.sleep(10 * MINUTE) }, onError: () => { told++ } })
  await app.triggerSync()
  await app.close()
  t.match(log.said('sync interrupted'), [{ level: levels.warn }])
  t.equal(told, 0)
})

t.test('a run that failed before it was told to stop has failed', async t => {
  const stage = await setStage(t, cluster)
  const { app } = await stage.host({ sync: () => { throw new Error('no') } })
  const answer = await app.triggerSync()
  t.match(answer.started && await answer.finished, { state: 'failed' })
  await app.close()
})

t.test('while an app closes nothing starts in it', async t => {
  const stage = await setStage(t, cluster)
  const on = gate()
  const { app, sync } = await stage.host({ sync: async () => await on.passed })
  await app.triggerSync()
  const closed = app.close()
  await until(async () => (await sync.status().catch(() => undefined))?.disabledBecause === 'closing')
  t.match(await app.triggerSync(), { started: false, reason: 'closing' })
  t.match(await sync.runOnce(), { outcome: 'closing', run: null })
  on.open()
  await closed
})

t.test('a trigger that waits for a connection is told that the app closes', async t => {
  const stage = await setStage(t, cluster)
  const { app, pool } = await stage.host({}, { max: 2 })
  const taken = [await pool.connect(), await pool.connect()]
  const answer = app.triggerSync()
  await until(() => pool.waitingCount === 1)
  const closed = app.close()
  t.match(await answer, { started: false, reason: 'closing' })
  for (const client of taken) client.release()
  await closed
})

/** A host whose run waits, under the lock, for the row of its sync. */
async function startBeginning (t: Test, options: Partial<HourlySyncOptions> = {}): Promise<{ host: Host, outcome: Promise<unknown>, stage: Stage, letGo: () => Promise<void> }> {
  const stage = await setStage(t, cluster)
  const host = await stage.host(options)
  await host.sync.runOnce({ force: true })
  const other = await stage.pool({ max: 1 }).connect()
  await other.query(`begin; select from ${stage.schema}.sync for update`)
  const outcome = host.sync.runOnce({ force: true })
  await until(async () => (await stage.query("select from pg_stat_activity where wait_event_type = 'Lock' and application_name like 'hourly-sync:' || $1 || '%'", [stage.name.slice(0, 20)])).rowCount === 1)
  return {
    host,
    outcome,
    stage,
    async letGo () {
      await other.query('rollback')
      other.release()
    }
  }
}

t.test('a run that begins as its app closes is interrupted', async t => {
  const { host, outcome, letGo } = await startBeginning(t, { sync: async run => { if (run.signal.aborted) throw run.signal.reason } })
  const closed = host.app.close()
  await until(async () => (await host.sync.status().catch(() => undefined))?.disabledBecause === 'closing')
  await letGo()
  t.match(await outcome, { outcome: 'interrupted' })
  await closed
})

t.test('a run that cannot begin holds no close up for longer than closeTimeout', async t => {
  const { host, outcome, stage, letGo } = await startBeginning(t, { closeTimeout: 200 })
  await host.app.close()
  t.match(await outcome, { outcome: 'closing' })
  await letGo()
  await until(async () => await stage.holders() === 0, 'the lock is free')
})

t.test('closing twice closes once', async t => {
  const stage = await setStage(t, cluster)
  const { app } = await stage.host()
  await Promise.all([app.close(), app.close()])
  await app.close()
  t.pass('it has')
})
