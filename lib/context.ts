import type { FastifyBaseLogger } from 'fastify'
import type { Clock } from './clock.js'
import type { Lease, PoolGate, Source } from './connections.js'
import type { LateEnds } from './late.js'
import type { Inside } from './lend.js'
import type { Settings } from './options.js'
import type { Readings } from './sql/readings.js'
import type { Statements } from './sql.js'

/** What all rooms that deal with one sync share. */
export interface Context {
  settings: Settings
  key: bigint
  statements: Statements
  readings: Readings
  clock: Clock
  log: FastifyBaseLogger
  gate: PoolGate
  /** Where the lock session comes from: the gate itself, or a direct connection. */
  source: Source
  /**
   * Sees to the tables, the rights and, when the lock is to be taken on this connection, to what stands between: once, and again
   * after {@link Context.forget}.
   */
  prepare: (lease: Lease, isForLock: boolean) => Promise<void>
  /** The tables turned out to be other than they were seen. */
  forget: () => void
  inside: Inside
  late: LateEnds
  /** Parameters `$1` to `$8` of the statements that judge whether a slot is due. */
  judging: (fresh: boolean) => unknown[]
}
