import type { Json, Outcome, RunState, Trigger } from './words.js'
import type { BackfillState } from './sync.js'

/** What is kept of an error: redacted and cut. The message names its causes as well, code and status are the outermost of them that has one. */
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

/** What a slot came to. `unknown`: it is from before the sync's first state row, or its runs are pruned. `pending`: it is not over. `caught-up`: all of its time was fetched later. */
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
  /** Whether the loop of *this* process is on. */
  enabled: boolean
  /**
   * If not, why: `not configured: ` and what is missing, `closing`, `not ready`, `stopped` (by `stop()`), `FASTIFY_HOURLY_SYNC_LOOP is off`,
   * `not listening` (yet, with `start: 'listen'`), `not enabled`.
   */
  disabledBecause: string | null
  syncing: boolean
  holder: Holder | null
  /** Of the run under way, in whichever process; of another's, as it was told at most a second before, unless it was inside of a statement or transaction. */
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
