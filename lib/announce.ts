import { wait } from './clock.js'
import type { Context } from './context.js'
import { type Begun, worker } from './record.js'
import type { Session } from './session.js'
import type { Progress } from './types.js'

/** How often others are told at most, and how soon it is tried again while the session is at work or in a transaction. Milliseconds. */
const PACE = 1_000
const AGAIN = 200

/** What `pg_stat_activity` shows, bytes. */
const SHOWN = 63

/**
 * Who holds the lock and how far it is, in the name of its session: where every process can see it, and where it is gone with the session.
 * A long name is cut, then a long host; process id and progress are not. What is not ASCII the server would not show.
 */
export function applicationName (name: string, at?: { id: string, progress: Progress }): string {
  const { done, total } = at?.progress ?? { done: 0, total: null }
  const tail = at === undefined ? '' : ` ${tag(at.id)}:${done}${total === null ? '' : `/${total}`}`
  const who = `:${worker.pid}${tail}`
  const host = worker.host.slice(0, Math.max(0, Math.min(20, SHOWN - 14 - who.length)))
  const room = SHOWN - 'hourly-sync:@'.length - host.length - who.length
  return `hourly-sync:${name.replaceAll(/[^ -~]/gu, '?').slice(0, Math.max(0, room))}@${host}${who}`
}

/** The progress of a run, as the name of its session tells it; `null` when it tells of none, or of another run. */
export function announced (applicationName: string | null, id: string | undefined): Progress | null {
  const found = /^hourly-sync:.*:\d+ ([\da-f]{4}):(\d{1,16})(?:\/(\d{1,16}))?$/.exec(applicationName ?? '')
  if (found === null || id === undefined || found[1] !== tag(id)) return null
  return { done: Number(found[2]), total: found[3] === undefined ? null : Number(found[3]) }
}

/** Enough to tell a run from the one before it on the same session. */
function tag (id: string): string {
  return id.slice(0, 4)
}

/** A progress as it can be told: whole numbers that are not negative. */
export function tidy (done: unknown, total: unknown): Progress {
  const whole = (value: unknown): number | null =>
    typeof value === 'number' && Number.isFinite(value) ? Math.min(Math.max(0, Math.round(value)), Number.MAX_SAFE_INTEGER) : null
  return { done: whole(done) ?? 0, total: whole(total) }
}

interface Parts {
  context: Context
  session: Session
  begun: Begun
  /** Nothing more is told once it aborts. */
  over: AbortSignal
}

/**
 * Tells others how far a run is: the latest of what it is given, at most once a second, while the session has nothing else to do or, when that
 * does not come within a second, between two statements of the host. In an open transaction nothing is told before its end.
 * What could not be told is no harm; a session that is gone is found out by itself.
 */
export function createAnnouncer ({ context, session, begun, over }: Parts): (progress: Progress) => void {
  const { clock, settings, statements } = context
  let latest: Progress | undefined
  let since = 0 // when the first came that is not told
  let telling = false
  let told = -Infinity

  /** In its turn, which may be long after the run has gone on or ended. */
  function values (): unknown[] | undefined {
    if (over.aborted) return undefined
    const progress = latest!
    latest = undefined
    told = clock.elapsed()
    return [applicationName(settings.name, { id: begun.id, progress })]
  }

  async function tell (): Promise<void> {
    telling = true
    while (latest !== undefined) {
      if (!await wait(clock, Math.max(told + PACE - clock.elapsed(), 0), over)) break
      const patience = session.busy() ? since + PACE - clock.elapsed() : 0
      if (patience <= 0 && await session.aside(statements.announce, values).catch(() => true)) continue
      if (!await wait(clock, patience > 0 ? Math.min(patience, AGAIN) : AGAIN, over)) break
    }
    telling = false
  }

  return progress => {
    if (latest === undefined) since = clock.elapsed()
    latest = progress
    if (!telling) tell().catch(() => {}) // of a driver that does what is not foreseen: then nothing more is told
  }
}
