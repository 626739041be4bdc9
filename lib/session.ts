/**
 * The lock session: the one PostgreSQL session that holds the advisory lock of a sync *and through which its run writes*.
 *
 * **What the lock promises.** A session-level advisory lock belongs to a PostgreSQL session, is granted to one at a time, and is let go by
 * the server when that session ends, for whatever reason: a killed process, a cut network, an administrator. No row says "locked",
 * so nothing is left behind to clean up.
 *
 * **What happens when the session drops.** The lock is free and another process may take it, while this one may still be running, for it
 * learns of the loss only from its socket or its heartbeat. That is harmless for what goes through this session: it is gone,
 * so not one more statement of the old run arrives, and a stale holder cannot overwrite a newer one. No fencing token is needed, because
 * the thing that is lost is the thing that writes. What the host does elsewhere (another client, the external API) is only
 * *told*: `run.signal` aborts.
 *
 * **Why a transaction pooler cannot work.** It lends one server session to many clients, a transaction at a time. The lock then belongs to whoever
 * is served by that session next, two processes are both told `true`, and the lock stays when the run is over. That every answer of
 * ours names the backend it came from is the last guard against it.
 *
 * **What decides, and what is only a guess.** That a run succeeded is decided by the database: its end is inserted where `pg_locks` shows the
 * lock granted to this very session, or not at all. The `lost` flag in here is a guess in one direction only: it may come late, never
 * early enough to matter, and it stops us from trying what the server would refuse anyway.
 *
 * **A queue.** A session does one thing at a time. Statements of the host, of its transactions and our own wait for each other here;
 * the driver is never handed two at once.
 */
import { AsyncLocalStorage } from 'node:async_hooks'
import type { QueryConfig, QueryResult } from 'pg'
import { type Clock, within } from './clock.js'
import type { Lease } from './connections.js'
import {
  FST_HOURLY_SYNC_INVALID_QUERY, FST_HOURLY_SYNC_LOCK_LOST, FST_HOURLY_SYNC_NESTED, FST_HOURLY_SYNC_OPEN_TRANSACTION, FST_HOURLY_SYNC_POOLED,
  FST_HOURLY_SYNC_ROLLED_BACK, FST_HOURLY_SYNC_RUN_ENDED, FST_HOURLY_SYNC_TRANSACTION_ENDED, FST_HOURLY_SYNC_UNAVAILABLE
} from './errors.js'
import { asError, endsSession } from './failure.js'
import { createQueue } from './queue.js'
import { ours } from './sql.js'
import type { Query, Transaction } from './types.js'
import { createWatch } from './watched.js'

export interface Session {
  readonly backend: number
  /** Why the lock is no longer ours, once it is known. */
  readonly lost: Error | undefined
  /** A statement of ours: waits its turn, and checks that it reached the backend that holds the lock. */
  own: <R extends object>(text: string, values: unknown[]) => Promise<R[]>
  /** What the host is given. */
  readonly host: {
    query: Query
    transaction: <T>(fn: (tx: Transaction) => Promise<T> | T) => Promise<T>
  }
  /** From now on every call of the host rejects. Those already waiting still have their turn. */
  seal: () => void
  /**
   * Waits for what the host had begun. Then the session is idle: an open transaction is rolled back.
   *
   * @returns what was wrong: a failure that nobody looked at, or a transaction left open
   */
  settle: () => Promise<Error | undefined>
  /** Whether something of the host is under way on the session. */
  busy: () => boolean
  /**
   * Proves that the lock is still ours, by a look; in an open transaction, by a sign of life, for the server ends a session that is idle in one as it does any other.
   * Rests while a statement is in flight: its result is the proof. Loses the lock when it is not ours, or when nobody answers.
   */
  prove: () => Promise<void>
  lose: (why: Error) => void
  /** Calls `fn` once, when the loss of the lock becomes known; at once if it is. */
  whenLost: (fn: (why: Error) => void) => void
  /** Lets the lock go and ends the session. Never fails: a session that cannot be unlocked is destroyed, which unlocks it. */
  release: () => Promise<void>
  destroy: () => void
}

export interface SessionOptions {
  lease: Lease
  clock: Clock
  /** Process id of the backend that answered the claim. */
  backend: number
  /** `[text, values]` of the look and of the unlock. */
  proof: [string, unknown[]]
  unlock: [string, unknown[]]
}

/** How long a look on the own session, or an unlock, may take. Milliseconds. */
const ANSWER_LIMIT = 5_000
const UNLOCK_LIMIT = 1_000

export function createSession ({ lease, clock, backend, proof, unlock }: SessionOptions): Session {
  const { client } = lease
  const queue = createQueue()
  const wire = createQueue() // one level down: a transaction has its turn for as long as it is open, and is proved in between
  const watch = createWatch()
  const inside = new AsyncLocalStorage<{ open: boolean }>()
  let lost: Error | undefined
  let tell = (_why: Error): void => {}
  let sealed = false
  let destroyed = false

  const lose = (why: Error): void => {
    if (lost !== undefined || destroyed) return
    lost = why instanceof FST_HOURLY_SYNC_LOCK_LOST ? why : new FST_HOURLY_SYNC_LOCK_LOST(why.message, { cause: why })
    end() // at once: what is under way fails, and nothing more of this run can arrive
    tell(lost)
  }
  // `on`: a dying backend makes two errors, and the second without a listener ends the process
  const dropped = (error: Error): void => lose(error)
  client.on('error', dropped)
  client.on('end', () => lose(new Error('the session has ended')))

  /** Hands one statement to the driver; the caller has the turn. */
  const send = async (statement: string | QueryConfig, values?: unknown[]): Promise<QueryResult<any>> => await wire.turn(async () => {
    if (lost !== undefined) throw lost
    if (destroyed) throw new FST_HOURLY_SYNC_RUN_ENDED('query')
    try {
      return await client.query(statement as string, values)
    } catch (error) {
      if (endsSession(error)) lose(error as Error)
      throw lost ?? error
    }
  })

  const own: Session['own'] = async (text, values) => await queue.turn(async () => {
    const { rows } = await send(ours(text, values))
    const other = rows.find(row => row.backend !== undefined && row.backend !== backend)
    if (other !== undefined) {
      const error = new FST_HOURLY_SYNC_POOLED(`the lock was taken by backend ${backend}, the answer came from ${other.backend}`)
      lose(error)
      throw error
    }
    return rows
  })

  /** A call of the host: refused at once where it could only wait for itself or for a run that is over. */
  const admitted = <T>(method: string, work: () => Promise<T>): Promise<T> => watch.over(method, async () => {
    if (inside.getStore()?.open === true) throw new FST_HOURLY_SYNC_NESTED(method)
    if (lost !== undefined) throw lost
    if (sealed) throw new FST_HOURLY_SYNC_RUN_ENDED(method)
    return await queue.turn(work)
  })

  async function transact<T> (fn: (tx: Transaction) => Promise<T> | T): Promise<T> {
    if (client.getTransactionStatus() !== 'I') throw new FST_HOURLY_SYNC_OPEN_TRANSACTION('before run.transaction')
    await send('begin')
    const state = { open: true }
    const statements = createQueue()
    const tx: Transaction = {
      query: (statement, values) => watch.over('transaction', async () => {
        if (!state.open) throw lost ?? new FST_HOURLY_SYNC_TRANSACTION_ENDED('query')
        return await statements.turn(async () => await send(checked(statement), values))
      })
    }
    try {
      const result = await inside.run(state, async () => await fn(tx))
      state.open = false
      await statements.idle()
      const { command } = await send('commit')
      if (command !== 'COMMIT') throw new FST_HOURLY_SYNC_ROLLED_BACK()
      return result
    } catch (error) {
      state.open = false
      await statements.idle()
      await rollback()
      throw error
    }
  }

  /** Leaves the session idle, or lost. */
  async function rollback (): Promise<void> {
    if (lost !== undefined || destroyed || client.getTransactionStatus() === 'I') return
    await send('rollback').catch(error => lose(asError(error)))
  }

  function busy (): boolean {
    return queue.busy() || client.getTransactionStatus() !== 'I'
  }

  function end (): void {
    if (destroyed) return
    destroyed = true
    client.removeListener('error', dropped)
    lease.destroy()
  }

  return {
    backend,
    get lost () { return lost },
    own,
    lose,
    whenLost (fn) {
      tell = fn
      if (lost !== undefined) fn(lost)
    },
    host: {
      query: (statement, values) => admitted('query', async () => await send(checked(statement), values)),
      transaction: fn => admitted('transaction', async () => await transact(fn))
    },
    seal: () => { sealed = true },
    async settle () {
      await queue.idle()
      const left = lost === undefined && client.getTransactionStatus() !== 'I'
      if (left) await queue.turn(rollback)
      return left ? new FST_HOURLY_SYNC_OPEN_TRANSACTION('when the sync had ended') : await watch.unseen()
    },
    busy,
    async prove () {
      if (wire.busy()) return
      const late = (): Error => new FST_HOURLY_SYNC_UNAVAILABLE('the proof of the lock', ANSWER_LIMIT)
      // in a transaction of the host nothing is looked at, which might fail it or fix its snapshot: that the session answers is enough
      const answer = busy() ? send('').then(() => true) : own<{ backend: number, held: boolean }>(...proof).then(([found]) => found?.held === true)
      try {
        if (!await patiently(clock, answer, late)) lose(new Error('the server says that this session does not hold it'))
      } catch (error) {
        lose(asError(error))
      }
    },
    async release () {
      if (lost === undefined && !destroyed) {
        // whatever comes of it: the end of the session unlocks
        await within(clock, own(...unlock), { ms: UNLOCK_LIMIT, late: () => new FST_HOURLY_SYNC_UNAVAILABLE('the unlock', UNLOCK_LIMIT), held: true }).catch(() => {})
      }
      end()
    },
    destroy: end
  }
}

/**
 * Waits twice the limit. A limit that fires because the event loop was blocked is no evidence: the answer may lie in the socket already, so it
 * is judged only after one more turn of the loop.
 */
async function patiently<T> (clock: Clock, answer: Promise<T>, late: () => Error): Promise<T> {
  for (let tries = 0; tries < 2; tries++) {
    const unanswered = await within(clock, answer, { ms: ANSWER_LIMIT, late }).then(() => false, error => error instanceof FST_HOURLY_SYNC_UNAVAILABLE)
    if (!unanswered) return await answer
    await new Promise(resolve => setImmediate(resolve))
  }
  return await Promise.race([answer, Promise.reject(late())])
}

/** @throws FST_HOURLY_SYNC_INVALID_QUERY for a cursor or a stream, which would hold the session, and for anything that is no query */
export function checked (statement: unknown): string | QueryConfig {
  if (typeof statement === 'string') return statement
  const config = statement as QueryConfig & { submit?: unknown, callback?: unknown } | null | undefined
  if (typeof config?.text !== 'string' || typeof config.submit === 'function') {
    throw new FST_HOURLY_SYNC_INVALID_QUERY(typeof config?.submit === 'function' ? 'a cursor or stream' : statement === null ? 'null' : typeof statement)
  }
  // with a callback the driver gives no promise, and the queue would not wait
  return config.callback === undefined ? config : { ...config, callback: undefined } as QueryConfig
}
