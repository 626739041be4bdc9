/** What a caller hands to the plugin and to a run: unknown names and wrong types are refused, as rejections, before anything happens. */
import t, { type Test } from 'tap'
import { TransientSyncError } from '../index.js'
import type { HourlySync, SyncRun } from '../lib/types.js'
import { setStage } from './helpers/host.js'
import { startPostgres } from './helpers/postgres.js'

const cluster = await startPostgres(t)
const since = new Date('2025-01-01')
const until = new Date('2025-01-02')
const notObjects = [null, 5, 'x', true, [], () => {}] as any[]
const invalid = (name: string): { code: string, message: RegExp } => ({ code: 'FST_HOURLY_SYNC_INVALID_OPTION', message: new RegExp(`^option '${name.replace(/[()]/g, '\\$&')}' should be `) })

/** What a call comes to: it has to give a promise, whatever it was handed. */
async function rejects (t: Test, call: () => Promise<unknown>, name: string, what: string): Promise<void> {
  let promise: Promise<unknown>
  try {
    promise = call()
  } catch (error) {
    t.fail(`${what} throws ${error}`)
    return
  }
  await t.rejects(promise, invalid(name), what)
}

const refused: Array<[call: keyof HourlySync, option: string, argument: object]> = [
  ['runOnce', 'forse', { forse: true }],
  ['runOnce', 'prefix', { prefix: 'x' }],
  ...[null, 1, 'true', {}].map((force): [keyof HourlySync, string, object] => ['runOnce', 'force', { force }]),
  ['runs', 'limt', { limt: 5 }],
  ['runs', 'after', { after: 'x' }],
  ['runs', 'before', { before: Symbol('id') }],
  ...['suceeded', null, 5, 'toString', ['failed']].map((state): [keyof HourlySync, string, object] => ['runs', 'state', { state }]),
  ...['manuel', null, 5, {}].map((trigger): [keyof HourlySync, string, object] => ['runs', 'trigger', { trigger }]),
  ['slots', 'from', { from: since }],
  ['slots', 'to', { since, to: until }],
  ['slots', 'since', { since: null }],
  ['backfill', 'from', { from: since, to: until }],
  ['backfill', 'foo', { since, until, foo: 1 }],
  ['backfill', 'untill', { since, untill: until }],
  ['backfill', 'since', { since: null, until: null }],
  ['backfill', 'until', { since, until: 5 }],
  ...[null, 5, {}, 'x', { aborted: false }, { addEventListener () {} }, new AbortController()].map((signal): [keyof HourlySync, string, object] => ['backfill', 'signal', { since, until, signal }])
]

t.test('what a sync is handed', async t => {
  const stage = await setStage(t, cluster)
  let runs = 0
  const { sync } = await stage.host({ maxWindow: '1h', sync: async run => { runs++; if (run.slice.index === 2) throw new Error('no') } })
  const unfinished = await sync.backfill({ since: new Date('2024-01-01'), until: new Date('2024-01-02') })
  t.match(unfinished.started && await unfinished.finished, { state: 'failed' })
  const before = await stage.state()
  const ran = runs
  for (const [call, option, argument] of refused) await rejects(t, async () => await (sync[call] as any)(argument), option, `${call} with ${Object.keys(argument)}`)
  for (const call of ['runOnce', 'runs', 'slots', 'backfill'] as const) {
    for (const argument of notObjects) await rejects(t, () => (sync[call] as any)(argument), `${call}()`, `${call} of ${String(argument)}`)
  }
  t.equal(runs, ran, 'nothing has run')
  t.strictSame(await stage.state(), before)
  t.equal(await stage.holders(), 0)
})

t.test('a near name is suggested', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host()
  await t.rejects(sync.backfill({ since, untill: until } as any), { message: "option 'untill' should be spelled 'until' (did you mean that?), instead got 'untill'" })
  await t.rejects(sync.backfill({ from: since } as any), { message: "option 'from' should be one of since, until, signal, instead got 'from'" })
})

t.test('a signal of another make is one', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host()
  const { signal } = new AbortController()
  const other = { aborted: false, reason: undefined, addEventListener: signal.addEventListener.bind(signal), removeEventListener: signal.removeEventListener.bind(signal) } as unknown as AbortSignal
  const answer = await sync.backfill({ since, until, signal: other })
  t.match(answer.started && await answer.finished, { state: 'succeeded' })
})

t.test('a backfill whose signal has aborted is stopped before anything is asked', async t => {
  const stage = await setStage(t, cluster)
  const { sync, pool } = await stage.host()
  t.strictSame(await sync.backfill({ since, until, signal: AbortSignal.abort(new Error('enough')) }), { started: false, reason: 'stopped' })
  t.equal(pool.totalCount, 0)
  await t.rejects(sync.backfill({ since: until, until: since, signal: AbortSignal.abort() }), invalid('since'), 'a window that is none is one all the same')
})

t.test('what a checkpoint is handed', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({
    sync: async (run: SyncRun) => {
      const checkpoint = run.checkpoint as any
      await rejects(t, () => checkpoint(), 'checkpoint()', 'nothing')
      for (const argument of notObjects) await rejects(t, () => checkpoint(argument), 'checkpoint()', String(argument))
      for (const [name, value] of [['untill', run.until], ['cursr', 1], ['advance', false], ['until', null], ['until', '2025-01-01']]) await rejects(t, () => checkpoint({ [name as string]: value }), name as string, String(name))
      throw new Error('no')
    }
  })
  t.match(await sync.runOnce(), { outcome: 'failed', reason: 'no' })
  t.match(await stage.state(), { cursor: null, watermark: null })
})

t.test('a checkpoint after the run rejects as any call does', async t => {
  const stage = await setStage(t, cluster)
  let kept: SyncRun | undefined
  const { sync } = await stage.host({ sync: async run => { kept = run } })
  await sync.runOnce()
  await t.rejects((kept!.checkpoint as any)(), { code: 'FST_HOURLY_SYNC_RUN_ENDED' })
})

t.test('a misspelt checkpoint that nobody awaited fails the run', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({ sync: async run => { run.checkpoint({ cursr: 1 } as any) } })
  t.match(await sync.runOnce(), { outcome: 'failed', run: { error: { code: 'FST_HOURLY_SYNC_UNOBSERVED', message: /run\.checkpoint.*cursr/ } } })
})

t.test('no call of a run throws before it has given its promise', async t => {
  const stage = await setStage(t, cluster)
  const thrown: string[] = []
  const { sync, app } = await stage.host({
    sync: async (run: SyncRun) => {
      for (const method of ['query', 'transaction', 'upsert', 'checkpoint', 'sleep'] as const) {
        for (const argument of [undefined, ...notObjects, Symbol('x')]) {
          try {
            await (run[method] as any)(argument).catch(() => {})
          } catch (error) {
            thrown.push(`${method} of ${String(argument)}: ${error}`)
          }
        }
      }
    }
  })
  await sync.runOnce()
  for (const call of [...(['trigger', 'backfill', 'runOnce', 'status', 'isSyncing', 'runs', 'run', 'slots'] as const).map(name => sync[name]), app.triggerSync, app.isSyncing] as any[]) {
    for (const argument of [null, 5, [], Symbol('x')]) {
      try {
        await call(argument).catch(() => {})
      } catch (error) {
        thrown.push(`${call.name} of ${String(argument)}: ${error}`)
      }
    }
  }
  t.strictSame(thrown, [])
})

t.test('an error of the host is one, whatever its options are', async t => {
  for (const options of [null, undefined, 5, 'x', [], { retryAfter: {} }] as any[]) t.match(new TransientSyncError('no', options), { message: 'no', retryAfter: undefined })
})
