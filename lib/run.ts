import { setMaxListeners } from 'node:events'
import { createAnnouncer, tidy } from './announce.js'
import type { Started } from './begin.js'
import type { Context } from './context.js'
import { wait, waitSteadily } from './clock.js'
import { type Ended, nothing, recordEnd } from './ending.js'
import { FST_HOURLY_SYNC_RUN_ENDED, FST_HOURLY_SYNC_TIMEOUT } from './errors.js'
import { checkpoint } from './checkpoint.js'
import { asError, errorRecord } from './failure.js'
import { createFacade } from './facade.js'
import { type Begun, parsed, unrecorded } from './record.js'
import { checkedResult } from './result.js'
import type { Session } from './session.js'
import type { Json, Progress, RunState, SyncResult, SyncRun } from './types.js'
import type { Failure, Verdict } from './verdict.js'

/** A run under way. */
export interface Conducted {
  readonly begun: Begun
  readonly progress: Progress | null
  /** Set once the run was told to stop: the state it will end in. */
  readonly aborted: RunState | null
  /** Resolves when the end is recorded, or could not be. Never rejects. */
  readonly finished: Promise<Ended>
  /** Whether the host's function has settled: perhaps long after the run was over, perhaps never. */
  readonly settled: boolean
  /** Whether the run was ended without waiting for the host's function: its session can serve no other run. */
  readonly wasCut: boolean
  /** The server is closing: aborts, waits `closeTimeout`, then ends it. */
  close: (why: Error) => void
}

interface Parts {
  context: Context
  session: Session
  started: Started
}

/** The host's function has come to something, or nobody waits for it any more. */
type Settled = { result: SyncResult } | { error: Error }

/** At close, what is left of `closeTimeout` for recording the end. Milliseconds. */
const LAST_WORDS = 500

/** Otherwise, and for beginning the next slice. */
export const FINISH_LIMIT = 10_000

/**
 * Makes one run of a sync whose lock is held and whose start is noted: calls the host's function, watches time, lock and
 * shutdown, and records what it came to.
 *
 * A run whose signal aborted ends in the state of the abort, whatever the function then returns. One whose function has rejected has failed: what it left
 * under way is told to stop, and can neither hold up the end nor change it.
 */
export function conduct ({ context, session, started }: Parts): Conducted {
  const { settings, clock } = context
  const { begun } = started
  const log = context.log.child({ run: begun.id, slot: begun.slot === null ? null : new Date(begun.slot).toISOString(), trigger: begun.trigger })
  const abort = new AbortController()
  const over = new AbortController() // ends the watches
  const waking = new AbortController() // ends what sleeps
  setMaxListeners(0, abort.signal, waking.signal) // a host hands the one to as much as it likes, and may sleep as often beside each other
  const start = clock.elapsed()
  const lent = session.lend(abort.signal)
  let aborted: Failure | undefined
  let progress: Progress | null = null
  let isOver = false
  let finishLimit = FINISH_LIMIT
  let wasCut = false
  let cut!: (error: Error) => void
  /** Resolves when the run does not wait for the host's function any longer. */
  const isCut = new Promise<Settled>(resolve => {
    cut = error => {
      wasCut = true
      resolve({ error })
    }
  })
  const closing: Array<() => void> = []

  function stop (state: Failure['state'], error: Error): void {
    if (aborted !== undefined) return
    aborted = { state, error }
    log.debug({ state }, 'run aborted')
    abort.abort(error)
    waking.abort()
  }

  /** Calls `fn` after `ms`, unless the run is over by then. */
  const later = (ms: number, fn: () => void): void => {
    waitSteadily(clock, ms, over.signal).then(passed => { if (passed) fn() })
  }

  const announcing = new AbortController()
  const announce = createAnnouncer({ context, session, begun, over: announcing.signal })
  const run = toSyncRun()
  let isSettled = false
  const answer = callHost()

  async function callHost (): Promise<Settled> {
    let settled: Settled
    try {
      await Promise.resolve() // not before the caller has the run
      abort.signal.throwIfAborted()
      settled = { result: checkedResult(await settings.sync(run), log) }
    } catch (thrown) {
      settled = { error: asError(thrown) }
    }
    isSettled = true
    return settled
  }

  /** The host's function, and then what it left on the session, each only as long as the run is not cut. */
  async function played (): Promise<Settled> {
    const settled = await answer
    announcing.abort() // or it might take the session between here and the end
    waking.abort()
    if ('error' in settled) {
      // only then: an abort is an unhandled rejection where the host has a request in flight that it does not await any more
      if (lent.busy()) stop('failed', settled.error)
      lent.end()
    } else {
      lent.seal()
    }
    const left = await lent.settle()
    return 'error' in settled || left === undefined ? settled : { error: left }
  }

  async function sleep (ms: number): Promise<void> {
    if (!await waitSteadily(clock, ms, waking.signal)) throw aborted?.error ?? new FST_HOURLY_SYNC_RUN_ENDED('sleep')
  }

  async function heartbeat (): Promise<void> {
    while (await wait(clock, settings.heartbeat, over.signal)) await session.prove()
  }

  /** Never rejects: what is not foreseen, of a driver say, must not leave the lock held and the process with a rejection. */
  async function conclude (): Promise<Ended> {
    const ended = await carryOut().catch((thrown): Ended => {
      session.destroy()
      return { ...nothing, record: unrecorded(settings.name, begun, 'failed', Math.round(clock.elapsed() - start), errorRecord(asError(thrown), false, settings.redact)) }
    })
    over.abort()
    for (const cancel of closing) cancel()
    isOver = true
    return ended
  }

  async function carryOut (): Promise<Ended> {
    log.info({ attempt: begun.attempt, missedSlots: run.missedSlots, ...(begun.slices > 1 && { slice: run.slice }) }, 'sync started')
    later(settings.timeout, () => {
      const error = new FST_HOURLY_SYNC_TIMEOUT(settings.timeout)
      stop('timed-out', error)
      later(settings.abandonAfter, () => {
        log.error('sync ignores its timeout: its session is ended, and this process takes no other run before it settles')
        cut(error)
      })
    })
    session.whenLost(why => {
      stop('lock-lost', why)
      cut(why)
    })
    heartbeat().catch(error => session.lose(asError(error))) // what is not foreseen is no proof
    const settled = await Promise.race([played(), isCut])
    over.abort()
    announcing.abort()
    lent.end()
    if (wasCut && session.usable && session.busy()) await session.seize() // of a run that was not, only a proof can be under way
    const verdict: Verdict = aborted ?? ('error' in settled ? { state: 'failed', error: settled.error } : { state: 'succeeded', result: settled.result })
    return await recordEnd({ context, session, started, run, log, verdict, limit: () => finishLimit, lasted: Math.round(clock.elapsed() - start) })
  }

  function toSyncRun (): SyncRun {
    return {
      id: begun.id,
      name: settings.name,
      target: '',
      trigger: begun.trigger,
      slot: begun.slot === null ? null : new Date(begun.slot),
      slice: { index: begun.slice, of: begun.slices },
      attempt: begun.attempt,
      since: begun.since === null ? null : new Date(begun.since),
      until: new Date(begun.until),
      missedSlots: started.missed,
      cursor: parsed<Json>(started.cursor),
      signal: abort.signal,
      log,
      query: lent.query,
      transaction: lent.transaction,
      upsert: lent.upsert,
      client: createFacade(lent.query),
      checkpoint: reached => checkpoint({ context, session, lent, started }, reached),
      progress: (done, total) => {
        progress = tidy(done, total)
        announce(progress)
      },
      sleep: ms => {
        const slept = sleep(ms)
        slept.catch(() => {}) // one that is awaited only after the next write, or never, must not end the process: nothing is lost by it
        return slept
      }
    }
  }

  return {
    begun,
    get progress () { return progress },
    get aborted () { return aborted?.state ?? null },
    finished: conclude(),
    get settled () { return isSettled },
    get wasCut () { return wasCut },
    close (why) {
      if (isOver) return
      stop('interrupted', why)
      finishLimit = Math.min(LAST_WORDS, settings.closeTimeout / 5)
      // held: the process must live to see the close through
      closing.push(
        clock.after(settings.closeTimeout - finishLimit, () => cut(why), true),
        clock.after(settings.closeTimeout, session.destroy, true))
    }
  }
}
