import type { AsyncLocalStorage } from 'node:async_hooks'
import type { ClientBase, QueryConfig, QueryResult } from 'pg'
import { fn as callable } from './checks.js'
import {
  FST_HOURLY_SYNC_INVALID_QUERY, FST_HOURLY_SYNC_NESTED, FST_HOURLY_SYNC_OPEN_TRANSACTION, FST_HOURLY_SYNC_ROLLED_BACK, FST_HOURLY_SYNC_RUN_ENDED,
  FST_HOURLY_SYNC_TRANSACTION_ENDED
} from './errors.js'
import { createLifetime } from './lifetime.js'
import { createQueue, type Queue } from './queue.js'
import { ours, plain } from './sql.js'
import type { Query, Transaction } from './types.js'
import { createUpsert, nestedContext, type Memory, type Statements, type Upsert } from './upsert.js'
import { createWatch } from './watched.js'

/** What one run is given of the lock session. When the run has ended it can use it no more, though the session may go on to the next. */
export interface Lent {
  query: Query
  transaction: <T>(fn: (tx: Transaction) => Promise<T> | T) => Promise<T>
  /** Each batch has a turn of its own, so that what makes the rows may use the session as well. */
  upsert: Upsert
  /** Any other call of the host that uses the session: refused where a query is, and where a transaction was begun by hand; in its turn, and watched. */
  apart: <T>(method: string, work: (send: (text: string, values: unknown[]) => Promise<unknown[]>) => Promise<T>) => Promise<T>
  /** From now on every call of the host rejects. Those already waiting still have their turn, and an upsert goes on to its end. */
  seal: () => void
  /** The run is over, whatever the host is still doing: seals, sends nothing more for it, and waits neither for a transaction's function nor for what makes rows. */
  end: () => void
  /** Whether a call of the host is under way. */
  busy: () => boolean
  /**
   * Waits for what the host had begun; once ended, for the statement in flight. Then the session is idle: an open transaction is rolled back.
   *
   * @returns what was wrong: a failure that nobody looked at, or a transaction left open
   */
  settle: () => Promise<Error | undefined>
}

/** Tells a call from inside a transaction from any other. One for all runs of a sync: a storage that was used once costs every promise of the process for good. */
export type Inside = AsyncLocalStorage<{ open: boolean, queue: Queue }>

interface Parts {
  client: ClientBase
  queue: Queue
  inside: Inside
  /** Hands one statement to the driver; the caller has the turn. */
  send: (statement: string | QueryConfig, values?: unknown[]) => Promise<QueryResult<any>>
  /** Leaves the session idle, or lost. */
  rollback: () => Promise<void>
  lost: () => Error | undefined
  /** What upserts know of the tables. */
  memory: Memory
  /** Of the run. */
  signal: AbortSignal | undefined
}

export function lend ({ client, queue, inside, send: sendOn, rollback, lost, memory, signal }: Parts): Lent {
  const watch = createWatch()
  const lifetime = createLifetime(() => gone('upsert'))
  let sealed = false

  const gone = (method: string): Error => lost() ?? new FST_HOURLY_SYNC_RUN_ENDED(method)

  /** @throws for what has waited until the run was over */
  function needLife (method: string): void {
    if (lifetime.over) throw gone(method)
  }

  const send: typeof sendOn = async (statement, values) => {
    needLife('query')
    return await sendOn(statement, values)
  }

  /** @throws where a call could only wait for itself, or comes from a run that is over */
  function admit (method: string): void {
    const around = inside.getStore()
    if (around?.open === true && around.queue === queue) throw new FST_HOURLY_SYNC_NESTED(method)
    if (sealed || lost() !== undefined) throw gone(method)
  }

  function needIdle (method: string): void {
    if (client.getTransactionStatus() !== 'I') throw new FST_HOURLY_SYNC_OPEN_TRANSACTION(`before run.${method}`)
  }

  const admitted = <T>(method: string, work: () => Promise<T>): Promise<T> => watch.over(method, async () => {
    admit(method)
    return await queue.turn(async () => {
      needLife(method)
      return await work()
    })
  })

  const apart: Lent['apart'] = (method, work) => admitted(method, async () => {
    needIdle(method)
    return await work(async (text, values) => (await send(ours(text, values))).rows)
  })

  /** As {@link Statements}, for whoever has the turn. */
  const sendPlain: Statements['query'] = async (text, values, name) => await send(plain(text, values, name))

  async function transact<T> (fn: (tx: Transaction) => Promise<T> | T): Promise<T> {
    await send('begin')
    const state = { open: true, queue }
    const statements = createQueue()
    const needOpen = (method: string): void => {
      needLife(method)
      if (!state.open) throw lost() ?? new FST_HOURLY_SYNC_TRANSACTION_ENDED(method)
    }
    const nested = nestedContext({ query: sendPlain }, signal)
    const upsert = createUpsert({
      ...nested,
      async transaction (fn) {
        needOpen('upsert')
        // nothing else comes between a savepoint and its end: it would be rolled back with the batch
        return await statements.turn(async () => await nested.transaction(fn))
      }
    }, memory)
    const tx: Transaction = {
      query: (statement, values) => watch.over('transaction', async () => {
        needOpen('query')
        return await statements.turn(async () => await send(checked(statement), values))
      }),
      upsert: (table, rows, options) => watch.over('transaction', async () => {
        needOpen('upsert')
        return await upsert(table, lifetime.rows(rows), options)
      })
    }
    try {
      needLife('transaction')
      const result = await lifetime.within(inside.run(state, async () => await fn(tx)))
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

  const batchTurn = async <T>(work: () => Promise<T>): Promise<T> => await queue.turn(async () => {
    needLife('upsert')
    needIdle('upsert')
    return await work()
  })
  const upsert = createUpsert({
    signal,
    query: async (text, values, name) => await batchTurn(async () => await sendPlain(text, values, name)),
    transaction: async fn => await batchTurn(async () => await transact(
      async ({ query }) => await fn({ query: async (text, values, name) => await query(plain(text, values, name)) })))
  }, memory)

  return {
    apart,
    query: (statement, values) => admitted('query', async () => await send(checked(statement), values)),
    transaction: fn => apart('transaction', async () => {
      callable('transaction', fn)
      return await transact(fn)
    }),
    upsert: (table, rows, options) => watch.over('upsert', async () => {
      admit('upsert')
      return await upsert(table, lifetime.rows(rows), options)
    }),
    seal: () => { sealed = true },
    end () {
      sealed = true
      lifetime.end()
    },
    busy: watch.busy,
    async settle () {
      await queue.idle()
      const left = lost() === undefined && client.getTransactionStatus() !== 'I'
      if (left) await queue.turn(rollback)
      if (left) return new FST_HOURLY_SYNC_OPEN_TRANSACTION('when the sync had ended')
      return lifetime.over ? undefined : await watch.unseen()
    }
  }
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
