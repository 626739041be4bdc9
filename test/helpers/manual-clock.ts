import type { Clock } from '../../lib/clock.js'

/** A clock that stands still until it is told otherwise. */
export interface ManualClock extends Clock {
  /** Lets time pass: both clocks move, and timers fire in their order. Returns when what they started has had a turn. */
  pass: (ms: number) => Promise<void>
  /** Moves the wall clock alone, as an administrator or a time server does. */
  jump: (ms: number) => void
  /** Fires the next timer before its time. */
  early: (ms: number) => Promise<void>
  /** What the timers under way were armed with, milliseconds. */
  readonly armed: number[]
}

export function createManualClock (start = 0): ManualClock {
  interface Timer { ms: number, due: number, fn: () => void }
  const timers = new Set<Timer>()
  let wall = start
  let steady = 0

  const turn = async (): Promise<void> => await new Promise(resolve => setImmediate(resolve))
  const next = (): Timer | undefined => [...timers].sort((a, b) => a.due - b.due)[0]
  const fire = async (timer: Timer): Promise<void> => {
    timers.delete(timer)
    timer.fn()
    await turn()
  }

  return {
    now: () => wall,
    elapsed: () => steady,
    after (ms, fn) {
      const timer = { ms, due: steady + ms, fn }
      timers.add(timer)
      return () => { timers.delete(timer) }
    },
    async pass (ms) {
      const end = steady + ms
      for (let timer = next(); timer !== undefined && timer.due <= end; timer = next()) {
        wall += timer.due - steady
        steady = timer.due
        await fire(timer)
      }
      wall += end - steady
      steady = end
      await turn()
    },
    jump (ms) { wall += ms },
    async early (ms) {
      const timer = next()!
      wall += timer.due - ms - steady
      steady = timer.due - ms
      await fire(timer)
    },
    get armed () { return [...timers].map(timer => timer.ms) }
  }
}
