import { applicationName } from './announce.js'
import { begin, type Plan, proceed, proceedBackfill, type Started } from './begin.js'
import { within } from './clock.js'
import type { Context } from './context.js'
import type { Ended } from './ending.js'
import { FST_HOURLY_SYNC_UNAVAILABLE } from './errors.js'
import { asError, logged } from './failure.js'
import { toHolder, worker } from './record.js'
import { conduct, type Conducted, FINISH_LIMIT } from './run.js'
import type { Session } from './session.js'
import type { Holder } from './types.js'

/** What is done under one lock: a run, its further slices, or a backfill with the due slots in between. */
export interface Serving extends Omit<Conducted, 'begun' | 'wasCut'> {
  /** Id of the first run. */
  readonly id: string
  /** This process as the holder, as far as it is known without the database; `null` once the lock is given back, or lost. */
  readonly holder: Holder | null
  /** Whether the lock is given back; the host's function may still be at work. */
  readonly over: boolean
  /** Resolves once the lock is given back, with the end of the last run; of a backfill, with that of its last slice. Never rejects. */
  readonly finished: Promise<Ended>
  /** Ends a backfill; a due slot that is just being served is served to its end. */
  stopBackfill: (why: Error) => void
}

interface Parts {
  context: Context
  session: Session
  first: Started
}

export function serve ({ context, session, first }: Parts): Serving {
  const { settings, clock } = context
  let started = first
  let conducted = conduct({ context, session, started })
  let plan: Plan | null = first.backfill
  let slice = 1 // of the backfill
  let stopped: Error | undefined
  let closing: Error | undefined
  let isOver = false
  let disarm = (): void => {}

  /** The run after the one that has ended, or nothing when all is done. */
  async function next (ended: Ended): Promise<Started | undefined> {
    if (closing !== undefined || !session.usable) return undefined
    if (conducted.wasCut || !conducted.settled) return undefined // never two functions of a host side by side
    const { state } = ended.record
    if (state === 'succeeded' && ended.advanced) {
      const further = started.backfill === null ? await proceed(context, session, started) : undefined
      if (further !== undefined) return further
    }
    if (plan === null) return undefined
    if (started.backfill !== null) {
      if (state !== 'succeeded') return undefined
      plan = { ...plan, position: started.begun.until }
      slice++
      if (plan.position >= plan.until) return undefined
      const due = await begin(context, session, { trigger: 'schedule', force: false, fresh: false })
      if (due.started !== null) return due.started
    }
    if (stopped !== undefined) return undefined
    return await proceedBackfill(context, session, started, plan, slice)
  }

  /** Begins the run after the one that has ended -> whether there is one. */
  async function goOn (ended: Ended): Promise<boolean> {
    try {
      const late = (): Error => new FST_HOURLY_SYNC_UNAVAILABLE('the begin of the next slice', FINISH_LIMIT)
      const further = await within(clock, next(ended), { ms: FINISH_LIMIT, held: true, late })
      if (further === undefined) return false
      conducted = conduct({ context, session, started: further })
      started = further
    } catch (error) {
      session.destroy()
      context.log.warn({ err: logged(asError(error), settings.redact) }, 'the next slice could not begin')
      return false
    }
    if (closing !== undefined) conducted.close(closing)
    else if (stopped !== undefined && started.backfill !== null) conducted.close(stopped)
    return true
  }

  async function carryOut (): Promise<Ended> {
    let last: Ended
    for (;;) {
      const ended = await conducted.finished
      if (started.backfill !== null || plan === null) last = ended
      if (!await goOn(ended)) break
    }
    await session.release()
    isOver = true
    disarm()
    return last!
  }

  const finished = carryOut()

  return {
    id: first.begun.id,
    get over () { return isOver },
    get holder () {
      if (isOver || !session.usable) return null
      const shown = { backend: session.backend, connected: null, application_name: applicationName(settings.name), address: null }
      return toHolder(shown, { ...started.begun, ...worker })
    },
    get progress () { return conducted.progress },
    get aborted () { return conducted.aborted },
    finished,
    get settled () { return conducted.settled },
    close (why) {
      closing = why
      conducted.close(why)
      // also between two runs, where nothing else looks at the time; held: the process must live to see it
      if (!isOver) disarm = clock.after(settings.closeTimeout, session.destroy, true)
    },
    stopBackfill (why) {
      stopped = why
      if (started.backfill !== null) conducted.close(why)
    }
  }
}
