import { seededRandom } from './random.js'

export interface CallLimitOptions {
  /** Milliseconds between two calls with one key. */
  callEvery: number
  /** From this many rows on, a page is large. */
  largePage: number
  /** Milliseconds of rest after a large page. */
  restFor: number
  /** Share of calls that come to nothing: 0 never, 1 always. */
  failureRate: number
  seed: number
}

export type Verdict =
  | { allowed: true }
  | { allowed: false, status: 429, retryAfter: number, message: string }
  | { allowed: false, status: 503, message: string }

export interface CallLimits {
  /** May this key call now? A call that is allowed, or that fails with 503, counts; a refused one does not. */
  ask: (key: string, now: number) => Verdict
  /** A page was handed out: a large one is followed by a rest. */
  served: (key: string, now: number, rows: number) => void
}

/** The temper of the external API, per key. `retryAfter` is in whole seconds, as the HTTP header wants it. */
export function callLimits (options: CallLimitOptions): CallLimits {
  const random = seededRandom(options.seed)
  const nextCallAt = new Map<string, number>()
  const restsUntil = new Map<string, number>()

  function refuse (until: number, now: number, message: string): Verdict {
    return { allowed: false, status: 429, retryAfter: Math.ceil((until - now) / 1000), message }
  }

  return {
    ask (key, now) {
      const restUntil = restsUntil.get(key) ?? 0
      if (now < restUntil) return refuse(restUntil, now, 'resting after a large page')
      const callAt = nextCallAt.get(key) ?? 0
      if (now < callAt) return refuse(callAt, now, `one call every ${options.callEvery} ms`)
      nextCallAt.set(key, now + options.callEvery)
      if (random() < options.failureRate) return { allowed: false, status: 503, message: 'out of order for a moment' }
      return { allowed: true }
    },
    served (key, now, rows) {
      if (rows >= options.largePage) restsUntil.set(key, now + options.restFor)
    }
  }
}
