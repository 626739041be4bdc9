import type { FastifyBaseLogger } from 'fastify'
import type { ClientBase, QueryConfig, QueryResult, QueryResultRow } from 'pg'
import type { Upsert } from '../upsert.js'
import type { Json, JsonInput, Trigger } from './words.js'

/** What a sync may resolve with. */
export interface SyncResult {
  /** Stored with the success and handed to the next run as `run.cursor`. Left out, the old one stays. */
  cursor?: JsonInput
  /** `false` leaves watermark and cursor where they were; the run succeeded and its slot is served. No further slice of a long gap follows. */
  advance?: false
  /** Stored with the run and shown. */
  stats?: JsonInput
}

/** Sends a statement through the session of the run, after those already under way. */
export interface Query {
  <R extends QueryResultRow = any>(text: string | QueryConfig, values?: unknown[]): Promise<QueryResult<R>>
}

/** An open transaction of the run. */
export interface Transaction {
  query: Query
  /** As `run.upsert`, each batch under a savepoint: one that fails leaves the transaction usable. Deadlocks are not retried, for they end the transaction. */
  upsert: Upsert
}

/** Quacks like a `pg` client, for query builders; its statements wait in the session's queue. */
export interface ClientFacade {
  query: ClientBase['query']
}

/** One execution, as the sync function sees it. */
export interface SyncRun {
  readonly id: string
  readonly name: string
  readonly target: string
  readonly trigger: Trigger
  /** The start of the slot this run is for; `null` for a backfill. */
  readonly slot: Date | null
  /** Which part of a long gap this run fetches, from 1; `{ index: 1, of: 1 }` unless `maxWindow` cut it. Counted anew when a gap is resumed. */
  readonly slice: { readonly index: number, readonly of: number }
  /** From 1, counted over all processes within a slot. */
  readonly attempt: number
  /** Fetch what changed in `[since, until)`. `null` on a first run without `initialSince`: everything. */
  readonly since: Date | null
  readonly until: Date
  /** Whole slots before this one that nobody served. */
  readonly missedSlots: number
  /** What the last succeeded run returned as `cursor`, or `null`. */
  readonly cursor: Json
  /** Aborts on timeout, shutdown, when the lock is lost, and when the sync rejects with calls of the run under way; `signal.reason` says which. */
  readonly signal: AbortSignal
  readonly log: FastifyBaseLogger
  readonly query: Query
  /**
   * Runs `fn` in a transaction of the session: committed when it resolves, rolled back when it rejects.
   * Inside `fn` use its `tx`: a call on `run` itself rejects with `FST_HOURLY_SYNC_NESTED`.
   */
  readonly transaction: <T>(fn: (tx: Transaction) => Promise<T> | T) => Promise<T>
  readonly upsert: Upsert
  readonly client: ClientFacade
  /**
   * Commits how far the run has got: a later failure resumes there, and not where the run began. What was fetched before `until` must be saved.
   *
   * @throws FST_HOURLY_SYNC_INVALID_OPTION when `until` lies outside the window of the run
   * @throws FST_HOURLY_SYNC_INVALID_RESULT when `cursor` cannot be stored
   * @throws FST_HOURLY_SYNC_OPEN_TRANSACTION inside a transaction that was begun by hand, which might take it back
   */
  readonly checkpoint: (reached: { until?: Date, cursor?: JsonInput }) => Promise<void>
  /** How far the run is, for `status()`. */
  readonly progress: (done: number, total?: number) => void
  /** Resolves after `ms`; rejects with `signal.reason` when the run is aborted, and with `FST_HOURLY_SYNC_RUN_ENDED` when it has ended. May be left unawaited. */
  readonly sleep: (ms: number) => Promise<void>
}

/** Fetches `[run.since, run.until)` and saves it. May be run again with the same window at any time: make it idempotent. */
export type SyncFunction = (run: SyncRun) => Promise<SyncResult | void> | SyncResult | void
