import type { FastifyBaseLogger, FastifyInstance, FastifyReply, FastifyRequest, HookHandlerDoneFunction } from 'fastify'
import type { ClientBase, ClientConfig, Pool, QueryConfig, QueryResult, QueryResultRow } from 'pg'
import type { Upsert } from './upsert.js'

export type { Upsert, UpsertOptions, UpsertResult, UpsertRows } from './upsert.js'

/** What JSON can carry. */
export type Json = string | number | boolean | null | Json[] | { [key: string]: Json | undefined }

/** Milliseconds, or a number with a unit: `'90s'`, `'10m'`, `'1h'`. */
export type Duration = number | string

/** Why a run was made. */
export type Trigger = 'schedule' | 'catch-up' | 'retry' | 'manual' | 'backfill'

/** How a run ended. */
export type RunState = 'succeeded' | 'failed' | 'timed-out' | 'interrupted' | 'lock-lost' | 'vanished'

/** Why an attempt did not become a run. */
export type NotStarted = 'not-due' | 'running' | 'not-configured' | 'closing' | 'unavailable' | 'refused'

/** What an attempt came to. */
export type Outcome = RunState | NotStarted

/** What a sync may resolve with. */
export interface SyncResult {
  /** Stored with the success and handed to the next run as `run.cursor`. Left out, the old one stays. */
  cursor?: Json
  /** `false` leaves watermark and cursor where they were; the run succeeded and its slot is served. */
  advance?: false
  /** Stored with the run and shown. */
  stats?: Json
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
  /** Aborts on timeout, shutdown and when the lock is lost; `signal.reason` says which. */
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
   * @throws FST_HOURLY_SYNC_INVALID_OPTION when `until` lies outside the window of the run, or `cursor` cannot be stored
   */
  readonly checkpoint: (reached: { until?: Date, cursor?: Json }) => Promise<void>
  /** How far the run is, for `status()`. */
  readonly progress: (done: number, total?: number) => void
  /** Resolves after `ms`; rejects with `signal.reason` when the run is aborted. */
  readonly sleep: (ms: number) => Promise<void>
}

/** Fetches `[run.since, run.until)` and saves it. May be run again with the same window at any time: make it idempotent. */
export type SyncFunction = (run: SyncRun) => Promise<SyncResult | void> | SyncResult | void

/** What is kept of an error: redacted and cut. */
export interface ErrorRecord {
  name: string
  message: string
  code?: string
  statusCode?: number
  transient?: boolean
}

/** One run of the history. */
export interface RunRecord {
  id: string
  name: string
  target: string
  trigger: Trigger
  state: RunState
  slot: Date | null
  slice: number
  slices: number
  attempt: number
  since: Date | null
  until: Date
  startedAt: Date
  finishedAt: Date
  /** Milliseconds. */
  duration: number
  /** `host:pid` of the process that ran it. */
  worker: string
  stats: Json
  error: ErrorRecord | null
}

/** Who holds the lock of a sync. What the state row or the server does not tell is `null`. */
export interface Holder {
  /** Backend process id of the lock session. */
  backend: number
  applicationName: string | null
  /** Address of the client as the server sees it. */
  address: string | null
  /** The run under way, as its holder noted it. `null` when the lock is held by something else of the same name. */
  runId: string | null
  trigger: Trigger | null
  slot: Date | null
  startedAt: Date | null
  host: string | null
  pid: number | null
}

export interface Progress {
  done: number
  total: number | null
}

/** The last look of this process's loop. */
export interface LastLook {
  at: Date
  outcome: Outcome
  /** What was wrong, for `unavailable` and `refused`; why not, for `not-due`. */
  reason: string | null
}

/** Why a slot that nobody runs is not being run. */
export type Hold = 'served' | 'first-run' | 'paused' | 'waiting' | 'spent' | 'late' | 'vanished'

/** What a slot came to. `unknown`: it is from before the sync's first state row, or its runs are pruned. `pending`: it is not over. */
export type SlotState = 'on-time' | 'caught-up' | 'failed' | 'missing' | 'pending' | 'unknown'

export interface SlotRecord {
  slot: Date
  state: SlotState
  /** Id of the run that served it or caught it up; otherwise of its last one. */
  run: string | null
  /** How many runs of its own it has had, and how many of them did not succeed. */
  runs: number
  failures: number
}

export interface SlotList {
  /** Length of a slot, milliseconds. */
  every: number
  /** Oldest first. */
  slots: SlotRecord[]
}

export interface Status {
  name: string
  target: string
  /** Whether the loop of *this* process is on, and if not why. */
  enabled: boolean
  disabledBecause: string | null
  syncing: boolean
  holder: Holder | null
  /** Of the run under way, in whichever process; of another's, as it was told at most a second before. */
  progress: Progress | null
  /** Set while a run of this process was told to stop and has not yet: the state it will end in. */
  aborted: RunState | null
  /** Whether the holder is older than its timeout and what it is given to stop: its process may be stuck. */
  wedged: boolean | null
  /** Set when the database could not be asked: what follows is then unknown (`null`). */
  unavailable: string | null
  lastSuccess: RunRecord | null
  lastRun: RunRecord | null
  lastError: (ErrorRecord & { at: Date }) | null
  watermark: Date | null
  backfill: BackfillState | null
  slot: Date | null
  nextSlot: Date | null
  /** The last slot that was served. */
  lastSlot: Date | null
  /** Whether that lies further ahead than any can, since the clock of the database was set back. It is ignored. */
  lastSlotAhead: boolean | null
  /** Whole slots nobody served, the current one included. */
  behindSlots: number | null
  /** With `hold: 'waiting'`: until then. */
  notBefore: Date | null
  /** With `hold: 'paused'`: until then. */
  pausedUntil: Date | null
  due: boolean | null
  /** Why the current slot is not due. */
  hold: Hold | null
  /** When this process will look again. */
  nextLook: Date | null
  lastLook: LastLook | null
}

export type TriggerAnswer =
  | {
    started: true
    runId: string
    /** Resolves with the run's record once it has ended, whatever it came to. Never rejects. */
    finished: Promise<RunRecord>
  }
  | {
    started: false
    reason: Exclude<NotStarted, 'not-due'>
    /** For people: what was wrong. */
    message?: string
    holder?: Holder
  }

/** What one attempt came to, with the run's record when there was one. */
export interface RunOnceResult {
  outcome: Outcome
  /** What was wrong, or why it was not due. */
  reason: string | null
  run: RunRecord | null
}

/** One registered sync. */
export interface HourlySync {
  readonly name: string
  /** The advisory lock key: int8, so as `pg` gives it, a string. */
  readonly lockKey: string
  /** Starts the loop of this process, if the sync is configured. Starting twice starts one. */
  start: () => void
  /** Stops the loop of this process; a run under way goes on. */
  stop: () => void
  /** Starts a run now, due or not. Answers once the lock is really held, or why not. */
  trigger: () => Promise<TriggerAnswer>
  /**
   * One attempt, and waits for its end: for cron, a job queue, a test. Runs only if the slot is due, unless `force`.
   */
  runOnce: (options?: { force?: boolean }) => Promise<RunOnceResult>
  isSyncing: () => Promise<boolean>
  /** Never rejects: a database that cannot be asked, or an app that is not ready, is in the answer. */
  status: () => Promise<Status>
  /**
   * The history, newest first.
   *
   * @param options.limit - 1 to 1,000, default 50
   * @param options.before - the id of a run: only runs older than it
   */
  runs: (options?: RunsOptions) => Promise<RunRecord[]>
  /** One run of this sync, or `null`. */
  run: (id: string) => Promise<RunRecord | null>
  /**
   * What every slot that begins in `[since, until)` came to: the last seven days, or at most 1,000 slots.
   *
   * @throws FST_HOURLY_SYNC_INVALID_OPTION when both are given and more slots lie between them
   */
  slots: (range?: { since?: Date, until?: Date }) => Promise<SlotList>
  /**
   * Fetches a window of the past again, in slices of `maxWindow`, under the same lock; a slot that becomes due is served in between. Moves neither
   * watermark nor cursor. Left out, `since` and `until` are those of the backfill that was not finished; the same ones resume it as well.
   *
   * @param options.signal - ends it; it can be resumed
   * @throws FST_HOURLY_SYNC_INVALID_OPTION when the window is none, or there is nothing to resume
   */
  backfill: (options?: BackfillOptions) => Promise<TriggerAnswer>
}

export interface RunsOptions {
  limit?: number
  before?: string
  state?: RunState
  trigger?: Trigger
}

export interface BackfillOptions {
  since?: Date
  until?: Date
  signal?: AbortSignal
}

/** A backfill that is not done. */
export interface BackfillState {
  since: Date
  until: Date
  /** What lies before it is fetched. */
  position: Date
}

export interface HourlySyncRegistry {
  readonly names: string[]
  /** The name may be left out when the app has one sync. */
  get: (name?: string) => HourlySync
}

/** What `fastify.register(hourlySync, options)` takes. The README's table gives defaults. */
export interface HourlySyncOptions {
  /** Key of lock and history. 1 to 100 characters, no control characters. */
  name: string
  sync: SyncFunction
  /** Whether the loop starts. */
  enabled?: boolean
  /** Configuration the sync needs: with an `undefined`, `null` or `''` among the values the loop stays off. */
  requires?: Record<string, unknown>
  /** The hook that starts the loop. */
  start?: 'ready' | 'listen'
  startupDelay?: Duration
  every?: Duration
  offset?: Duration
  jitter?: Duration
  catchUp?: 'once' | 'skip'
  firstRun?: 'run' | 'wait'
  overlap?: Duration
  /** Longest window handed to `sync`: a longer gap is served in slices, each a run of its own. */
  maxWindow?: Duration
  initialSince?: Date | Duration | null
  /** Longest run: then `run.signal` aborts. */
  timeout?: Duration
  /** How much longer the lock waits for a sync that ignores its signal. */
  abandonAfter?: Duration
  retry?: false | { limit?: number, delay?: Duration, maxDelay?: Duration }
  /** How often to look again while another process holds the lock of a due slot. */
  standby?: Duration
  /** How often a run proves that its session still owns the lock. */
  heartbeat?: Duration
  closeTimeout?: Duration
  /** Name of an @fastify/postgres instance. */
  pg?: string
  pool?: Pool
  /** A direct connection for the lock session alone, where the pool goes through a transaction pooler. */
  lock?: ClientConfig
  lockName?: string
  schema?: string
  migrate?: boolean
  history?: { keepFor?: Duration }
  isTransient?: (error: unknown) => boolean
  onError?: (error: unknown, run: SyncRun) => void | Promise<void>
  /** Further patterns that are taken out of error text; a text is taken as it stands. */
  redact?: ReadonlyArray<RegExp | string>
  /** HTTP routes and the dashboard; none unless given. */
  routes?: false | RouteOptions
}

/** A hook that lets a request pass, answers it, or throws: Fastify's own, in either style. */
export type GuardHook = (this: FastifyInstance, request: FastifyRequest, reply: FastifyReply, done: HookHandlerDoneFunction) => unknown
export type Guard = GuardHook | GuardHook[]

/** Routes of one sync. They are guarded by a hook, unless `public` says that they need not be. */
export interface RouteOptions {
  /** Where they are, below the prefix of the context that registers the plugin. */
  prefix?: string
  /** Guards every route: page, script, style and events alike. */
  onRequest?: Guard
  /** The same, for a guard that wants the body parsed. */
  preHandler?: Guard
  /** Whether they may be registered without a guard. */
  public?: boolean
  /** Whether there is a page. */
  dashboard?: boolean
  /** Age of the last success from which on `GET /health` says no. */
  maxAge?: Duration
  health?: { /** Exempts `GET /health` alone from the guard; it then says no more than `{ ok }`. */ public?: boolean }
}
