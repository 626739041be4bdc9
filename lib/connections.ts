import type { FastifyBaseLogger } from 'fastify'
import pg, { type ClientBase, type ClientConfig, type Pool, type PoolClient } from 'pg'
import { again } from './again.js'
import { type Clock, within } from './clock.js'
import { FST_HOURLY_SYNC_UNAVAILABLE } from './errors.js'
import { logged } from './failure.js'
import { guarded } from './log.js'
import { ours } from './sql.js'

/** How long a look may take to get a connection and its answer. Milliseconds. */
export const CLAIM_LIMIT = 10_000

/** How long a destroyed session may take to close before its socket is. Milliseconds. */
const GOODBYE = 1_000

/** A connection on loan. Exactly one of the two ways back must be taken; a second call does nothing. */
export interface Lease {
  readonly client: ClientBase
  /** Waits for what is left of {@link CLAIM_LIMIT}, counted from when this connection was first asked for. */
  limited: <T>(promise: Promise<T>, signal?: AbortSignal) => Promise<T>
  /** As it came: only when nothing of ours is left on the session. */
  giveBack: () => void
  /** Ends the session, whatever state it is in. */
  destroy: () => void
}

/** How a caller waits for a connection. */
export interface Waiting {
  /** Who is served first when several wait: the smallest. */
  order: number
  /** Whether the wait for other syncs counts towards {@link CLAIM_LIMIT}; a loop may wait as long as it takes. */
  hurry: boolean
  /** Stops waiting; a client that still arrives goes back untouched. */
  signal: AbortSignal
}

/** Where connections come from. */
export interface Source {
  /** @throws FST_HOURLY_SYNC_UNAVAILABLE when none came in time, the driver's error, or the signal's reason */
  checkout: (waiting: Waiting) => Promise<Lease>
}

/** Keeps all syncs of an app together at no more than half of a pool, and the pool from ending the process. */
export interface PoolGate extends Source {
  readonly pool: Pool
  /**
   * One statement, outside the gate: for questions, which hold a client for as long as that takes, at most `limit` milliseconds, and no
   * longer than until `signal` aborts.
   */
  ask: <R>(text: string, values: unknown[], limit?: number, signal?: AbortSignal) => Promise<R[]>
}

/** The same gate for one sync, whose questions are called off once it has closed: the pool could not end before they do. */
export function askingUntil (closed: AbortSignal, gate: PoolGate): PoolGate {
  return { ...gate, ask: async (text, values, limit) => await gate.ask(text, values, limit, closed) }
}

export function createPoolGate (pool: Pool, clock: Clock, log: FastifyBaseLogger): PoolGate {
  listen(pool, guarded(log))
  const permits = createPermits(Math.max(1, Math.floor((pool.options?.max ?? 10) / 2)))

  return {
    pool,
    async checkout ({ order, hurry, signal }) {
      const { entered, leave } = permits.enter(order)
      let connecting: Promise<unknown> | undefined
      try {
        let limited = createLimit(clock, CLAIM_LIMIT)
        if (hurry) await limited(entered, 'waiting for the other syncs of this pool', signal)
        else {
          await within(clock, entered, { ms: Infinity, signal, late: Error })
          limited = createLimit(clock, CLAIM_LIMIT)
        }
        const { client, destroy } = connect(pool)
        connecting = client
        return lease(clock, await arrival(client, limited, signal, destroy), limited, leave)
      } catch (error) {
        // a connection that is still being made has its place in the pool, and keeps it from us
        if (connecting === undefined) leave()
        else connecting.then(leave, leave)
        throw error
      }
    },
    async ask<R> (text: string, values: unknown[], limit = CLAIM_LIMIT, signal?: AbortSignal): Promise<R[]> {
      signal?.throwIfAborted()
      const limited = createLimit(clock, limit)
      const { client, destroy } = connect(pool)
      const taken = lease(clock, await arrival(client, limited, signal, destroy), limited, () => {}, 'a question to the database')
      try {
        const { rows } = await again(async () => await taken.limited(taken.client.query<R & object>(ours(text, values)), signal))
        taken.giveBack()
        return rows
      } catch (error) {
        taken.destroy() // or a server that went silent would keep it, and the pool could not end
        throw error
      }
    }
  }
}

/** A direct connection of its own for each lock session, where the pool goes through a transaction pooler. */
export function createDirectSource (config: ClientConfig, clock: Clock): Source {
  return {
    async checkout ({ signal }) {
      const client = new pg.Client(config)
      client.on('error', () => {}) // an attempt that fails after its limit must not end the process
      const release = (): void => { client.end().catch(() => {}) }
      const connected = client.connect().then(() => Object.assign(client, { release }) as unknown as PoolClient)
      connected.catch(release)
      const limited = createLimit(clock, CLAIM_LIMIT)
      return lease(clock, await arrival(connected, limited, signal, () => socketOf(client).destroy()), limited, () => {})
    }
  }
}

/**
 * A client of the pool. One that is made for us can be given up: a server that takes connections and says nothing would otherwise
 * keep them, and with them a place in the pool each, for ever.
 */
function connect (pool: Pool): { client: Promise<PoolClient>, destroy: () => void } {
  const clients = (): ClientBase[] => (pool as Pool & { _clients?: ClientBase[] })._clients ?? []
  const before = new Set(clients())
  const client = pool.connect()
  const made = clients().find(candidate => !before.has(candidate))
  return { client, destroy: () => { if (made !== undefined) socketOf(made).destroy() } }
}

function socketOf (client: ClientBase): { destroy: () => void } {
  return (client as unknown as { connection: { stream: { destroy: () => void } } }).connection.stream
}

/** Waits for what is left of a time that several waits share. @throws FST_HOURLY_SYNC_UNAVAILABLE that names `what` */
type Limited = <T>(promise: Promise<T>, what: string, signal?: AbortSignal) => Promise<T>

/** While the event loop is blocked the time stands still: what is waited for may have come, and is not to be given up unseen. */
function createLimit (clock: Clock, ms: number): Limited {
  let end = clock.elapsed() + ms
  return async (promise, what, signal) => await within(clock, promise, {
    ms: end - clock.elapsed(),
    late: () => new FST_HOURLY_SYNC_UNAVAILABLE(what, ms),
    blocked: over => { end = clock.elapsed() + over },
    ...(signal && { signal })
  })
}

/** The client, unless its time is up or nobody waits any more: then it is given up, and goes back untouched should it still come. */
async function arrival (connecting: Promise<PoolClient>, limited: Limited, signal: AbortSignal | undefined, giveUp: () => void): Promise<PoolClient> {
  try {
    return await limited(connecting, 'getting a connection', signal)
  } catch (error) {
    connecting.then(client => client.release()).catch(() => {})
    giveUp()
    throw error
  }
}

function lease (clock: Clock, client: PoolClient, limited: Limited, after: () => void, what = 'the claim'): Lease {
  const ignore = (): void => {} // without a listener a dying connection ends the process; who holds the lease adds its own
  client.on('error', ignore)
  let over = false
  const once = (end: () => void): () => void => () => {
    if (over) return
    over = true
    try {
      end()
    } catch {
      socketOf(client).destroy() // whoever does not take it back: a session that may hold the lock must not stay
    }
    after()
  }
  return {
    client,
    limited: async (promise, signal) => await limited(promise, what, signal),
    giveBack: once(() => {
      client.removeListener('error', ignore)
      client.release()
    }),
    destroy: once(() => {
      // a half-open socket never finishes its goodbye, and would keep the process alive
      const cancel = clock.after(GOODBYE, () => socketOf(client).destroy())
      client.once('end', cancel)
      client.release(true)
    })
  }
}

/** So many at a time; those who wait are served smallest order first. `leave` also gives up waiting. */
function createPermits (count: number): { enter: (order: number) => { entered: Promise<void>, leave: () => void } } {
  let free = count
  const waiting: Array<{ order: number, admit: () => void }> = []

  return {
    enter (order) {
      let inside = false
      let admit!: () => void
      const entered = new Promise<void>(resolve => {
        admit = () => {
          inside = true
          resolve()
        }
      })
      const entry = { order, admit }
      if (free > 0) {
        free--
        admit()
      } else {
        const behind = waiting.findIndex(other => other.order > order)
        waiting.splice(behind === -1 ? waiting.length : behind, 0, entry)
      }
      const leave = (): void => {
        const place = waiting.indexOf(entry)
        if (place !== -1) waiting.splice(place, 1)
        if (!inside) return
        inside = false
        const next = waiting.shift()
        if (next === undefined) free++
        else next.admit()
      }
      return { entered, leave }
    }
  }
}

const listening = Symbol.for('fastify-hourly-sync.listener')

/** One `error` listener per pool, however many syncs and apps use it: an idle client that dies must not end the process. */
function listen (pool: Pool, log: FastifyBaseLogger): void {
  const listeners = pool.listeners('error') as Array<((error: Error) => void) & { [listening]?: { log: FastifyBaseLogger } }>
  const ours = listeners.find(listener => listener[listening] !== undefined)
  if (ours !== undefined) {
    ours[listening]!.log = log // the app before may be gone
    return
  }
  const state = { log }
  pool.on('error', Object.assign(
    (error: Error) => state.log.warn({ err: logged(error) }, 'an idle database connection was lost'), { [listening]: state }))
  if (listeners.length === 0) log.info('the pool had no error listener, without which a lost idle connection ends the process: one was added')
}
