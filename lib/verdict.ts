import type { FastifyBaseLogger } from 'fastify'
import type { Started } from './begin.js'
import { FST_HOURLY_SYNC_NOT_RECORDED } from './errors.js'
import { asError, errorRecord, isTransient, logged, messageOf, plainRecord, retryAfterOf } from './failure.js'
import type { Settings } from './options.js'
import type { Begun } from './record.js'
import { retryDelay } from './schedule.js'
import type { ErrorRecord, RunState, SyncResult } from './types.js'

/** What a run came to, before the database has agreed. */
export type Verdict = { state: 'succeeded', result: SyncResult } | Failure

export interface Failure { state: Exclude<RunState, 'succeeded'>, error: Error }

/** Of those that use up an attempt; the other ends leave the slot due at once. */
export function isFailure (state: RunState): boolean {
  return state === 'failed' || state === 'timed-out'
}

/** A verdict, and what is stored of it. */
export interface Told {
  verdict: Verdict
  error: ErrorRecord | null
  transient: boolean
}

export function judged (verdict: Verdict, settings: Settings, log: FastifyBaseLogger): Told {
  if (verdict.state === 'succeeded') return { verdict, error: null, transient: false }
  const transient = verdict.state === 'failed' && judgedTransient(verdict.error, settings, log)
  return { verdict, error: errorRecord(verdict.error, transient, settings.redact), transient }
}

/** What can be recorded of an end that the database does not take as it is. */
export function plainly (told: Told, refusal: Error, { redact }: Settings): Told {
  if (told.error !== null) return { ...told, error: plainRecord(told.error) }
  const error = new FST_HOURLY_SYNC_NOT_RECORDED(messageOf(refusal), { cause: refusal })
  return { verdict: { state: 'failed', error }, error: plainRecord(errorRecord(error, false, redact)), transient: false }
}

/** How long a failed run lets its slot rest, milliseconds. What the service asked for holds even when no retry is left. */
export function retryIn ({ retry }: Settings, attempt: number, error?: Error): { delay: number | null, atLeast: number | null } {
  const { limit, delay, maxDelay } = retry
  return {
    delay: attempt <= limit ? retryDelay(attempt, delay, maxDelay, Math.random()) : null,
    atLeast: retryAfterOf(error) ?? null
  }
}

function judgedTransient (error: Error, settings: Settings, log: FastifyBaseLogger): boolean {
  const say = (thrown: unknown): void => { log.error({ err: logged(asError(thrown), settings.redact) }, 'isTransient threw') }
  try {
    const judged: unknown = settings.isTransient?.(error)
    if (typeof judged === 'boolean') return judged
    Promise.resolve(judged).catch(say) // an async one judges too late, and must not end the process
  } catch (thrown) {
    say(thrown)
  }
  return isTransient(error)
}

/** Whether the end uses up an attempt of its slot. */
export function isAttempt (state: RunState, begun: Begun): boolean {
  return isFailure(state) && begun.trigger !== 'manual' && begun.trigger !== 'backfill'
}

/** Whether this failure is the one of its slot that the host is told of. */
export function isReported (state: RunState, transient: boolean, { begun, reported }: Started): boolean {
  return isFailure(state) && !transient && reported !== String(begun.slot)
}
