import { systemClock, type Clock } from '../../lib/clock.js'

/** A process's clock that goes only when it is told to. */
export interface HandClock extends Clock {
  /** Lets so much time pass, with everything that falls due in it in order. */
  advance: (ms: number) => Promise<void>
  /** The machine is asleep for so long: what fell due in it comes at the end, all at once. */
  sleep: (ms: number) => void
  /** How many timers are armed. */
  readonly armed: number
}

export function handClock (start = 1_700_000_000_000): HandClock {
  let passed = 0
  const timers = new Set<{ due: number, fn: () => void }>()

  return {
    now: () => start + passed,
    elapsed: () => passed,
    after (ms, fn) {
      const timer = { due: passed + ms, fn }
      timers.add(timer)
      return () => { timers.delete(timer) }
    },
    async advance (ms) {
      const end = passed + ms
      for (;;) {
        const [next] = [...timers].filter(({ due }) => due <= end).sort((a, b) => a.due - b.due)
        if (next === undefined) break
        passed = Math.max(passed, next.due)
        timers.delete(next)
        next.fn()
        await new Promise(resolve => setImmediate(resolve)) // what was waiting may arm another
      }
      passed = end
    },
    sleep (ms) {
      passed += ms
      for (const timer of [...timers].filter(({ due }) => due <= passed)) {
        timers.delete(timer)
        timer.fn()
      }
    },
    get armed () { return timers.size }
  }
}

/** A process's clock that goes so many times too fast: limits are then reached sooner. */
export function fastClock (times: number): Clock {
  const start = Date.now()
  const elapsed = (): number => performance.now() * times
  const begin = elapsed()
  return {
    now: () => start + (elapsed() - begin),
    elapsed,
    after: (ms, fn, held) => systemClock.after(ms / times, fn, held)
  }
}
