/** SQL from the look to the noted start of a run. */
import { UUID } from '../checks.js'
import { hold, missed, moment } from './judge.js'
import { at, EARLIEST, holding, MOST, ms, numberIn, ownLock, ownSession, type Tables } from './text.js'

/** What {@link Claim.claim} answers. */
export interface ClaimRow {
  now: string
  slot: string
  hold: string | null
  not_before: string | null
  last_slot: string | null
  /** The mark of the run that noted its start and not yet its end, JSON. */
  started: string | null
  backend: number
  /** Null when the lock was not tried for. */
  locked: boolean | null
  /** Who holds the lock that was not got, JSON of a {@link HolderRow}. */
  holder: string | null
}

/** What {@link Claim.begin} answers. */
export interface BeginRow {
  now: string
  slot: string
  hold: string | null
  not_before: string | null
  begun: boolean
  backend: number
  trigger: string
  attempt: number
  missed: string
  window_start: string | null
  window_end: string
  /** Where the last slice ends. */
  whole_end: string
  slices: number
  cursor: string | null
  backfill: string | null
  pruned_at: string | null
  /** Runs in a row that died with their process, the one found now included. */
  deaths: number
  /** The run that died, when one was found now. */
  vanished: string | null
  /** The last slot whose failure was handed to the host. */
  reported: string | null
}

/**
 * Settings of the lock session, as one expression. A server that does not know one, or cannot have it, keeps its own. They come with the lock itself:
 * a begin that waits for somebody would otherwise outlive a client that has given up, and keep the lock.
 *
 * The check of the client's connection needs an operating system that can be asked; elsewhere setting it is an error.
 *
 * @param name - the parameter of the application name
 * @param idle - that of the idle timeout, with its unit
 */
const sessionSettings = (name: string, idle: string): string => `concat(
      set_config('application_name', ${name}::text, false),
      ${setting('idle_session_timeout', `${idle}::text`)},
      ${setting('idle_in_transaction_session_timeout', `${idle}::text`,
        `coalesce(nullif(current_setting('idle_in_transaction_session_timeout', true), '0')::interval > ${idle}::interval, true)`)},
      ${setting('tcp_keepalives_idle', "'20'")},
      ${setting('tcp_keepalives_interval', "'10'")},
      ${setting('tcp_keepalives_count', "'3'")},
      ${setting('client_connection_check_interval', "'1s'", "version() ~ 'linux'")}
    )`

/** Cheaper than a join with pg_settings, which makes a row of every setting there is. */
function setting (name: string, value: string, condition = 'true'): string {
  return `case when ${condition} and current_setting('${name}', true) is not null then set_config('${name}', ${value}, false) end`
}

/** A number of a mark as one that counts from 1. */
const count = (number: string): string => `least(${MOST}, greatest(1, coalesce(${number}, 1)))::int`

/** Texts of a claim. */
export interface Claim {
  claim: string
  tryLock: string
  look: string
  install: string
  begin: string
}

export function claimTexts ({ sync, run }: Tables): Claim {
  return {
    /**
     * A look: is the slot due, and if so, is the lock free? And if it is not, who has it? `$1`..`$8` as for the hold, `$9` lock key,
     * `$10` classid, `$11` objid, `$12`, `$13` session settings -> {@link ClaimRow}.
     *
     * Never waits. The lock is tried for in a `case` of a single row, where it is evaluated exactly when meant; a session that does not get it stays as it was.
     */
    claim: `with ${moment},
  judged as materialized (
    select moment.now, moment.slot, ${hold} as hold, ${ms('s.not_before')} as not_before, ${ms('s.last_slot')} as last_slot, s.started::text as started
    from moment
    left join ${sync} s on s.name = $1::text and s.target = $2::text
  ),
  tried as materialized (
    select judged.*, case when hold is null then pg_try_advisory_lock($9::bigint) end as locked from judged
  )
  select now::text, slot::text, hold, not_before::text, last_slot::text, started,
    pg_backend_pid() as backend, locked,
    case when not locked then (select to_jsonb(holder)::text from (${holding('$10', '$11')}) as holder) end as holder,
    case when locked then ${sessionSettings('$12', '$13')} end as settings
  from tried`,

    /** The lock, whether the slot is due or not. `$1` lock key, `$2`, `$3` session settings -> locked, backend. Never waits. */
    tryLock: `with tried as materialized (
    select pg_try_advisory_lock($1::bigint) as locked
  )
  select locked, pg_backend_pid() as backend, case when locked then ${sessionSettings('$2', '$3')} end as settings from tried`,

    /** The same as the claim without the lock, through a pool that is not the lock's. `$1`..`$8` -> {@link ClaimRow}, locked and holder null. */
    look: `with ${moment}
  select moment.now::text, moment.slot::text, ${hold} as hold, ${ms('s.not_before')}::text as not_before, ${ms('s.last_slot')}::text as last_slot,
    s.started::text as started, pg_backend_pid() as backend,
    null::boolean as locked, null::text as holder
  from moment
  left join ${sync} s on s.name = $1::text and s.target = $2::text`,

    /** First install that waits: the current slot counts as served. `$1` name, `$2` target, `$3` lock key, `$4` every, `$5` offset, `$6` slot. */
    install: `insert into ${sync} (name, target, lock_key, every, "offset", last_slot, last_every)
  values ($1::text, $2::text, $3::bigint, $4::bigint, $5::bigint, ${at('$6::bigint')}, $4::bigint)
  on conflict (name, target) do nothing`,

    /**
     * Under the lock: judges the slot again in a snapshot that is younger than the lock, notes a run that died, and notes the start
     * of this one. `$1`..`$8` as for the hold, `$9` lock key, `$10` whether the run is made even when not due, `$11` trigger
     * (`'schedule'` is made more exact here), `$12` run id, `$13` host, `$14` pid, `$15` overlap, `$16` initial since as an instant,
     * `$17` the same as a duration before now, `$18` lateness after which a first attempt is a catch-up, `$19` deaths in a row
     * that pause the sync, `$20` whether the run counts as an attempt, `$21` the longest window
     * (null for any), `$22` classid, `$23` objid -> {@link BeginRow}. Writes nothing where the lock is not held by this very session.
     *
     * A longer gap is cut into slices: they partition the time from the watermark to now, and the overlap is taken off each one's start.
     */
    begin: `with ${moment},
  s as materialized (
    select * from ${sync} where name = $1::text and target = $2::text for update -- as the one who had to say its end has left it
  ),
  judged as materialized (
    select moment.now, moment.slot, s.started, s.watermark, s.cursor, s.backfill, s.pruned_at, s.attempt_slot, s.attempts,
      ${hold} as hold,
      ${missed} as missed,
      s.last_failure->>'reported' as reported,
      coalesce(s.deaths, 0) + (s.started is not null)::int as deaths,
      ${ms('s.not_before')} as not_before,
      s.attempt_slot is not null and ${ms('s.attempt_slot')} = moment.slot as attempted,
      exists (${ownLock('$22', '$23')}) as held
    from moment
    left join s on true
  ),
  decided as materialized (
    select judged.*,
      case
        when hold is not null then hold
        when started is not null and deaths >= $19::int and started->'slot' = to_jsonb(slot) then 'vanished'
      end as final_hold,
      case when attempted then attempts else 0 end as failed_attempts,
      greatest(now, ${ms('watermark')}) as whole_end,
      coalesce(${ms('watermark')}, $16::bigint, now - $17::bigint) as base,
      case
        when ${ms('watermark')} <= now then greatest(${EARLIEST}, ${ms('watermark')} - $15::bigint)
        when watermark is not null then greatest(${EARLIEST}, coalesce(( -- the clock was set back: from where the last success began, as the clock is now
          select ${ms('max(started_at)')} from ${run}
          where name = $1::text and target = $2::text and state = 'succeeded' and started_at <= ${at('now')}
        ), now) - $15::bigint)
        when $16::bigint is not null then least($16::bigint, now) -- which passes over a null
        when $17::bigint is not null then now - $17::bigint
      end as window_start
    from judged
  ),
  run as materialized (
    select decided.*,
      least(${MOST}, greatest(1, coalesce(ceil((whole_end - base) / $21::bigint::numeric), 1)))::int as slices,
      least(whole_end, base + $21::bigint) as window_end, -- which passes over a null
      held and (final_hold is null or $10::boolean) as go,
      case when $20::boolean then failed_attempts + 1 else 1 end as attempt,
      case
        when $11::text <> 'schedule' then $11::text
        when failed_attempts > 0 then 'retry'
        when missed > 0 or (not attempted and now - slot > $18::bigint) then 'catch-up'
        else 'schedule'
      end as trigger
    from decided
  ),
  found as materialized (
    select started->>'id' as id, started->>'trigger' as trigger, (started->>'host') || ':' || (started->>'pid') as worker, now,
      ${['slot', 'slice', 'slices', 'attempt', 'since', 'until', 'at'].map(name => `${numberIn('started', name)} as "${name}"`).join(',\n      ')}
    from run
    where held and started->>'id' ~ '${UUID}'
  ),
  vanished as ( -- whatever is in the mark: what cannot be recorded would be in the way of every later run
    insert into ${run} (id, name, target, trigger, state, slot, slice, slices, attempt, window_start, window_end, started_at, finished_at, worker)
    select id::uuid, $1::text, $2::text, coalesce(trigger, 'schedule'), 'vanished', ${at('slot')},
      ${count('slice')}, ${count('slices')}, ${count('attempt')},
      ${at('since')}, coalesce(${at('until')}, ${at('now')}), coalesce(${at('"at"')}, ${at('now')}), ${at('now')},
      coalesce(worker, 'unknown')
    from found
    on conflict (id) do nothing
  ),
  noted as (
    insert into ${sync} as s (name, target, lock_key, every, "offset", started, deaths, paused_until, attempt_slot, attempts, last_slot, last_every)
    select $1::text, $2::text, $9::bigint, $3::bigint, $4::bigint,
      case when go then jsonb_build_object(
        'id', $12::text, 'slot', case when trigger <> 'backfill' then slot end, 'trigger', trigger, 'slice', 1, 'slices', slices, 'attempt', attempt,
        'since', window_start, 'until', window_end, 'host', $13::text, 'pid', $14::int, 'at', now, ${ownSession}) end,
      deaths,
      case when final_hold = 'vanished' then ${at('slot + $3::bigint')} end,
      case when go and $20::boolean then ${at('slot')} else attempt_slot end,
      case when go and $20::boolean then failed_attempts else coalesce(attempts, 0) end,
      case when final_hold = 'first-run' then ${at('slot')} end, -- a first install that waits still does, whatever comes of a run by hand
      case when final_hold = 'first-run' then $3::bigint end
    from run
    where go or (held and started is not null)
    on conflict (name, target) do update set
      lock_key = excluded.lock_key,
      every = excluded.every,
      "offset" = excluded."offset",
      started = excluded.started,
      deaths = excluded.deaths,
      paused_until = coalesce(excluded.paused_until, s.paused_until),
      attempt_slot = excluded.attempt_slot,
      attempts = excluded.attempts
    returning s.started is not null as begun
  )
  select now::text, slot::text, final_hold as hold, not_before::text, coalesce((select begun from noted), false) as begun, pg_backend_pid() as backend,
    trigger, attempt, missed::text, window_start::text, window_end::text, whole_end::text, slices, cursor::text, backfill::text, ${ms('pruned_at')}::text as pruned_at,
    deaths, started->>'id' as vanished, reported
  from run`
  }
}
