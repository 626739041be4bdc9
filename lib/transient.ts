import { duration } from './duration.js'
import { FST_HOURLY_SYNC_INVALID_OPTION } from './errors.js'

/** What a {@link TransientSyncError} can carry besides its message. */
export interface TransientSyncErrorOptions {
  /** Milliseconds, or a string such as `'90s'`: no retry before it has passed. */
  retryAfter?: number | string
  cause?: unknown
}

/**
 * Thrown by a sync for a failure that is expected to pass: it is logged at `warn` and not handed to `onError`.
 *
 * @throws FST_HOURLY_SYNC_INVALID_OPTION when `retryAfter` is no duration
 */
export class TransientSyncError extends Error {
  override readonly name = 'TransientSyncError'
  readonly code = 'FST_HOURLY_SYNC_TRANSIENT'
  /** Milliseconds. */
  readonly retryAfter: number | undefined

  constructor (message: string, options: TransientSyncErrorOptions = {}) {
    super(message, 'cause' in options ? { cause: options.cause } : undefined)
    const { retryAfter } = options
    this.retryAfter = retryAfter === undefined ? undefined : duration(retryAfter)
    if (retryAfter !== undefined && this.retryAfter === undefined) {
      throw new FST_HOURLY_SYNC_INVALID_OPTION('retryAfter', "milliseconds or a string such as '90s'", String(retryAfter))
    }
  }
}
