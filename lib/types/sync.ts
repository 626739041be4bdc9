import type { NotStarted, Outcome, RunState, Trigger } from './words.js'
import type { Holder, RunRecord, SlotList, Status } from './history.js'

export type TriggerAnswer =
  | {
    started: true
    runId: string
    /** Resolves with the run's record once it has ended, whatever it came to; where it was cut into slices with that of the last, whose id is not `runId`. Never rejects. */
    finished: Promise<RunRecord>
  }
  | {
    started: false
    reason: Exclude<NotStarted, 'not-due' | 'stopped'>
    /** For people: what was wrong. */
    message?: string
    holder?: Holder
  }

/** `stopped`: its signal aborted before it had begun. */
export type BackfillAnswer = TriggerAnswer | { started: false, reason: 'stopped', message?: string, holder?: Holder }

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
  /** Stops the loop of this process, and a look that has not become a run; a run under way goes on. */
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
   * @param options.signal - ends it; it can be resumed. Before it has begun the answer is `stopped`
   * @throws FST_HOURLY_SYNC_INVALID_OPTION when the window is none, or there is nothing to resume
   */
  backfill: (options?: BackfillOptions) => Promise<BackfillAnswer>
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
