import { duration } from './duration.js'

/** What a {@link TransientSyncError} can carry besides its message. */
export interface TransientSyncErrorOptions {
  /**
   * Milliseconds, of which a part counts as a whole one, or a string such as `'90s'`: no retry before it has passed. One that cannot be used is left out: it often comes from a
   * header, and the failure it came with matters more.
   */
  retryAfter?: number | string | null
  cause?: unknown
}

/**
 * Thrown by a sync for a failure that is expected to pass: it is logged at `warn` and not handed to `onError`.
 */
export class TransientSyncError extends Error {
  override readonly name = 'TransientSyncError'
  readonly code = 'FST_HOURLY_SYNC_TRANSIENT'
  /** Milliseconds. */
  readonly retryAfter: number | undefined

  constructor (message: string, options: TransientSyncErrorOptions = {}) {
    const given = Object(options) as TransientSyncErrorOptions // whatever it is: the failure matters more
    super(message, 'cause' in given ? { cause: given.cause } : undefined)
    const { retryAfter } = given
    this.retryAfter = duration(typeof retryAfter === 'number' && retryAfter > 0 ? Math.ceil(retryAfter) : retryAfter)
  }
}
