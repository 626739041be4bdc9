/** SQL that judges a slot. */
import { clock, ms } from './text.js'

/**
 * Why the current slot is not to be run, or null when it is due. Needs `moment` and the state row `s`, and the first eight
 * parameters: `$1` name, `$2` target, `$3` every, `$4` offset, `$5` how late a slot may be attempted with `catchUp: 'skip'`
 * (null for `'once'`), `$6` the number of retries, `$7` whether this process has just booted, `$8` whether a first
 * install waits for the next slot. All durations are milliseconds.
 *
 * What lies further ahead than it can (a last slot or a pause more than one `every`, a failure in the future) was
 * written before the server's clock jumped back, and does not hold.
 */
export const hold = `case
      when s.name is null and $8::boolean then 'first-run'
      when ${ms('s.last_slot')} between moment.slot and moment.slot + $3::bigint then 'served'
      when ${ms('s.paused_until')} between moment.now + 1 and moment.now + $3::bigint then 'paused'
      when ${ms('s.not_before')} > moment.now and ${ms('s.failed_at')} <= moment.now then 'waiting'
      when ${ms('s.attempt_slot')} = moment.slot and s.attempts > $6::int and not $7::boolean then 'spent'
      when moment.now - moment.slot > $5::bigint and ${ms('s.attempt_slot')} is distinct from moment.slot then 'late'
    end`

export const moment = `${clock},
  moment as materialized (
    select now, (now - $4::bigint) / $3::bigint * $3::bigint + $4::bigint as slot from clock
  )`

/** How many whole slots before the current one nobody served. Needs `moment` and `s`. */
export const missed = `case
      when s.succeeded_at is null then 0
      else greatest(0, floor((moment.slot - ${ms('s.last_slot')} - s.last_every) / $3::bigint::numeric))
    end::bigint`
