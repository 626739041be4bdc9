/** SQL that asks how things stand. */
import { hold, missed, moment } from './judge.js'
import { holding, ms, type Tables } from './text.js'

export interface StateRow {
  now: string
  slot: string
  hold: string | null
  watermark: string | null
  last_slot: string | null
  not_before: string | null
  paused_until: string | null
  /** Whether it ever has. */
  succeeded: boolean
  last_failure: string | null
  missed: string
  /** Slots since the state row was made. */
  since_made: string | null
  started: string | null
  backfill: string | null
}

/** Texts of these questions. */
export interface State {
  holder: string
  state: string
}

export function stateTexts ({ sync }: Tables): State {
  return {
    /** `$1` classid, `$2` objid -> {@link HolderRow}, or none. */
    holder: holding('$1', '$2'),

    /** `$1`..`$8` as for the hold -> {@link StateRow}. */
    state: `with ${moment}
  select moment.now::text, moment.slot::text, ${hold} as hold,
    ${ms('s.watermark')}::text as watermark, ${ms('s.last_slot')}::text as last_slot, ${ms('s.not_before')}::text as not_before,
    ${ms('s.paused_until')}::text as paused_until, s.succeeded_at is not null as succeeded, s.last_failure::text as last_failure,
    (${missed})::text as missed,
    ((moment.slot - (${ms('s.created_at')} - $4::bigint) / $3::bigint * $3::bigint - $4::bigint) / $3::bigint)::text as since_made, s.started::text as started, s.backfill::text as backfill
  from moment
  left join ${sync} s on s.name = $1::text and s.target = $2::text`
  }
}
