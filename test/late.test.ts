import pg from 'pg'
import t from 'tap'
import { createLateEnds } from '../lib/late.js'
import { handClock } from './helpers/hand-clock.js'
import { levels, setStage, type Stage } from './helpers/host.js'
import { startPostgres } from './helpers/postgres.js'
import { gate, until } from './helpers/until.js'

const cluster = await startPostgres(t)
const HOUR = 3_600_000

/** What the history says of its runs, oldest first. */
const states = async (stage: Stage): Promise<string[]> => (await stage.history()).map(({ state }) => state)

// the server is away

t.test('a run whose server restarts lost its lock, and is recorded as that once the server is back', async t => {
  const stage = await setStage(t, cluster)
  const { app, sync, log } = await stage.host({ sync: async run => { await run.sleep(HOUR) } })
  const answer = await app.triggerSync()
  await cluster.stop()
  t.match(answer.started && await answer.finished, { state: 'lock-lost' })
  await cluster.start()
  await until(async () => (await states(stage))[0] === 'lock-lost')
  t.match(await sync.status(), { lastRun: { state: 'lock-lost', error: { code: 'FST_HOURLY_SYNC_LOCK_LOST' } }, lastError: { code: 'FST_HOURLY_SYNC_LOCK_LOST' }, due: true })
  t.match(await stage.state(), { started: null, deaths: 0 })
  t.match(log.lines.filter(({ msg }) => msg.startsWith('the end of the run could not be recorded: ')), [{ level: levels.warn }])
})

t.test('it is told before this process begins another run', async t => {
  const stage = await setStage(t, cluster)
  const on = gate()
  const { sync, log } = stage.bare({ sync: async run => { if (run.trigger === 'manual') await on.passed } }, handClock()) // of which no time passes
  const answer = await sync.trigger()
  await cluster.stop('SIGQUIT')
  on.open()
  t.match(answer.started && await answer.finished, { state: 'lock-lost' })
  await until(async () => (await sync.runOnce()).outcome === 'unavailable') // the function has settled
  await cluster.start()
  t.match(await sync.runOnce(), { outcome: 'succeeded' })
  t.strictSame(await states(stage), ['lock-lost', 'succeeded'])
  t.strictSame(log.said('the run before vanished with its process'), [])
})

t.test('it stands over what another process has made of it', async t => {
  const stage = await setStage(t, cluster)
  const hands = handClock()
  const one = stage.bare({ sync: async run => { await run.sleep(HOUR) } }, hands)
  const answer = await one.sync.trigger()
  await cluster.stop()
  t.match(answer.started && await answer.finished, { state: 'lock-lost' })
  await cluster.start()
  const other = stage.bare()
  await other.sync.runOnce()
  t.strictSame(await states(stage), ['vanished', 'succeeded'])
  await until(async () => {
    await hands.advance(1_000)
    return (await states(stage)).includes('lock-lost')
  })
  t.strictSame((await states(stage)).sort(), ['lock-lost', 'succeeded'])
  t.match(await stage.state(), { deaths: 0 })
})

t.test('a server that is back and cannot take it keeps nobody from going on', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = stage.bare({ sync: async run => { if (run.trigger === 'manual') await run.sleep(HOUR) } }, handClock())
  const answer = await sync.trigger()
  await cluster.stop()
  t.match(answer.started && await answer.finished, { state: 'lock-lost' })
  await cluster.start()
  await stage.query(`drop schema ${stage.schema} cascade`)
  await until(async () => (await sync.runOnce()).outcome === 'succeeded') // the tables are made anew
  t.strictSame(await states(stage), ['succeeded'])
})

t.test('an app that closes tells nothing more', async t => {
  const stage = await setStage(t, cluster)
  const hands = handClock()
  const { sync } = stage.bare({ sync: async run => { await run.sleep(HOUR) } }, hands)
  const answer = await sync.trigger()
  await cluster.stop()
  t.match(answer.started && await answer.finished, { state: 'lock-lost' })
  await sync.close()
  await cluster.start()
  await hands.advance(HOUR)
  t.strictSame(await states(stage), [])
})

t.test('what cannot be told is told again, one at a time, and each as long as it takes', async t => {
  const hands = handClock()
  const late = createLateEnds(hands)
  await late.tell()
  const tries: string[] = []
  let away = true
  const one = (name: string) => async (): Promise<void> => {
    tries.push(name)
    if (away) throw new Error('away')
  }
  late.add(one('a'))
  late.add(one('b'))
  await t.rejects(Promise.all([late.tell(), late.tell()]), { message: 'away' })
  t.strictSame(tries, ['a'])
  await hands.advance(1_000)
  t.strictSame(tries, ['a', 'a'])
  away = false
  await hands.advance(30_000)
  t.strictSame(tries, ['a', 'a', 'a', 'b'])
  t.equal(hands.armed, 0)
  late.add(one('c'))
  late.stop()
  await hands.advance(HOUR)
  t.equal(tries.length, 4)
})

// the server refuses

t.test('settings that the host has left on the session do not cost a run its end', async t => {
  await cluster.query('create role importer')
  for (const setting of [
    'set role importer', 'set session authorization importer', 'set session characteristics as transaction read only', 'set statement_timeout = 1', 'set search_path to nowhere'
  ]) {
    const stage = await setStage(t, cluster)
    const { sync, log } = await stage.host({ sync: async run => { await run.query(setting) } })
    t.match(await sync.runOnce(), { outcome: 'succeeded' }, setting)
    t.match(await stage.history(), [{ state: 'succeeded' }])
    t.strictSame(log.lines.filter(({ level }) => level >= levels.warn), [])
  }
})

t.test('what the database cannot hold is a failure, counted as one', async t => {
  await cluster.query("create database latin encoding 'LATIN1' lc_collate 'C' lc_ctype 'C' template template0")
  for (const [title, sync, state, error] of [
    ['a cursor', async () => ({ cursor: 'Kraków →' }), 'failed', { code: 'FST_HOURLY_SYNC_NOT_RECORDED', message: /does not take what the run came to: .*LATIN1/ }],
    ['stats', async () => ({ stats: { name: '→' } }), 'failed', { code: 'FST_HOURLY_SYNC_NOT_RECORDED' }],
    ['what it says', async () => { throw new Error('page 3 → 500') }, 'failed', { message: 'page 3 ? 500' }],
    ['a long message', async () => { throw new Error('x'.repeat(3_000)) }, 'failed', { message: /x\?$/ }]
  ] as const) {
    const errors: unknown[] = []
    const stage = await setStage(t, cluster, 'latin')
    const host = await stage.host({ sync, onError: error => { errors.push(error) } })
    t.match(await host.sync.runOnce(), { outcome: state, run: { error } }, title)
    t.match(await stage.history(), [{ state, stats: null }])
    t.match(await stage.state(), { attempts: 1, cursor: null, watermark: null, last_failure: error })
    t.equal(errors.length, 1)
    t.match(await host.sync.runOnce(), { outcome: 'not-due', reason: 'waiting' })
  }
})

t.test('neither is it where the session is gone', async t => {
  const stage = await setStage(t, cluster, 'latin')
  const { sync } = await stage.host({
    abandonAfter: 100,
    timeout: 100,
    sync: async run => {
      await stage.query('select pg_terminate_backend($1, 10000)', [(await run.query('select pg_backend_pid() as pid')).rows[0].pid])
      throw new Error('→')
    }
  })
  t.match(await sync.runOnce(), { outcome: 'lock-lost' })
  t.match(await stage.history(), [{ state: 'lock-lost' }])
})

// nobody answers

t.test('an event loop that is blocked for longer than the end of a run may take costs it nothing', async t => {
  const stage = await setStage(t, cluster)
  const client = new pg.Client({ connectionString: cluster.url() })
  await client.connect()
  t.teardown(async () => await client.end())
  const { rows: [{ pid }] } = await client.query('select pg_backend_pid() as pid')
  const hands = handClock()
  const { sync, log } = stage.bare({ sync: async () => { await client.query(`begin; select from ${stage.schema}.sync for update`) } }, hands)
  const outcome = sync.runOnce()
  await until(async () => (await stage.query('select from pg_stat_activity where $1 = any (pg_blocking_pids(pid))', [pid])).rowCount === 1)
  hands.sleep(15_000)
  await client.query('commit')
  t.match(await outcome, { outcome: 'succeeded' })
  t.strictSame(log.lines.filter(({ level }) => level >= levels.warn), [])
})

t.test('a begin that waits too long for somebody else begins nothing later, and its lock goes', async t => {
  const stage = await setStage(t, cluster)
  const { sync, app } = await stage.host()
  await sync.runOnce()
  const client = new pg.Client({ connectionString: cluster.url() })
  await client.connect()
  t.teardown(async () => await client.end())
  const hands = handClock()
  const other = stage.bare({}, hands)
  const { rows: [{ pid }] } = await client.query('select pg_backend_pid() as pid')
  await client.query(`begin; select from ${stage.schema}.sync for update`)
  const answer = other.sync.trigger()
  await until(async () => (await stage.query('select from pg_stat_activity where $1 = any (pg_blocking_pids(pid))', [pid])).rowCount === 1)
  await hands.advance(10_000)
  t.match(await answer, { started: false, reason: 'unavailable' })
  await until(async () => await stage.holders() === 0, 'the server has seen that nobody waits')
  await client.query('commit')
  t.match(await app.triggerSync(), { started: true })
  await until(async () => (await states(stage)).length === 2)
  t.strictSame(await states(stage), ['succeeded', 'succeeded'])
})
