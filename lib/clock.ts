/** The only place that reads a clock or arms a timer. */
export interface Clock {
  /** Epoch milliseconds of this process; may jump. */
  now: () => number
  /** Milliseconds since some start; never jumps, but may stand still while the machine sleeps. */
  elapsed: () => number
  /**
   * Calls `fn` once, after `ms`. The timer keeps the process alive only when `held`.
   *
   * @returns a function that calls it off
   */
  after: (ms: number, fn: () => void, held?: boolean) => () => void
}

export const systemClock: Clock = {
  now: () => Date.now(),
  elapsed: () => performance.now(),
  after: (ms, fn, held = false) => {
    const timer = setTimeout(fn, ms)
    if (!held) timer.unref()
    return () => clearTimeout(timer)
  }
}

/** Longest single wait: past it the clock is looked at again, for timers do not fire while a machine sleeps. */
export const STEP = 30_000

/**
 * Resolves `true` once `ms` have passed, or `false` as soon as `signal` aborts.
 *
 * Waits in steps of at most {@link STEP}, and believes whichever clock, the wall's or the steady one, says so first: for looks, which are
 * better early than missed. For what something may last see {@link waitSteadily}.
 */
export async function wait (clock: Clock, ms: number, signal?: AbortSignal): Promise<boolean> {
  const wall = clock.now() + ms
  const steady = clock.elapsed() + ms
  return await inSteps(clock, () => Math.min(wall - clock.now(), steady - clock.elapsed()), signal)
}

/**
 * The same by the steady clock alone: for limits and pauses, which a wall clock that is set ahead must not cut short.
 * The time that a machine sleeps may not count.
 */
export async function waitSteadily (clock: Clock, ms: number, signal?: AbortSignal): Promise<boolean> {
  const end = clock.elapsed() + ms
  return await inSteps(clock, () => end - clock.elapsed(), signal)
}

async function inSteps (clock: Clock, rest: () => number, signal?: AbortSignal): Promise<boolean> {
  for (;;) {
    if (signal?.aborted) return false
    const left = rest()
    if (!(left > 0)) return true // also when ms is no number
    await new Promise<void>(resolve => {
      const end = (): void => {
        cancel()
        signal?.removeEventListener('abort', end)
        resolve()
      }
      // a timer may fire a millisecond early
      const cancel = clock.after(Math.min(STEP, Math.ceil(left)), end)
      signal?.addEventListener('abort', end)
    })
  }
}

/** When to stop waiting for something. */
export interface Patience {
  /** Milliseconds; `Infinity` for as long as it takes. */
  ms: number
  /** What to reject with when they have passed. */
  late: () => Error
  /** Rejects with its reason. */
  signal?: AbortSignal
  /** Whether the wait keeps the process alive. */
  held?: boolean
  /**
   * Told by how much a blocked event loop let the end of the wait pass unseen, milliseconds. The answer may lie in the socket since: the wait goes on for as long.
   * Without it the wait is over.
   */
  blocked?: (ms: number) => void
}

/** A timer this late was not the loop's usual business. Milliseconds. */
const BLOCKED = 100

/**
 * Settles as `promise` does, unless patience ends first.
 * What the promise comes to afterwards is the caller's to handle; it is never an unhandled rejection.
 */
export async function within<T> (clock: Clock, promise: Promise<T>, { ms, late, signal, held, blocked }: Patience): Promise<T> {
  promise.catch(() => {})
  let end!: () => void
  const over = new Promise<never>((_resolve, reject) => {
    let cancel = (): void => {}
    const arm = (ms: number): void => {
      const due = clock.elapsed() + ms
      cancel = clock.after(ms, () => {
        const over = clock.elapsed() - due
        if (blocked === undefined || over < BLOCKED) return reject(late())
        blocked(over)
        arm(over)
      }, held)
    }
    if (ms !== Infinity) arm(Math.max(0, ms))
    const abort = (): void => reject(signal!.reason)
    if (signal?.aborted) abort()
    signal?.addEventListener('abort', abort)
    end = () => {
      cancel()
      signal?.removeEventListener('abort', abort)
    }
  })
  try {
    return await Promise.race([promise, over])
  } finally {
    end()
  }
}
