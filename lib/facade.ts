import { FST_HOURLY_SYNC_INVALID_QUERY } from './errors.js'
import type { ClientFacade, Query } from './types.js'

type Callback = (error: Error | null, result?: unknown) => void

/**
 * Looks like a `pg` client to a query builder: `query(text | config, values?, callback?)`.
 *
 * @throws FST_HOURLY_SYNC_INVALID_QUERY for a cursor or a stream: what it reads would bypass the queue of the session
 */
export function createFacade (query: Query): ClientFacade {
  function facade (statement: any, values?: unknown[] | Callback, callback?: Callback): unknown {
    if (typeof statement?.submit === 'function') throw new FST_HOURLY_SYNC_INVALID_QUERY('a cursor or stream')
    const done = typeof values === 'function' ? values : callback ?? statement?.callback as Callback | undefined
    const answer = query(statement, Array.isArray(values) ? values : undefined)
    if (done === undefined) return answer
    // outside the promise: what a callback throws is its owner's, as with pg
    answer.then(result => setImmediate(done, null, result), error => setImmediate(done, error))
  }
  return { query: facade as ClientFacade['query'] }
}
