import { AsyncLocalStorage } from 'node:async_hooks'
import type { FastifyBaseLogger } from 'fastify'
import { type Attempt, createRunner, type Runner } from './attempt.js'
import { abortSignal, argument, bool, date, invalid } from './checks.js'
import { type Clock, systemClock, within } from './clock.js'
import { askingUntil, createDirectSource, type PoolGate } from './connections.js'
import type { Context } from './context.js'
import { FST_HOURLY_SYNC_CLOSING, FST_HOURLY_SYNC_NO_POOL } from './errors.js'
import { asError } from './failure.js'
import { createHistory, type History, unknown } from './history.js'
import { createSlots, type Slots } from './slots.js'
import { readings } from './sql/readings.js'
import { createLateEnds } from './late.js'
import { lockKey } from './lock-key.js'
import { type Loop, startLoop } from './loop.js'
import { guarded } from './log.js'
import { createLookLog } from './look-log.js'
import type { Settings } from './options.js'
import { createPreparation } from './preparation.js'
import { warnAboutPool } from './probe.js'
import { skipAfter } from './schedule.js'
import { MOST, statements } from './sql.js'
import type { BackfillAnswer, BackfillOptions, HourlySync, LastLook, RunOnceResult, Status, TriggerAnswer } from './types.js'

/** How long who was locked out waits to be told by whom. Milliseconds. */
const HOLDER_LIMIT = 1_000

/** One sync, assembled. */
export interface Service extends HourlySync {
  readonly settings: Settings
  /** All that the host sees of it: no settings, for they may hold a password. */
  readonly face: HourlySync
  /** The app is ready: from here on there is a pool. Does no database work. */
  open: (gate: PoolGate) => void
  readonly clock: Clock
  /** What the routes read. */
  readonly reading: { history: History, slots: Slots }
  /** The app begins to close: no more runs, and a run under way is told to stop. Does not wait. */
  abort: () => void
  /** The app closes: waits for a run under way, at most `closeTimeout`. */
  close: () => Promise<void>
}

interface Opened {
  runner: Runner
  history: History
  slots: Slots
}

export function createService (settings: Settings, parent: FastifyBaseLogger, clock: Clock = systemClock): Service {
  const key = lockKey(settings.lockName)
  const log = guarded(parent).child({ sync: settings.name, target: '' })
  const lookLog = createLookLog(settings, log)
  let opened: Opened | undefined
  let loop: Loop | undefined
  let started = false // ever
  let lastLook: LastLook | null = null
  let closeBy: number | undefined
  const closed = new AbortController()
  let fresh = true // for `runOnce`: as good as a process that has just booted

  const notReady = (): Error => new FST_HOURLY_SYNC_NO_POOL(settings.name, 'so far: the app is not ready yet, await app.ready() first')

  function parts (): Opened {
    if (opened === undefined) throw notReady()
    return opened
  }

  function looked (answer: Attempt): void {
    lastLook = { at: new Date(clock.now()), outcome: answer.started ? 'running' : answer.outcome, reason: answer.started ? null : answer.reason }
    lookLog(answer)
    if (!answer.started) return
    answer.run.finished.then(({ record }) => {
      lastLook = { at: new Date(clock.now()), outcome: record.state, reason: record.error?.message ?? null }
    })
  }

  async function trigger (): Promise<TriggerAnswer> {
    const answer = await parts().runner.attempt({ trigger: 'manual', force: true, fresh: false, order: 0, hurry: true })
    return await toAnswer(answer) as TriggerAnswer // no signal stops it
  }

  async function backfill (options: BackfillOptions = {}): Promise<BackfillAnswer> {
    const { runner, history } = parts()
    const { since, until, signal: given } = argument('backfill()', options, ['since', 'until', 'signal'])
    const signal = given === undefined ? undefined : abortSignal('signal', given)
    const window = since === undefined && until === undefined ? await history.backfill() : checkedWindow(since, until)
    if (window === null) throw invalid('since', 'a Date, for there is no backfill to resume', undefined)
    const { maxWindow } = settings
    if (maxWindow !== null && (window.until - window.since) / maxWindow > MOST) throw invalid('maxWindow', 'longer, for a backfill of so long a time', maxWindow)
    if (signal?.aborted === true) return { started: false, reason: 'stopped' }
    const answer = await runner.attempt({ trigger: 'backfill', force: true, fresh: false, order: 0, hurry: true, backfill: window, ...(signal && { signal }) })
    if (answer.started && signal !== undefined) {
      const stop = (): void => { answer.run.stopBackfill(asError(signal.reason)) }
      if (signal.aborted) stop()
      signal.addEventListener('abort', stop)
      answer.run.finished.then(() => signal.removeEventListener('abort', stop))
    }
    return await toAnswer(answer)
  }

  async function toAnswer (answer: Attempt): Promise<BackfillAnswer> {
    if (!answer.started && answer.refusal !== null) looked(answer)
    if (answer.started) return { started: true, runId: answer.run.id, finished: answer.run.finished.then(({ record }) => record) }
    const reason = answer.outcome as Exclude<typeof answer.outcome, 'not-due'> // it was forced
    if (reason !== 'running') return { started: false, reason, ...(answer.reason !== null && { message: answer.reason }) }
    const { runner, history } = parts()
    const own = runner.current
    const holder = own?.holder ?? await history.look(HOLDER_LIMIT).then(seen => seen.holder, () => null)
    if (holder !== null) return { started: false, reason, holder, ...(holder.runId === null && { message: 'the lock is held by a session that has noted no run of this sync: one is about to begin, or something else has the lock' }) }
    return { started: false, reason, ...(own?.over === true && { message: 'the function of the run before has not settled in this process' }) }
  }

  async function runOnce (options: { force?: boolean } = {}): Promise<RunOnceResult> {
    const { runner } = parts()
    const { force: forced = false } = argument('runOnce()', options, ['force'])
    const force = bool('force', forced)
    const answer = await runner.attempt({ trigger: force ? 'manual' : 'schedule', force, fresh, order: 0, hurry: true })
    if (answer.started || answer.look !== null) fresh = false
    looked(answer)
    if (!answer.started) return { outcome: answer.outcome, reason: answer.reason, run: null }
    const { record } = await answer.run.finished
    return { outcome: record.state, reason: record.error?.message ?? null, run: record }
  }

  async function status (): Promise<Status> {
    const known = opened === undefined
      ? unknown(notReady(), settings.redact)
      : await opened.history.known().then(found => ({ ...found, unavailable: null }), error => unknown(error, settings.redact))
    const own = opened?.runner.current
    return {
      name: settings.name,
      target: '',
      enabled: loop !== undefined,
      disabledBecause: loop === undefined ? whyOff() : null,
      aborted: own?.aborted ?? null,
      nextLook: loop === undefined || loop.nextLook === null ? null : new Date(loop.nextLook),
      lastLook,
      ...known,
      holder: known.unavailable === null ? known.holder : own?.holder ?? null,
      progress: own?.progress ?? known.progress,
      syncing: known.syncing || (own !== undefined && !own.over)
    }
  }

  function whyOff (): string {
    if (settings.missing.length > 0) return `not configured: ${settings.missing.join(', ')}`
    if (closeBy !== undefined) return 'closing'
    if (opened === undefined) return 'not ready'
    if (started) return 'stopped'
    if (settings.switchedOff) return 'FASTIFY_HOURLY_SYNC_LOOP is off'
    return settings.enabled ? 'not listening' : 'not enabled'
  }

  function start (): void {
    const { runner } = parts()
    if (loop !== undefined || closeBy !== undefined || settings.missing.length > 0) return
    started = true
    loop = startLoop({ settings, clock, attempt: runner.attempt, looked, chance: Math.random })
  }

  function stop (): void {
    loop?.stop()
    loop = undefined
  }

  /** The deadline counts from the first call: many syncs close together, not one after the other. */
  function abort (): number {
    stop()
    opened?.runner.close()
    if (closeBy === undefined) {
      closeBy = clock.elapsed() + settings.closeTimeout
      // until then requests in flight are answered, and the end of a run recorded; a pool that is closed before us waits for it
      clock.after(settings.closeTimeout, callOff)
    }
    return closeBy
  }

  function callOff (): void {
    closed.abort(new FST_HOURLY_SYNC_CLOSING())
  }

  const face: HourlySync = Object.freeze({
    name: settings.name,
    lockKey: key.toString(),
    start,
    stop,
    trigger,
    backfill,
    runOnce,
    status,
    isSyncing: async () => await parts().history.isSyncing(),
    runs: async (options?: Parameters<HourlySync['runs']>[0]) => await parts().history.runs(options),
    run: async (id: string) => await parts().history.run(id),
    slots: async (range?: Parameters<HourlySync['slots']>[0]) => await parts().slots.list(range)
  })

  return {
    ...face,
    settings,
    clock,
    face,
    get reading () { return parts() },

    open (shared) {
      const gate = askingUntil(closed.signal, shared)
      const source = settings.lock === undefined ? gate : createDirectSource(settings.lock, clock)
      const texts = statements(settings.schema)
      const context: Context = {
        settings,
        key,
        statements: texts,
        readings: readings(settings.schema),
        clock,
        log,
        gate,
        source,
        inside: new AsyncLocalStorage(),
        late: createLateEnds(clock),
        judging: judging(settings),
        ...createPreparation(settings, gate, texts, clock)
      }
      const runner = createRunner(context)
      warnAboutPool(gate.pool, settings, log)
      opened = { runner, history: createHistory(context, runner), slots: createSlots(context) }
      if (settings.missing.length > 0) log.warn({ missing: settings.missing }, 'sync is not configured: the loop stays off')
    },

    abort,

    async close () {
      const deadline = abort()
      if (opened === undefined) return
      // whatever is left then has had its session destroyed
      await within(clock, opened.runner.idle(), { ms: deadline - clock.elapsed(), held: true, late: () => new Error('late') }).catch(() => {})
      callOff() // no request is in flight any more
    }
  }
}

function judging (settings: Settings): Context['judging'] {
  const late = settings.catchUp === 'skip' ? skipAfter(settings.every, settings.jitter) : null
  return fresh => [settings.name, '', settings.every, settings.offset, late, settings.retry.limit, fresh, settings.firstRun === 'wait']
}

function checkedWindow (since: unknown, until: unknown): { since: number, until: number } {
  const window = { since: date('since', since), until: date('until', until) }
  if (window.since >= window.until) throw invalid('since', "earlier than 'until'", since)
  return window
}
