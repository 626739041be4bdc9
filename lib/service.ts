import type { FastifyBaseLogger } from 'fastify'
import { type Attempt, createRunner, type Runner } from './attempt.js'
import { type Clock, systemClock, within } from './clock.js'
import { createDirectSource, type Lease, type PoolGate } from './connections.js'
import type { Context } from './context.js'
import { FST_HOURLY_SYNC_NO_POOL } from './errors.js'
import { createHistory, type History, unknown } from './history.js'
import { lockKey } from './lock-key.js'
import { type Loop, startLoop } from './loop.js'
import { createLookLog } from './look-log.js'
import { migrate } from './migrations.js'
import type { Settings } from './options.js'
import { statements } from './sql.js'
import type { HourlySync, LastLook, RunOnceResult, Status, TriggerAnswer } from './types.js'

/** One sync, assembled. The host sees the {@link HourlySync} part of it. */
export interface Service extends HourlySync {
  readonly settings: Settings
  /** The app is ready: from here on there is a pool. Does no database work. */
  open: (gate: PoolGate) => void
  /** The app begins to close: no more runs, and a run under way is told to stop. Does not wait. */
  abort: () => void
  /** The app closes: waits for a run under way, at most `closeTimeout`. */
  close: () => Promise<void>
}

interface Opened {
  runner: Runner
  history: History
  context: Context
}

export function createService (settings: Settings, parent: FastifyBaseLogger, clock: Clock = systemClock): Service {
  const key = lockKey(settings.lockName)
  const log = parent.child({ sync: settings.name, target: '' })
  const lookLog = createLookLog(log)
  let opened: Opened | undefined
  let loop: Loop | undefined
  let lastLook: LastLook | null = null
  /** When the app began to close, on the steady clock. */
  let closing: number | undefined

  function parts (): Opened {
    if (opened === undefined) throw new FST_HOURLY_SYNC_NO_POOL(settings.name, 'this moment: the app is not ready yet')
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
    const { runner, history } = parts()
    const answer = await runner.attempt({ trigger: 'manual', force: true, fresh: false, order: 0, hurry: true })
    if (answer.started) return { started: true, runId: answer.run.begun.id, finished: answer.run.finished.then(({ record }) => record) }
    const reason = answer.outcome as Exclude<typeof answer.outcome, 'not-due'> // it was forced
    if (reason !== 'running') return { started: false, reason, ...(answer.reason !== null && { message: answer.reason }) }
    const holder = await history.holder().catch(() => null)
    return { started: false, reason, ...(holder !== null && { holder }) }
  }

  async function runOnce ({ force = false }: { force?: boolean } = {}): Promise<RunOnceResult> {
    const { runner } = parts()
    const answer = await runner.attempt({ trigger: force ? 'manual' : 'schedule', force, fresh: true, order: 0, hurry: true })
    if (!answer.started) return { outcome: answer.outcome, reason: answer.reason, run: null }
    const { record } = await answer.run.finished
    return { outcome: record.state, reason: record.error?.message ?? null, run: record }
  }

  async function status (): Promise<Status> {
    const { runner, history } = parts()
    const known = await history.known().then(found => ({ ...found, unavailable: null }), unknown)
    const own = runner.current
    return {
      name: settings.name,
      target: '',
      enabled: loop !== undefined,
      disabledBecause: loop === undefined ? whyOff() : null,
      progress: own?.progress ?? null,
      nextLook: loop === undefined || loop.nextLook === null ? null : new Date(loop.nextLook),
      lastLook,
      ...known,
      syncing: known.syncing || (own !== undefined && !own.over)
    }
  }

  function whyOff (): string {
    if (settings.missing.length > 0) return `not configured: ${settings.missing.join(', ')}`
    if (closing !== undefined) return 'closing'
    return settings.enabled ? 'stopped' : 'not enabled'
  }

  function start (): void {
    const { runner } = parts()
    if (loop !== undefined || closing !== undefined || settings.missing.length > 0) return
    loop = startLoop({ settings, clock, attempt: runner.attempt, looked, chance: Math.random })
  }

  function stop (): void {
    loop?.stop()
    loop = undefined
  }

  function abort (): void {
    closing ??= clock.elapsed()
    stop()
    opened?.runner.close()
  }

  return {
    settings,
    name: settings.name,
    lockKey: key.toString(),

    open (gate) {
      const source = settings.lock === undefined ? gate : createDirectSource(settings.lock, clock)
      const context: Context = { settings, key, statements: statements(settings.schema), clock, log, gate, source, ...createPreparation(settings) }
      const runner = createRunner(context)
      opened = { context, runner, history: createHistory(context, runner) }
      if (settings.missing.length > 0) log.warn({ missing: settings.missing }, 'sync is not configured: the loop stays off')
    },

    start,
    stop,
    trigger,
    runOnce,
    status,
    isSyncing: async () => await parts().history.isSyncing(),
    runs: async options => await parts().history.runs(options),

    abort,

    async close () {
      abort()
      if (opened === undefined) return
      // counted from `abort`: hooks between the two may have waited for the session. Whatever is left then has had it destroyed
      await within(clock, opened.runner.idle(), { ms: closing! + settings.closeTimeout - clock.elapsed(), held: true, late: () => new Error('late') }).catch(() => {})
    }
  }
}

/** Sees to the tables with the first connection that comes, and again after they turned out to be other than they were seen. */
function createPreparation (settings: Settings): Pick<Context, 'prepare' | 'forget'> {
  let prepared = false
  return {
    async prepare ({ client }: Lease) {
      if (prepared) return
      await migrate(client, settings.schema, settings.migrate)
      prepared = true
    },
    forget () { prepared = false }
  }
}
