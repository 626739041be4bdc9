import t from 'tap'
import { migrationSql } from '../index.js'
import type { RunOnceResult } from '../lib/types.js'
import { fastClock } from './helpers/hand-clock.js'
import { levels, type Log, setStage } from './helpers/host.js'
import { startPostgres } from './helpers/postgres.js'
import { gate, until } from './helpers/until.js'
import { ways } from './helpers/ways.js'

const MINUTE = 60_000
const cluster = await startPostgres(t)
const { both, pooled } = await ways(t, cluster)
const troubles = ({ lines }: Log): any[] => lines.filter(({ msg }) => msg === 'sync refused' || msg === 'database unavailable')

both('a schema that is dropped under way ends the run without a success, and is made again', async (t, set) => {
  const stage = await set()
  let drops = true
  const { app, sync, log } = await stage.host({ sync: async () => { if (drops) await stage.query(`drop schema ${stage.schema} cascade`) } })
  t.match(await sync.runOnce(), { outcome: 'lock-lost', run: { state: 'lock-lost', error: { message: /does not exist/ } } })
  t.match(log.said('the end of the run could not be recorded on its session'), [{ level: levels.warn, err: { code: '42P01' } }])
  t.match(await sync.status(), { unavailable: /does not exist/, due: null, lastRun: null })
  t.equal((await app.inject('/')).statusCode, 404, 'the server answers')
  drops = false
  t.match(await sync.runOnce(), { outcome: 'refused', reason: /does not exist/ })
  t.match(await sync.runOnce(), { outcome: 'succeeded' })
  t.match(await sync.status(), { unavailable: null, lastRun: { state: 'succeeded' } })
})

for (const table of ['sync', 'run']) {
  both(`a loop whose table "${table}" is dropped says so once, and goes on when it is back`, async (t, set) => {
    const stage = await set()
    const loop = stage.looping()
    await loop.rests()
    await stage.query(`drop table ${stage.schema}.${table}`)
    for (let look = 0; look < 5; look++) await loop.look()
    t.match(troubles(loop.log), [{ level: levels.error, msg: 'sync refused', outcome: 'refused', err: { code: 'FST_HOURLY_SYNC_SCHEMA', message: /does not exist/ } }])
    t.match(await loop.sync.status(), { unavailable: /does not exist/, lastLook: { outcome: 'refused', reason: /does not exist/ } })
    t.equal(await loop.sync.isSyncing(), false, 'the lock is asked for, not the table')
    await stage.query(`drop schema ${stage.schema} cascade`)
    await stage.query(migrationSql(stage.schema))
    await loop.look()
    t.equal(loop.log.said('sync can work again').length, 1)
    t.match(await loop.sync.status(), { unavailable: null, lastLook: { outcome: 'succeeded' } })
  })
}

both('a database that is read-only refuses the sync once, and serves it when it is no longer', async (t, set) => {
  const database = await cluster.database()
  const stage = await set(database)
  const first = await stage.host()
  await first.sync.runOnce()
  await stage.clock.at('2025-03-10T11:00:00Z')
  await cluster.query(`alter database ${database} set default_transaction_read_only to on`)
  const loop = stage.looping()
  await loop.rests()
  await stage.query('set default_transaction_read_only to off')
  for (let look = 0; look < 3; look++) {
    await loop.hands.advance(await loop.rests())
    await loop.rests()
  }
  t.match(troubles(loop.log), [{ level: levels.error, msg: 'sync refused', err: { code: 'FST_HOURLY_SYNC_READ_ONLY' } }])
  t.match(await loop.sync.status(), { lastLook: { outcome: 'refused' }, unavailable: null })
  t.equal(await stage.holders(), 0)
  await cluster.query(`alter database ${database} reset default_transaction_read_only`)
  await cluster.query(`select pg_terminate_backend(pid) from pg_stat_activity where application_name = '${stage.poolConfig.application_name}'`)
  await until(async () => {
    await loop.hands.advance(await loop.rests())
    return (await loop.sync.status()).lastSuccess?.slot?.getTime() === Date.parse('2025-03-10T11:00:00Z')
  })
  t.pass('it is served')
})

t.test('a role that may not write refuses the sync, and serves it when it may', async t => {
  const stage = await setStage(t, cluster)
  await stage.query(`create role reader login password 'postgres'; grant usage on schema ${stage.schema} to reader; grant select on all tables in schema ${stage.schema} to reader;
    grant usage on schema ${stage.clock.searchPath.split(',')[0]} to reader; grant select on ${stage.clock.searchPath.split(',')[0]}.clock to reader`)
  const { app, sync } = await stage.host({}, { connectionString: cluster.url('postgres', 'reader') })
  t.match(await app.triggerSync(), { started: false, reason: 'refused', message: /rights/ })
  await stage.query(`grant insert, update, delete on all tables in schema ${stage.schema} to reader`)
  t.match(await sync.runOnce(), { outcome: 'succeeded' })
})

t.test('a database that is stopped and started again', async t => {
  const stage = await setStage(t, cluster)
  await stage.clock.at('2025-03-10T10:00:00Z')
  const loop = stage.looping()
  await loop.rests()
  const { app, log } = await stage.host({ enabled: true, startupDelay: '1h' })
  await cluster.stop()
  for (let look = 0; look < 6; look++) {
    await loop.hands.advance(await loop.rests())
    await loop.rests()
  }
  t.ok(troubles(loop.log).length >= 1 && troubles(loop.log).length <= 2, 'is said once for each thing that was seen of it')
  t.ok(troubles(loop.log).every(({ level, msg }) => level === levels.warn && msg === 'database unavailable'))
  t.match(await loop.sync.status(), { unavailable: String, lastLook: { outcome: 'unavailable', reason: String }, nextLook: Date })
  t.match(await app.triggerSync(), { started: false, reason: 'unavailable' })
  t.match(await app.hourlySync.get().runOnce(), { outcome: 'unavailable', run: null })
  t.equal((await app.inject('/')).statusCode, 404, 'does not keep the server from answering')
  t.equal(log.lines.filter(({ level }) => level >= levels.error).length, 0)
  await cluster.start()
  await stage.clock.at('2025-03-10T11:00:00Z')
  t.ok(await loop.rests() <= 30_000, 'is looked at every half minute at least')
  await until(async () => { // it may say for a moment that it is starting
    await loop.hands.advance(await loop.rests())
    await loop.rests()
    return (await stage.history()).length === 2
  })
  t.equal(loop.log.said('sync can work again').length, 1)
  t.match(await loop.sync.status(), { unavailable: null, lastSuccess: { slot: new Date('2025-03-10T11:00:00Z') } }, 'and the slot is served')
})

pooled('a database that is stopped and started again', async (t, set) => {
  const stage = await set()
  await stage.clock.at('2025-03-10T10:00:00Z')
  const { sync, log } = stage.bare({}, fastClock(20)) // the pooler may let a question wait
  t.match(await sync.runOnce(), { outcome: 'succeeded' })
  const { app } = await stage.host()
  await stage.clock.at('2025-03-10T11:00:00Z')
  await cluster.stop()
  sync.start()
  await until(() => troubles(log).length > 0)
  t.ok(troubles(log).every(({ level, msg }) => level === levels.warn && msg === 'database unavailable'))
  t.match(await sync.status(), { unavailable: String, lastLook: { outcome: 'unavailable', reason: String } })
  t.match(await sync.trigger(), { started: false, reason: 'unavailable' })
  t.match(await sync.runOnce(), { outcome: 'unavailable', run: null })
  t.equal((await app.inject('/')).statusCode, 404, 'does not keep the server from answering')
  await cluster.start()
  await until(() => log.said('sync succeeded').length === 2)
  t.match(await sync.status(), { unavailable: null, lastSuccess: { slot: new Date('2025-03-10T11:00:00Z') } }, 'and the slot is served')
})

both('a database that crashes during a run', async (t, set) => {
  const stage = await set()
  const on = gate()
  let reason: any
  const { app } = await stage.host()
  const { sync } = stage.bare({
    enabled: false,
    sync: async run => {
      if (reason !== undefined) return
      on.open()
      await run.sleep(10 * MINUTE).catch(error => { reason = error })
    }
  }, fastClock(20))
  // on a busy machine ten seconds of this clock may be too few for a claim
  const started = async (): Promise<RunOnceResult> => {
    const result = await sync.runOnce()
    return result.outcome === 'unavailable' ? await started() : result
  }
  const run = started()
  await Promise.race([on.passed, run])
  await cluster.stop('SIGQUIT')
  t.match(await run, { outcome: 'lock-lost', run: { state: 'lock-lost', since: null } }, 'loses the run')
  t.match(reason, { code: 'FST_HOURLY_SYNC_LOCK_LOST' })
  t.equal((await app.inject('/')).statusCode, 404, 'does not keep the server from answering')
  await cluster.start()
  await until(async () => (await sync.runOnce()).outcome === 'succeeded')
  t.ok(['vanished', 'lock-lost'].includes((await stage.history())[0].state), 'leaves a trace of it')
})
