import type { Attempt, Request } from './attempt.js'
import { type Clock, wait } from './clock.js'
import type { Ended } from './ending.js'
import type { Look } from './look.js'
import type { Settings } from './options.js'
import { awayDelay, nextSlot } from './schedule.js'

/** The loop of one sync: knows time, and calls one function. */
export interface Loop {
  /** Epoch milliseconds on this process's clock of the next look; `null` while one is under way or the loop is off. */
  readonly nextLook: number | null
  stop: () => void
}

interface Parts {
  settings: Settings
  clock: Clock
  attempt: (request: Request) => Promise<Attempt>
  /** Told of every look. */
  looked: (attempt: Attempt) => void
  /** 0 <= chance < 1. */
  chance: () => number
}

/**
 * Looks first after `startupDelay`, then when the next slot begins on the server's clock, sooner when there is a reason.
 * Only ever sleeps *for* a time that is reckoned from the server's answers, never *until* one of this process's clock.
 */
export function startLoop ({ settings, clock, attempt, looked, chance }: Parts): Loop {
  const stop = new AbortController()
  let nextLook: number | null = null
  let fresh = true
  let away = 0

  async function turn (): Promise<void> {
    let delay = settings.startupDelay
    while (await sleep(delay)) delay = await lookOnce()
  }

  /** A look, and the run it may become -> how long to sleep then. Not in the loop above, which would keep what a run was for as long as it sleeps. */
  async function lookOnce (): Promise<number> {
    const order = clock.now() // who has waited longest is served first
    const answer = await attempt({ trigger: 'schedule', force: false, fresh, order, hurry: false, signal: stop.signal })
    if (answer.started || answer.look !== null) fresh = false
    const answered = clock.elapsed()
    looked(answer)
    if (!answer.started) {
      away = answer.refusal === null ? 0 : away + 1
      return afterLook(settings, answer.outcome, answer.look, away, chance()) - (clock.elapsed() - answered)
    }
    away = 0
    const ended = await answer.run.finished
    // when the database did not take the end, its clock is this much further than at the look
    const now = ended.now === null ? answer.look!.now + clock.elapsed() - answered : ended.now + clock.elapsed() - ended.told
    return afterRun(settings, ended, now, chance())
  }

  async function sleep (ms: number): Promise<boolean> {
    nextLook = clock.now() + Math.max(0, ms)
    const passed = await wait(clock, ms, stop.signal)
    nextLook = null
    return passed
  }

  turn()
  return {
    get nextLook () { return nextLook },
    stop: () => { stop.abort() }
  }
}

/** How long to sleep after a look that did not become a run, milliseconds. */
export function afterLook (settings: Settings, outcome: string, look: Look | null, away: number, chance: number): number {
  if (away > 0) return awayDelay(away, chance)
  if (look === null) return settings.standby // the run before is not over in this process
  const slotIn = untilNextSlot(settings, look.now, chance)
  if (outcome === 'running') return Math.min(settings.standby, slotIn)
  if (look.hold === 'waiting' && look.notBefore !== null) return Math.min(look.notBefore - look.now, slotIn)
  return slotIn
}

/** How long to sleep after a run, milliseconds. */
export function afterRun (settings: Settings, { record, notBefore, now: recorded, advanced }: Ended, now: number, chance: number): number {
  const slot = record.slot!.getTime()
  const slotIn = now >= slot + settings.every ? 0 : untilNextSlot(settings, now, chance)
  const isLeft = advanced && record.slice < record.slices // the next slice did not begin
  if (record.state === 'succeeded') return isLeft ? Math.min(settings.standby, slotIn) : slotIn
  const isFailure = record.state === 'failed' || record.state === 'timed-out'
  if (!isFailure || recorded === null) return Math.min(settings.standby, slotIn) // the slot is due at once, but not in a circle
  return notBefore !== null && notBefore > now ? Math.min(notBefore - now, slotIn) : slotIn
}

/** A look too early would be a look for nothing: one millisecond is added for what was floored away. */
function untilNextSlot ({ every, offset, jitter }: Settings, now: number, chance: number): number {
  return nextSlot(now, every, offset) - now + 1 + Math.floor(chance * jitter)
}
