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
import type { QueryConfig, QueryResult } from 'pg'
import { again } from './again.js'
import { type Clock, within } from './clock.js'
import type { Lease } from './connections.js'
import { FST_HOURLY_SYNC_LOCK_LOST, FST_HOURLY_SYNC_POOLED, FST_HOURLY_SYNC_RUN_ENDED, FST_HOURLY_SYNC_UNAVAILABLE } from './errors.js'
import { asError, endsSession, messageOf } from './failure.js'
import { type Inside, lend, type Lent } from './lend.js'
import { createQueue } from './queue.js'
import { ours } from './sql.js'
import { createMemory } from './upsert.js'

export interface Session {
  /** Process id of the backend that holds the lock. */
  readonly backend: number
  /** Why the lock is no longer ours, once it is known. */
  readonly lost: Error | undefined
  /** A statement of ours: waits its turn, and checks that it reached the backend that holds the lock. */
  own: <R extends object>(text: string, values: unknown[]) => Promise<R[]>
  /**
   * One that may be left out: waits its turn, and is not sent where the host has begun a transaction by hand, which it might fail.
   *
   * @param values - asked in its turn; `undefined` when it is not wanted any more
   * @returns whether it was sent
   */
  aside: (text: string, values: () => unknown[] | undefined) => Promise<boolean>
  /**
   * What one run is given of the session. A run that has ended can use it no more, though the session may go on to the next.
   *
   * @param signal - the run's
   */
  lend: (signal?: AbortSignal) => Lent
  /** Whether a statement can still be sent. */
  readonly usable: boolean
  /** After `Lent.end`: takes the session out of the hands of a host that does not let go, in the middle of its transaction if need be; ends it if a statement is under way. */
  seize: () => Promise<void>
  /** Whether something of the host is under way on the session. */
  busy: () => boolean
  /**
   * Proves that the lock is still ours, by a look; in an open transaction, by a sign of life, for the server ends a session that is idle in one as it does any other.
   * Rests while a statement is in flight, whose result is the proof; of one that is for long, it asks over another session. Loses the lock when it is
   * not ours, or when nobody answers.
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
  inside: Inside
  /** Process id of the backend that answered the claim. */
  backend: number
  /** `[text, values]` of the look and of the unlock. */
  proof: [string, unknown[]]
  unlock: [string, unknown[]]
  /** Asks over another session which backend holds the lock. */
  holder: () => Promise<number | undefined>
}

/** How long a look on the own session, a rollback of what the host has left, or an unlock, may take. Milliseconds. */
const ANSWER_LIMIT = 5_000
const ROLLBACK_LIMIT = 1_000
const UNLOCK_LIMIT = 1_000

/** Proofs that one statement may hold up before another session is asked: as many heartbeats as the server waits for a session that is idle. */
const HELD_UP = 3

export function createSession ({ lease, clock, inside, backend, proof, unlock, holder }: SessionOptions): Session {
  const { client } = lease
  let queue = createQueue()
  const memory = createMemory()
  const wire = createQueue() // one level down: a transaction has its turn for as long as it is open, and is proved in between
  let seized = false
  let lost: Error | undefined
  let tell = (_why: Error): void => {}
  let destroyed = false
  let sent = 0
  let heldUp = { by: 0, times: 0 }

  const lose = (why: Error): void => {
    if (lost !== undefined || destroyed) return
    lost = why instanceof FST_HOURLY_SYNC_LOCK_LOST ? why : new FST_HOURLY_SYNC_LOCK_LOST(messageOf(why), { cause: why })
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
    sent++
    try {
      return await client.query(statement as string, values)
    } catch (error) {
      if (endsSession(error)) lose(error as Error)
      // the driver tells an error before the server has said what became of the transaction: until its next answer the status is an old one
      else if (!destroyed) await client.query('').catch(() => {})
      throw lost ?? (destroyed ? new FST_HOURLY_SYNC_RUN_ENDED('query', { cause: error }) : error)
    }
  })

  const own: Session['own'] = async (text, values) => await queue.turn(async () => {
    const { rows } = await again(async () => await send(ours(text, values)))
    const other = rows.find(row => row.backend !== undefined && row.backend !== backend)
    if (other !== undefined) {
      const error = new FST_HOURLY_SYNC_POOLED(`the lock was taken by backend ${backend}, the answer came from ${other.backend}`)
      lose(error)
      throw error
    }
    return rows
  })

  /** Leaves the session idle, or lost. */
  async function rollback (): Promise<void> {
    if (lost !== undefined || destroyed || client.getTransactionStatus() === 'I') return
    await send('rollback').catch(error => lose(asError(error)))
  }

  /**
   * Whether the server says that the lock is held, or `undefined` when it says nothing. A limit that fires because the event loop was blocked is no
   * evidence: the answer may lie in the socket already, so it is judged only after one more turn of the loop.
   */
  async function answered (): Promise<boolean | undefined> {
    let held: boolean | undefined
    // in a transaction of the host nothing is looked at, which might fail it or fix its snapshot: that the session answers is enough
    const answer = busy() ? send('').then(() => true) : own<{ backend: number, held: boolean }>(...proof).then(([row]) => row!.held)
    const noted = answer.then(found => { held = found })
    await within(clock, noted, { ms: ANSWER_LIMIT, late: () => new FST_HOURLY_SYNC_UNAVAILABLE('the proof of the lock', ANSWER_LIMIT) }).catch(() => {})
    await new Promise(resolve => setImmediate(resolve))
    return held
  }

  /** The answer of a statement under way may be on a network that has gone silent: then the server has ended the session, and nobody here is told. */
  async function askElsewhere (): Promise<void> {
    const statement = sent
    heldUp = { by: statement, times: heldUp.by === statement ? heldUp.times + 1 : 1 }
    if (heldUp.times < HELD_UP) return
    const holding = await holder().catch(() => backend) // no answer says nothing
    if (holding !== backend && sent === statement) lose(new Error('the server says that this session does not hold it'))
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
    aside: async (text, values) => await queue.turn(async () => {
      const wanted = client.getTransactionStatus() === 'I' ? values() : undefined
      if (wanted !== undefined) await send(ours(text, wanted))
      return wanted !== undefined
    }),
    lose,
    whenLost (fn) {
      tell = fn
      if (lost !== undefined) fn(lost)
    },
    lend: signal => lend({ client, queue, inside, send, rollback: async () => { if (!seized) await rollback() }, lost: () => lost, memory, signal }),
    get usable () { return lost === undefined && !destroyed },
    async seize () {
      seized = true
      if (wire.busy()) return end() // it may never come to an end
      queue = createQueue() // the turn that the host has not given back is void
      await within(clock, rollback(), { ms: ROLLBACK_LIMIT, held: true, late: () => new FST_HOURLY_SYNC_UNAVAILABLE('the rollback', ROLLBACK_LIMIT) }).catch(end)
    },
    busy,
    async prove () {
      if (wire.busy()) return await askElsewhere()
      for (let tries = 0; tries < 2; tries++) {
        const held = await answered()
        if (held === false) lose(new Error('the server says that this session does not hold it'))
        if (held !== undefined || lost !== undefined || destroyed) return
      }
      lose(new FST_HOURLY_SYNC_UNAVAILABLE('the proof of the lock', 2 * ANSWER_LIMIT))
    },
    async release () {
      if (this.usable) {
        // whatever comes of it: the end of the session unlocks
        await within(clock, own(...unlock), { ms: UNLOCK_LIMIT, late: () => new FST_HOURLY_SYNC_UNAVAILABLE('the unlock', UNLOCK_LIMIT), held: true }).catch(() => {})
      }
      end()
    },
    destroy: end
  }
}
