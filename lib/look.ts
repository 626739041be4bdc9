import { type Mark, markOf, parsed } from './record.js'
import type { ClaimRow, HolderRow } from './sql.js'
import type { Hold } from './types.js'

/** What the server said at a look, epoch milliseconds on its clock. */
export interface Look {
  now: number
  slot: number
  notBefore: number | null
  hold: Hold | null
  /** The run under way that keeps the lock from us, as its holder noted it. */
  mark: Mark | null
  /** A last slot that lies further ahead than any can: the server's clock was set back. */
  ahead: number | null
}

/** @param every - slot length, milliseconds */
export function toLook (row: ClaimRow, every: number): Look {
  const slot = Number(row.slot)
  const holder = parsed<HolderRow>(row.holder)
  const last = row.last_slot === null ? null : Number(row.last_slot)
  return {
    now: Number(row.now),
    slot,
    notBefore: row.not_before === null ? null : Number(row.not_before),
    hold: row.hold as Hold | null,
    mark: holder === null ? null : markOf(holder, parsed<Mark>(row.started)),
    ahead: last !== null && last > slot + every ? last : null
  }
}
