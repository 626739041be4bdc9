import { type Mark, parsed } from './record.js'
import type { ClaimRow } from './sql.js'
import type { Hold } from './types.js'

/** What the server said at a look, epoch milliseconds on its clock. */
export interface Look {
  now: number
  slot: number
  notBefore: number | null
  hold: Hold | null
  /** The run that noted its start and not yet its end. */
  mark: Mark | null
  /** A last slot that lies further ahead than any can: the server's clock was set back. */
  ahead: number | null
}

/** @param every - slot length, milliseconds */
export function toLook (row: ClaimRow, every: number): Look {
  const slot = Number(row.slot)
  const last = row.last_slot === null ? null : Number(row.last_slot)
  return {
    now: Number(row.now),
    slot,
    notBefore: row.not_before === null ? null : Number(row.not_before),
    hold: row.hold as Hold | null,
    mark: parsed<Mark>(row.started),
    ahead: last !== null && last > slot + every ? last : null
  }
}
