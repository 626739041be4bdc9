import { FST_HOURLY_SYNC_UNOBSERVED } from './errors.js'

/** A promise that knows whether anybody looks at it. `await` and `Promise.all` look through `then`. */
class Watched<T> extends Promise<T> {
  seen = false

  override then<A = T, B = never> (
    onfulfilled?: ((value: T) => A | PromiseLike<A>) | null,
    onrejected?: ((reason: any) => B | PromiseLike<B>) | null
  ): Promise<A | B> {
    this.seen = true
    return super.then(onfulfilled, onrejected)
  }

  /** Never an unhandled rejection, and does not count as looking. Resolves when this has settled. */
  quiet (onrejected: (reason: unknown) => void): Promise<void> {
    return super.then(() => {}, onrejected)
  }

  // what `then` gives back is an ordinary promise
  static override get [Symbol.species] (): PromiseConstructor {
    return Promise
  }
}

/** Keeps an eye on the calls of a host, so that a write that failed unseen cannot pass for a success. */
export interface Watch {
  /** Calls `work` and watches its promise. A rejection that nobody handles does not end the process. */
  over: <T>(method: string, work: () => Promise<T>) => Promise<T>
  /** Whether a call is under way. */
  busy: () => boolean
  /** Waits for the calls under way -> the first failure that nobody has looked at so far. */
  unseen: () => Promise<Error | undefined>
}

export function createWatch (): Watch {
  const failures: Array<{ method: string, cause: unknown, promise: Watched<unknown> }> = []
  const underWay = new Set<Promise<void>>()

  return {
    over<T> (method: string, work: () => Promise<T>): Promise<T> {
      const promise = new Watched<T>((resolve, reject) => { work().then(resolve, reject) })
      const told = promise.quiet(cause => { if (!promise.seen) failures.push({ method, cause, promise }) })
      underWay.add(told)
      told.then(() => underWay.delete(told))
      return promise
    },
    busy: () => underWay.size > 0,
    async unseen () {
      // a queue that is idle says nothing yet of the promises that its last turn is about to reject
      await Promise.all(underWay)
      const failure = failures.find(({ promise }) => !promise.seen)
      return failure && new FST_HOURLY_SYNC_UNOBSERVED(failure.method, { cause: failure.cause })
    }
  }
}
