import type { FastifyBaseLogger } from 'fastify'
import type { Plan, Started } from './begin.js'
import type { Context } from './context.js'
import { type Clock, within } from './clock.js'
import { FST_HOURLY_SYNC_LOCK_LOST, FST_HOURLY_SYNC_UNAVAILABLE } from './errors.js'
import { asError, errorRecord, isAnswer, logged, messageOf, plainRecord } from './failure.js'
import { lockHalves } from './lock-key.js'
import { isRecorded, toRecord, unrecorded, worker } from './record.js'
import type { Session } from './session.js'
import type { FinishRow } from './sql.js'
import type { ErrorRecord, RunRecord, RunState, SyncRun } from './types.js'
import { isAttempt, isFailure, isReported, judged, plainly, retryIn, type Told, type Verdict } from './verdict.js'

/** What it came to. Instants are epoch milliseconds on the server's clock. */
export interface Ended {
  record: RunRecord
  /** `null` when the database did not take the end. */
  now: number | null
  /** When it said so, on the steady clock of this process. */
  told: number
  notBefore: number | null
  /** Whether the watermark has moved to the end of its window. */
  advanced: boolean
}

interface Parts {
  context: Context
  session: Session
  started: Started
  run: SyncRun
  log: FastifyBaseLogger
  verdict: Verdict
  /** For each statement, milliseconds; shorter once the server closes. */
  limit: () => number
  /** Milliseconds. */
  lasted: number
}

/** Of an end that the database did not take. */
export const nothing = { now: null, told: 0, notBefore: null, advanced: false }

const DAY = 86_400_000
const PRUNED_AT_ONCE = 5_000
const RECORDING = 'recording the end of the run'

/**
 * Records the end of a run: on its own session and only while that holds the lock; otherwise, as what it then is, through the pool.
 * Says it in the log, and to the host's `onError`. Never rejects.
 */
export async function recordEnd (parts: Parts): Promise<Ended> {
  const { session, verdict, log, context: { settings } } = parts
  let told = judged(verdict, settings, log)
  let ended: Ended | undefined
  let unanswered: Error = new FST_HOURLY_SYNC_LOCK_LOST('its session was ended before')
  if (session.usable) {
    try {
      [told, ended] = await finishAnyhow(parts, told)
      if (ended === undefined) session.lose(new FST_HOURLY_SYNC_LOCK_LOST('the server says that this session does not hold it'))
      else await prune(parts, ended.now!)
    } catch (failure) {
      log.warn({ err: logged(asError(failure), settings.redact) }, 'the end of the run could not be recorded on its session')
      unanswered = new FST_HOURLY_SYNC_LOCK_LOST(`its end was not recorded, ${messageOf(asError(failure))}`, { cause: failure })
      session.destroy()
    }
  }
  ended ??= await recordLost(parts, told, session.lost ?? unanswered)
  say(parts, ended, told)
  return ended
}

/**
 * The host may have left the session with settings under which the server refuses the end (a role, a timeout, read-only): they are taken back then. What the
 * database cannot hold even so is recorded as a failure, for otherwise the run would be made again and again.
 *
 * @throws when the end is not recorded, and nobody says that the lock is gone
 */
async function finishAnyhow (parts: Parts, told: Told, tries = 1): Promise<[Told, Ended | undefined]> {
  try {
    return [told, await finish(parts, told)]
  } catch (refusal) {
    if (!isAnswer(refusal) || tries === 3) throw refusal
    if (tries === 1) await takeBackSettings(parts)
    return await finishAnyhow(parts, tries === 1 ? told : plainly(told, refusal, parts.context.settings), tries + 1)
  }
}

async function takeBackSettings ({ session, limit, context: { clock } }: Parts): Promise<void> {
  for (const command of ['reset session authorization', 'reset role', 'reset all']) await limited(clock, session.own(command, []), limit(), RECORDING)
}

async function finish ({ context, session, started, limit }: Parts, { verdict, error, transient }: Told): Promise<Ended | undefined> {
  const { settings, statements, clock, key } = context
  const { begun, backfill } = started
  const { classid, objid } = lockHalves(key)
  const result = verdict.state === 'succeeded' ? verdict.result : undefined
  const wait = verdict.state === 'succeeded' ? undefined : retryIn(settings, begun.attempt, verdict.error)
  const advanced = advances(verdict)
  const asked = session.own<FinishRow>(statements.finish, [
    settings.name, '', classid, objid, begun.id, begun.trigger, verdict.state, begun.slot, begun.attempt, begun.since, begun.until, begun.at,
    `${worker.host}:${worker.pid}`, json(result?.stats), json(error ?? undefined), advanced && backfill === null, json(result?.cursor),
    settings.every, isAttempt(verdict.state, begun), wait?.delay ?? null, wait?.atLeast ?? null,
    isReported(verdict.state, transient, started) ? begun.slot : null, begun.slice, begun.slices,
    backfill !== null && result !== undefined ? goesOn(backfill, begun.until) : null
  ])
  const [found] = await limited(clock, asked, limit(), RECORDING)
  if (!isRecorded(found)) return undefined
  return toEnded(found, clock.elapsed(), advanced)
}

function toEnded (row: FinishRow, told: number, advanced: boolean): Ended {
  return { record: toRecord(row), now: Number(row.now), told, notBefore: row.not_before === null ? null : Number(row.not_before), advanced }
}

function advances (verdict: Verdict): boolean {
  return verdict.state === 'succeeded' && verdict.result.advance !== false
}

/** Held: the process must live to see the end recorded. */
async function limited<T> (clock: Clock, asked: Promise<T>, ms: number, what: string): Promise<T> {
  return await within(clock, asked, { ms, held: true, blocked: () => {}, late: () => new FST_HOURLY_SYNC_UNAVAILABLE(what, ms) })
}

/** Where a backfill goes on, as JSON: null when it is done. */
function goesOn (plan: Plan, position: number): string {
  return JSON.stringify(position < plan.until ? { ...plan, position } : null)
}

/**
 * The session is gone, or the lock. What the run came to is then decided by what the database has: a finish whose answer was lost
 * stands; anything else is said as far as it can be, and never as a success.
 */
async function recordLost (parts: Parts, told: Told, why: Error): Promise<Ended> {
  const { context, session, started: { begun }, limit, lasted, log } = parts
  const { settings, clock } = context
  const { verdict } = told
  const { state, error } = verdict.state === 'succeeded' || session.lost !== undefined
    ? { state: 'lock-lost' as const, error: errorRecord(why, false, settings.redact) }
    : { state: verdict.state, error: told.error! } // whatever is no success has one
  const tell = async (ms?: number): Promise<FinishRow> => {
    try {
      return await askLost(parts, told, state, error, ms)
    } catch (refusal) {
      if (!isAnswer(refusal)) throw refusal
      return await askLost(parts, told, state, plainRecord(error), ms)
    }
  }
  try {
    const row = await limited(clock, tell(limit()), limit(), RECORDING)
    return toEnded(row, clock.elapsed(), row.state === 'succeeded' && advances(verdict))
  } catch (failure) {
    log.warn({ err: logged(asError(failure), settings.redact) }, 'the end of the run could not be recorded: unless it can be later, the next holder of the lock finds that it vanished')
    context.late.add(tell)
    return { ...nothing, record: unrecorded(settings.name, begun, state, lasted, error) }
  }
}

async function askLost ({ context, started }: Parts, { verdict, transient }: Told, state: RunState, error: ErrorRecord, ms?: number): Promise<FinishRow> {
  const { settings, statements, gate } = context
  const { begun } = started
  const wait = retryIn(settings, begun.attempt, verdict.state === 'succeeded' ? undefined : verdict.error)
  const [row] = await gate.ask<FinishRow>(statements.lost, [
    settings.name, '', begun.id, begun.trigger, begun.slot, begun.attempt, begun.since, begun.until, begun.at, `${worker.host}:${worker.pid}`, json(error), state,
    isAttempt(state, begun), wait.delay, wait.atLeast, isReported(state, transient, started) ? begun.slot : null, settings.every,
    begun.slice, begun.slices
  ], ms)
  return row!
}

/** At most once a day, and under the lock, so that one process does it. */
async function prune ({ context: { settings, statements, clock }, session, started: { prunedAt }, log, limit }: Parts, now: number): Promise<void> {
  if (prunedAt !== null && now - Number(prunedAt) < DAY && Number(prunedAt) <= now) return
  // the lock is still held: what waits here for somebody else ends with the session
  const own = async <R extends object>(text: string, values: unknown[]): Promise<R[]> => await limited(clock, session.own<R>(text, values), limit(), 'pruning the history')
  try {
    for (let gone = PRUNED_AT_ONCE; gone === PRUNED_AT_ONCE;) {
      const [row] = await own<{ gone: number }>(statements.prune, [settings.name, '', settings.keepFor, PRUNED_AT_ONCE])
      gone = row!.gone
    }
    await own(statements.pruned, [settings.name, ''])
  } catch (error) {
    log.warn({ err: logged(asError(error), settings.redact) }, 'the history could not be pruned')
  }
}

function say (parts: Parts, { record }: Ended, { verdict, transient }: Told): void {
  const { log, started, run, context: { settings } } = parts
  const fields = { duration: record.duration, attempt: record.attempt, ...(record.stats !== null && { stats: record.stats }) }
  if (record.state === 'succeeded') return log.info(fields, 'sync succeeded')
  const error = verdict.state === 'succeeded' ? undefined : verdict.error
  const level = isFailure(record.state) && !transient ? 'error' : 'warn'
  log[level]({ ...fields, err: error === undefined ? record.error : logged(error, settings.redact) }, `sync ${record.state}`)
  if (error !== undefined && isReported(record.state, transient, started)) callOnError(settings, error, run, log)
}

/** The host's own hook: whatever it does harms nothing. */
async function callOnError ({ onError, redact }: Parts['context']['settings'], error: Error, run: SyncRun, log: FastifyBaseLogger): Promise<void> {
  try {
    await onError?.(error, run)
  } catch (thrown) {
    log.error({ err: logged(asError(thrown), redact) }, 'onError threw')
  }
}

function json (value: unknown): string | null {
  return value === undefined ? null : JSON.stringify(value)
}
