import t from 'tap'
import { startProxy } from '../chaos/proxy.js'
import { setStage } from '../helpers/host.js'
import { startPostgres } from '../helpers/postgres.js'
import { gate, until } from '../helpers/until.js'

const cluster = await startPostgres(t)

/** Three heartbeats, a look, and what a busy machine needs. */
const REPLACED = 15_000

for (const where of ['between two statements', 'inside run.transaction', 'inside a transaction of its own']) {
  t.test(`a holder whose network goes silent ${where} is replaced, and told`, async t => {
    const stage = await setStage(t, cluster)
    const proxy = await startProxy(cluster.port)
    t.teardown(proxy.close)
    const entered = gate<AbortSignal>()
    const settled = gate()
    const silent = await stage.host({
      heartbeat: '1s',
      sync: async run => {
        if (where === 'inside a transaction of its own') await run.query('begin')
        const work = async (): Promise<void> => {
          entered.open(run.signal)
          await settled.passed
        }
        if (where === 'inside run.transaction') await run.transaction(work)
        else await work()
      }
    }, { connectionString: `postgres://postgres:postgres@127.0.0.1:${proxy.port}/postgres` })
    const other = await stage.host({ heartbeat: '1s' })
    const outcome = silent.sync.runOnce()
    const signal = await entered.passed
    proxy.freeze()
    await until(async () => (await other.sync.runOnce({ force: true })).outcome === 'succeeded', 'the other has run', REPLACED)
    await until(() => signal.aborted, 'the holder is told')
    t.match(signal.reason, { code: 'FST_HOURLY_SYNC_LOCK_LOST' })
    settled.open()
    proxy.thaw(false)
    t.match(await outcome, { outcome: 'lock-lost' })
  })
}

t.test('a holder whose network goes silent inside a statement is replaced, and told over the pool', async t => {
  const stage = await setStage(t, cluster)
  const proxy = await startProxy(cluster.port)
  t.teardown(proxy.close)
  const entered = gate<AbortSignal>()
  let failure: unknown
  const { clock: { searchPath } } = stage
  const silent = await stage.host({
    heartbeat: '1s',
    lock: { connectionString: `postgres://postgres:postgres@127.0.0.1:${proxy.port}/postgres`, options: `-c search_path=${searchPath.replaceAll(' ', '')}`, application_name: 'silent' },
    sync: async run => {
      entered.open(run.signal)
      await run.query('select pg_sleep(1.5)').catch(error => { failure = error })
    }
  })
  const other = await stage.host({ heartbeat: '1s' })
  const outcome = silent.sync.runOnce()
  const signal = await entered.passed
  await until(async () => (await stage.query("select from pg_stat_activity where query like 'select pg_sleep(1.5)' and state = 'active'")).rowCount === 1)
  const began = performance.now()
  proxy.freeze()
  await until(async () => (await other.sync.runOnce({ force: true })).outcome === 'succeeded', 'the other has run', REPLACED)
  await until(() => signal.aborted, 'the holder is told')
  t.ok(performance.now() - began < REPLACED)
  t.match([signal.reason, failure], [{ code: 'FST_HOURLY_SYNC_LOCK_LOST' }, { code: 'FST_HOURLY_SYNC_LOCK_LOST' }])
  t.match(await outcome, { outcome: 'lock-lost' })
  t.strictSame((await stage.history()).map(({ state }) => state).sort(), ['lock-lost', 'succeeded'])
})

/** Keeps the event loop from turning, as a host that computes does. */
function block (ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms)
}

t.test('a host that blocks its event loop for less than three heartbeats keeps its lock', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({
    heartbeat: '2s',
    sync: async run => {
      await run.sleep(2_100) // a proof is on its way, or has just been
      block(4_000)
      await run.query('select 1')
    }
  })
  t.match(await sync.runOnce(), { outcome: 'succeeded' })
})

t.test('a host that blocks its event loop for longer has lost it, and is told', async t => {
  const stage = await setStage(t, cluster)
  let failure: unknown
  const { sync } = await stage.host({
    heartbeat: '500ms',
    sync: async run => {
      block(3_000)
      await run.query('select 1').catch(error => { failure = error })
    }
  })
  t.match(await sync.runOnce(), { outcome: 'lock-lost' })
  t.match(failure, { code: 'FST_HOURLY_SYNC_LOCK_LOST' })
})

t.test('a statement that takes longer than three heartbeats keeps the lock', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({ heartbeat: '200ms', sync: async run => { await run.query('select pg_sleep(2)') } }) // ten heartbeats
  t.match(await sync.runOnce(), { outcome: 'succeeded' })
})

t.test('a holder that is idle in a transaction for longer than three heartbeats keeps its lock', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({
    heartbeat: '200ms',
    sync: async run => {
      await run.transaction(async tx => {
        await run.sleep(2_000) // ten heartbeats
        await tx.query('set transaction isolation level serializable') // only ever as the first: a look before it would fail it
        await run.sleep(1_000)
        await tx.query('no such statement').catch(() => {})
        await run.sleep(1_000)
        throw new Error('seen to its end')
      }).catch(() => {})
    }
  })
  t.match(await sync.runOnce(), { outcome: 'succeeded' })
})
