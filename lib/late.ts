import { type Clock, wait } from './clock.js'
import { isAnswer } from './failure.js'
import { awayDelay } from './schedule.js'

/**
 * Ends of runs that the database could not be told of when they came, a restart under way for example. They are told again for as long as this process
 * lives and its app is open; otherwise the next holder of the lock would take the run for one that died with its process.
 */
export interface LateEnds {
  /** @param tell - rejects when the database is still away, or refuses for good: what it says itself ends the matter */
  add: (tell: () => Promise<unknown>) => void
  /** Tells them now: before another run of this process begins. @throws when the database is still away */
  tell: () => Promise<void>
  stop: () => void
}

export function createLateEnds (clock: Clock): LateEnds {
  const untold = new Set<() => Promise<unknown>>()
  const stopped = new AbortController()
  let telling: Promise<void> | undefined

  async function tellAll (): Promise<void> {
    for (const tell of untold) {
      try {
        await tell()
      } catch (error) {
        if (!isAnswer(error)) throw error
      }
      untold.delete(tell)
    }
  }

  async function tell (): Promise<void> {
    telling ??= tellAll().finally(() => { telling = undefined })
    return await telling
  }

  async function keepTelling (): Promise<void> {
    for (let tries = 1; untold.size > 0 && await wait(clock, awayDelay(tries, Math.random()), stopped.signal); tries++) await tell().catch(() => {})
  }

  return {
    add (one) {
      untold.add(one)
      if (untold.size === 1) keepTelling()
    },
    tell,
    stop: () => { stopped.abort() }
  }
}
