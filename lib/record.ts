import { hostname } from 'node:os'
import type { FinishRow, HolderRow, RunRow } from './sql.js'
import type { ErrorRecord, Holder, Json, RunRecord, RunState, Trigger } from './types.js'

/** Who runs here. */
export const worker = { host: hostname(), pid: process.pid }

export const states: [RunState, ...RunState[]] = ['succeeded', 'failed', 'timed-out', 'interrupted', 'lock-lost', 'vanished']
export const triggers: [Trigger, ...Trigger[]] = ['schedule', 'catch-up', 'retry', 'manual', 'backfill']

/** A run that has begun, as the state row notes it. Instants are epoch milliseconds. */
export interface Begun {
  id: string
  /** `null` for a backfill. */
  slot: number | null
  trigger: Trigger
  slice: number
  slices: number
  attempt: number
  since: number | null
  until: number
  /** When it began, on the server's clock. */
  at: number
}

/** A run row as the host sees it. */
export function toRecord (row: RunRow): RunRecord {
  const startedAt = instant(row.started_at)!
  const finishedAt = instant(row.finished_at)!
  return {
    id: row.id,
    name: row.name,
    target: row.target,
    trigger: row.trigger as Trigger,
    state: row.state as RunState,
    slot: instant(row.slot),
    slice: row.slice,
    slices: row.slices,
    attempt: row.attempt,
    since: instant(row.window_start),
    until: instant(row.window_end)!,
    startedAt,
    finishedAt,
    duration: finishedAt.getTime() - startedAt.getTime(),
    worker: row.worker,
    stats: parsed<Json>(row.stats),
    error: parsed<ErrorRecord>(row.error)
  }
}

/** The record of a run whose end the database did not take. */
export function unrecorded (name: string, begun: Begun, state: RunState, lasted: number, error: ErrorRecord | null): RunRecord {
  return {
    id: begun.id,
    name,
    target: '',
    trigger: begun.trigger,
    state,
    slot: begun.slot === null ? null : new Date(begun.slot),
    slice: begun.slice,
    slices: begun.slices,
    attempt: begun.attempt,
    since: begun.since === null ? null : new Date(begun.since),
    until: new Date(begun.until),
    startedAt: new Date(begun.at),
    finishedAt: new Date(begun.at + lasted),
    duration: lasted,
    worker: `${worker.host}:${worker.pid}`,
    stats: null,
    error
  }
}

/** The mark that a run leaves in the state row while it is under way. */
export type Mark = Begun & {
  host: string
  pid: number
  /** The session it was made on; older code names none. */
  backend?: number
  connected?: string | null
}

/** The mark, if it is of who holds the lock, and not of one that died before something else took the lock. */
export function markOf (holder: HolderRow, mark: Mark | null): Mark | null {
  if (mark?.backend === undefined) return mark
  const isSame = mark.backend === holder.backend && (holder.connected === null || mark.connected === holder.connected)
  return isSame ? mark : null
}

/** Who holds a lock, from what the server shows and what the holder noted. */
export function toHolder (shown: HolderRow, mark: Mark | null): Holder {
  return {
    backend: shown.backend,
    applicationName: shown.application_name,
    address: shown.address,
    runId: mark?.id ?? null,
    trigger: mark?.trigger ?? null,
    slot: mark === null || mark.slot === null ? null : new Date(mark.slot),
    startedAt: mark === null ? null : new Date(mark.at),
    host: mark?.host ?? null,
    pid: mark?.pid ?? null
  }
}

export function instant (text: string | null): Date | null {
  return text === null ? null : new Date(Number(text))
}

export function parsed<T> (json: string | null): T | null {
  return json === null ? null : JSON.parse(json) as T
}

/** Whether the end was recorded: the columns of the row are null otherwise. */
export function isRecorded (row: FinishRow | undefined): row is FinishRow {
  return row?.recorded === true
}
