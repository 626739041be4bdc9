import t, { type Test } from 'tap'
import type { SyncRun } from '../lib/types.js'
import { setStage } from './helpers/host.js'
import { startPostgres } from './helpers/postgres.js'
import { gate } from './helpers/until.js'

const cluster = await startPostgres(t)
const turn = async (): Promise<void> => await new Promise(resolve => setImmediate(resolve))

/** What the process says of itself while a test runs. */
function heard (t: Test, event: 'unhandledRejection' | 'warning'): unknown[] {
  const said: unknown[] = []
  const listener = (what: unknown): void => { said.push(what) }
  process.on(event, listener)
  t.teardown(() => { process.removeListener(event, listener) })
  return said
}

t.test('a sleep that nobody awaits yet when the run is aborted is no unhandled rejection', async t => {
  const rejections = heard(t, 'unhandledRejection')
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({
    timeout: 100,
    sync: async run => {
      const pace = run.sleep(60_000)
      await run.query('select pg_sleep(0.5)')
      await pace
    }
  })
  t.match(await sync.runOnce(), { outcome: 'timed-out', run: { error: { code: 'FST_HOURLY_SYNC_TIMEOUT' } } })
  await turn()
  t.strictSame(rejections, [])
})

t.test('a sleep that nobody awaits neither fails a run nor holds up its end, and ends with it', async t => {
  const rejections = heard(t, 'unhandledRejection')
  const stage = await setStage(t, cluster)
  let pause: Promise<void>
  const { sync } = await stage.host({ sync: run => { pause = run.sleep(60_000) } })
  t.match(await sync.runOnce(), { outcome: 'succeeded' })
  await turn()
  t.strictSame(rejections, [])
  await t.rejects(pause!, { code: 'FST_HOURLY_SYNC_RUN_ENDED', message: /run\.sleep/ })
})

t.test('after the end of its run a sleep rejects as every other call does', async t => {
  const stage = await setStage(t, cluster)
  let ended: SyncRun
  const { sync } = await stage.host({ sync: run => { ended = run } })
  await sync.runOnce()
  for (const ms of [0, 1]) await t.rejects(ended!.sleep(ms), { code: 'FST_HOURLY_SYNC_RUN_ENDED' })
})

t.test('after an abort a sleep rejects with its reason, also once the run has ended', async t => {
  const stage = await setStage(t, cluster)
  const { passed, open } = gate()
  let aborted: SyncRun
  const { sync } = await stage.host({
    timeout: 50,
    abandonAfter: 50,
    sync: async run => {
      aborted = run
      await passed
    }
  })
  t.match(await sync.runOnce(), { outcome: 'timed-out' })
  await t.rejects(aborted!.sleep(1), { code: 'FST_HOURLY_SYNC_TIMEOUT' })
  open()
})

t.test('many sleeps beside each other, and many listeners of the host on the signal, are no leak to be warned of', async t => {
  const warnings = heard(t, 'warning')
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({
    sync: async run => {
      for (let i = 0; i < 20; i++) run.signal.addEventListener('abort', () => {})
      await Promise.all(Array.from({ length: 20 }, async () => await run.sleep(5)))
    }
  })
  t.match(await sync.runOnce(), { outcome: 'succeeded' })
  await turn()
  t.strictSame(warnings, [])
})
