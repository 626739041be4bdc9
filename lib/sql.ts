/**
 * Every SQL text of the plugin.
 *
 * Two rules hold for all of them. The clock is the server's, floored to milliseconds and computed as an epoch, so that
 * no session time zone and no host's clock can bend it. And they are sent with {@link ours}, whose parsers are their own: hosts
 * change pg's global ones. Columns are text, int4 or boolean; an int8 is cast to text.
 */
import type { QueryConfig } from 'pg'

/** The longest timer there is. Our statements have limits of their own, which know a blocked event loop from a silent server. */
const NEVER = 2 ** 31 - 1

/** A statement of ours, with parsers and limits that no setting of the host can bend. */
export function ours (text: string, values: unknown[] = []): QueryConfig {
  return { ...plain(text, values), query_timeout: NEVER } as QueryConfig
}

/** A statement that we make for the host: with our parsers, and the host's limits. */
export function plain (text: string, values: unknown[] = [], name?: string): QueryConfig {
  return { text, values, name, types: { getTypeParser } } as QueryConfig
}

const BOOL = 16
const INT4 = 23

function getTypeParser (oid: number, format?: string): (value: any) => unknown {
  if (format === 'binary') {
    if (oid === BOOL) return (value: Buffer) => value[0] === 1
    if (oid === INT4) return (value: Buffer) => value.readInt32BE()
    return (value: Buffer) => value.toString()
  }
  if (oid === BOOL) return (value: string) => value === 't'
  if (oid === INT4) return Number
  return String
}

/** Quotes an identifier; the only thing ever spliced into SQL. */
export function identifier (name: string): string {
  return `"${name.replaceAll('"', '""')}"`
}

/** An instant column as whole epoch milliseconds. */
export const ms = (column: string): string => `floor(extract(epoch from ${column}) * 1000)::bigint`

/** The opposite: exact, for a double holds whole milliseconds beyond any year in use. */
export const at = (expression: string): string => `to_timestamp((${expression})::double precision / 1000)`

export const clock = `clock as materialized (
    select ${ms('clock_timestamp()')} as now
  )`

/** `$1` lock key -> nothing. Whether this very session holds the lock. */
const ownLock = (classid: string, objid: string): string => `select 1
      from pg_locks
      where locktype = 'advisory'
        and pid = pg_backend_pid()
        and database = (select oid from pg_database where datname = current_database())
        and classid = ${classid}::oid
        and objid = ${objid}::oid
        and objsubid = 1
        and mode = 'ExclusiveLock'
        and granted`

/** Who holds the lock, as a query: the view lists the locks of all databases of the server, so the database is named. */
export const holding = (classid: string, objid: string): string => `select l.pid as backend, a.application_name, host(a.client_addr) as address
  from pg_locks l
  left join pg_stat_activity a on a.pid = l.pid
  where l.locktype = 'advisory'
    and l.database = (select oid from pg_database where datname = current_database())
    and l.classid = ${classid}::oid
    and l.objid = ${objid}::oid
    and l.objsubid = 1
    and l.mode = 'ExclusiveLock'
    and l.granted`

/** The columns of a run row, as text. */
export const runColumns = (table: string): string => `${table}.id::text as id,
    ${table}.name,
    ${table}.target,
    ${table}.trigger,
    ${table}.state,
    ${ms(`${table}.slot`)}::text as slot,
    ${table}.slice,
    ${table}.slices,
    ${table}.attempt,
    ${ms(`${table}.window_start`)}::text as window_start,
    ${ms(`${table}.window_end`)}::text as window_end,
    ${ms(`${table}.started_at`)}::text as started_at,
    ${ms(`${table}.finished_at`)}::text as finished_at,
    ${table}.worker,
    ${table}.stats::text as stats,
    ${table}.error::text as error`

/** A run row, as {@link runColumns} gives it. */
export interface RunRow {
  id: string
  name: string
  target: string
  trigger: string
  state: string
  slot: string | null
  slice: number
  slices: number
  attempt: number
  window_start: string | null
  window_end: string
  started_at: string
  finished_at: string
  worker: string
  stats: string | null
  error: string | null
}

/** -> backend. */
export const backendPid = 'select pg_backend_pid() as backend'

/** `$1` seconds. Keeps a backend busy. */
export const busyFor = 'select pg_backend_pid() as backend from pg_sleep($1::double precision)'

/** `$1` schema name, quoted -> missing, a row for each right on our tables that the role lacks. */
export const missingRights = `select rights.name || ' on ' || tables.name as missing
  from (values ('sync'), ('run')) as tables (name)
  cross join (values ('select'), ('insert'), ('update'), ('delete')) as rights (name)
  where (tables.name, rights.name) <> ('sync', 'delete')
    and not has_table_privilege($1::text || '.' || tables.name, rights.name)`

/**
 * Why the current slot is not to be run, or null when it is due. Needs `moment` and the state row `s`, and the first eight
 * parameters: `$1` name, `$2` target, `$3` every, `$4` offset, `$5` how late a slot may be attempted with `catchUp: 'skip'`
 * (null for `'once'`), `$6` the number of retries, `$7` whether this process has just booted, `$8` whether a first
 * install waits for the next slot. All durations are milliseconds.
 *
 * What lies further ahead than it can (a last slot or a pause more than one `every`, a failure in the future) was
 * written before the server's clock jumped back, and does not hold.
 */
const hold = `case
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

/** What {@link Statements.claim} answers. */
export interface ClaimRow {
  now: string
  slot: string
  hold: string | null
  not_before: string | null
  last_slot: string | null
  /** Whether the sync has a state row. */
  known: boolean
  /** The mark of the run that noted its start and not yet its end, JSON. */
  started: string | null
  backend: number
  /** Null when the lock was not tried for. */
  locked: boolean | null
}

/** What {@link Statements.begin} answers. */
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

/** What {@link Statements.finish} answers: the row as well, when it was recorded. */
export interface FinishRow extends RunRow {
  now: string
  backend: number
  recorded: boolean
  not_before: string | null
}

export interface StateRow {
  now: string
  slot: string
  hold: string | null
  known: boolean
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

export interface HolderRow {
  backend: number
  application_name: string | null
  address: string | null
}

/** The texts, for one schema. */
export interface Statements {
  claim: string
  tryLock: string
  look: string
  begin: string
  prove: string
  finish: string
  lost: string
  proceed: string
  checkpoint: string
  announce: string
  unlock: string
  install: string
  prune: string
  pruned: string
  holder: string
  state: string
}

/** How many whole slots before the current one nobody served. Needs `moment` and `s`. */
const missed = `case
      when s.succeeded_at is null then 0
      else greatest(0, floor((moment.slot - ${ms('s.last_slot')} - s.last_every) / $3::bigint::numeric))
    end::bigint`

/**
 * Settings of the lock session, as one expression. A server that does not know one, or cannot have it, keeps its own.
 * Parameters: `$21` application name, `$22` idle timeout in milliseconds.
 *
 * The check of the client's connection needs an operating system that can be asked; elsewhere setting it is an error.
 */
const sessionSettings = `concat(
      set_config('application_name', $21::text, false),
      ${setting('idle_session_timeout', '$22::text')},
      ${setting('idle_in_transaction_session_timeout', '$22::text',
        "coalesce(nullif(current_setting('idle_in_transaction_session_timeout', true), '0')::interval > $22::interval, true)")},
      ${setting('tcp_keepalives_idle', "'20'")},
      ${setting('tcp_keepalives_interval', "'10'")},
      ${setting('tcp_keepalives_count', "'3'")},
      ${setting('client_connection_check_interval', "'1s'", "version() ~ 'linux'")}
    )`

/** Cheaper than a join with pg_settings, which makes a row of every setting there is. */
function setting (name: string, value: string, condition = 'true'): string {
  return `case when ${condition} and current_setting('${name}', true) is not null then set_config('${name}', ${value}, false) end`
}

/** When a retry may begin, once `ended` is known. `greatest` passes over a null. */
const notBefore = ({ delay, atLeast, slot, every }: Record<'delay' | 'atLeast' | 'slot' | 'every', string>): string => `greatest(
          case when ${delay}::bigint is not null then least(ended.finished_at + ${delay}::bigint * interval '1 millisecond', ${at(`${slot}::bigint + ${every}::bigint`)}) end,
          ended.finished_at + ${atLeast}::bigint * interval '1 millisecond')`

export function statements (schemaName: string): Statements {
  const schema = identifier(schemaName)
  const sync = `${schema}.sync`
  const run = `${schema}.run`

  return Object.freeze({
    /**
     * A look: is the slot due, and if so, is the lock free? `$1`..`$8` as for the hold, `$9` lock key -> {@link ClaimRow}.
     *
     * Never waits. The lock is tried for in a `case` of a single row, where it is evaluated exactly when meant.
     */
    claim: `with ${moment},
  judged as materialized (
    select moment.now, moment.slot, ${hold} as hold, ${ms('s.not_before')} as not_before, ${ms('s.last_slot')} as last_slot, s.name is not null as known, s.started::text as started
    from moment
    left join ${sync} s on s.name = $1::text and s.target = $2::text
  )
  select now::text, slot::text, hold, not_before::text, last_slot::text, known, started,
    pg_backend_pid() as backend,
    case when hold is null then pg_try_advisory_lock($9::bigint) end as locked
  from judged`,

    /** The lock, whether the slot is due or not. `$1` lock key -> locked, backend. Never waits. */
    tryLock: 'select pg_try_advisory_lock($1::bigint) as locked, pg_backend_pid() as backend',

    /** The same as the claim without the lock, through a pool that is not the lock's. `$1`..`$8` -> {@link ClaimRow}, locked null. */
    look: `with ${moment}
  select moment.now::text, moment.slot::text, ${hold} as hold, ${ms('s.not_before')}::text as not_before, ${ms('s.last_slot')}::text as last_slot,
    s.name is not null as known, s.started::text as started, pg_backend_pid() as backend,
    null::boolean as locked
  from moment
  left join ${sync} s on s.name = $1::text and s.target = $2::text`,

    /**
     * Under the lock: judges the slot again in a snapshot that is younger than the lock, notes a run that died, and notes the start
     * of this one. `$1`..`$8` as for the hold, `$9` lock key, `$10` whether the run is made even when not due, `$11` trigger
     * (`'schedule'` is made more exact here), `$12` run id, `$13` host, `$14` pid, `$15` overlap, `$16` initial since as an instant,
     * `$17` the same as a duration before now, `$18` lateness after which a first attempt is a catch-up, `$19` deaths in a row
     * that pause the sync, `$20` whether the run counts as an attempt, `$21`, `$22` session settings, `$23` the longest window
     * (null for any), `$24` classid, `$25` objid -> {@link BeginRow}. Writes nothing where the lock is not held by this very session.
     *
     * A longer gap is cut into slices: they partition the time from the watermark to now, and the overlap is taken off each one's start.
     */
    begin: `with ${moment},
  s as materialized (
    select * from ${sync} where name = $1::text and target = $2::text for update -- as the one who had to say its end has left it
  ),
  judged as materialized (
    select moment.now, moment.slot, s.name is not null as known, s.started, s.watermark, s.cursor, s.backfill, s.pruned_at, s.attempt_slot, s.attempts,
      ${hold} as hold,
      ${missed} as missed,
      s.last_failure->>'reported' as reported,
      coalesce(s.deaths, 0) + (s.started is not null)::int as deaths,
      ${ms('s.not_before')} as not_before,
      s.attempt_slot is not null and ${ms('s.attempt_slot')} = moment.slot as attempted,
      exists (${ownLock('$24', '$25')}) as held
    from moment
    left join s on true
  ),
  decided as materialized (
    select judged.*,
      case
        when hold is not null then hold
        when started is not null and deaths >= $19::int and (started->>'slot')::bigint = slot then 'vanished'
      end as final_hold,
      case when attempted then attempts else 0 end as failed_attempts,
      greatest(now, ${ms('watermark')}) as whole_end,
      coalesce(${ms('watermark')}, $16::bigint, now - $17::bigint) as base,
      case
        when ${ms('watermark')} <= now then ${ms('watermark')} - $15::bigint
        when watermark is not null then coalesce(( -- the clock was set back: from where the last success began, as the clock is now
          select ${ms('max(started_at)')} from ${run}
          where name = $1::text and target = $2::text and state = 'succeeded' and started_at <= ${at('now')}
        ), now) - $15::bigint
        when $16::bigint is not null then least($16::bigint, now) -- which passes over a null
        when $17::bigint is not null then now - $17::bigint
      end as window_start
    from judged
  ),
  run as materialized (
    select decided.*,
      greatest(1, coalesce(ceil((whole_end - base) / $23::bigint::numeric), 1))::int as slices,
      least(whole_end, base + $23::bigint) as window_end, -- which passes over a null
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
  vanished as (
    insert into ${run} (id, name, target, trigger, state, slot, slice, slices, attempt, window_start, window_end, started_at, finished_at, worker)
    select (started->>'id')::uuid, $1::text, $2::text, started->>'trigger', 'vanished', ${at("started->>'slot'")},
      (started->>'slice')::int, (started->>'slices')::int, (started->>'attempt')::int,
      ${at("started->>'since'")}, ${at("started->>'until'")}, ${at("started->>'at'")}, ${at('now')},
      (started->>'host') || ':' || (started->>'pid')
    from run
    where held and started is not null
    on conflict (id) do nothing
  ),
  noted as (
    insert into ${sync} as s (name, target, lock_key, every, "offset", started, deaths, paused_until, attempt_slot, attempts)
    select $1::text, $2::text, $9::bigint, $3::bigint, $4::bigint,
      case when go then jsonb_build_object(
        'id', $12::text, 'slot', case when trigger <> 'backfill' then slot end, 'trigger', trigger, 'slice', 1, 'slices', slices, 'attempt', attempt,
        'since', window_start, 'until', window_end, 'host', $13::text, 'pid', $14::int, 'at', now) end,
      deaths,
      case when final_hold = 'vanished' then ${at('slot + $3::bigint')} end,
      case when go and $20::boolean then ${at('slot')} else attempt_slot end,
      case when go and $20::boolean then failed_attempts else coalesce(attempts, 0) end
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
    deaths, started->>'id' as vanished, reported, ${sessionSettings} as settings
  from run`,

    /** Does this session still hold the lock? `$1` classid, `$2` objid -> backend, held. Only looks. */
    prove: `select pg_backend_pid() as backend, exists (${ownLock('$1', '$2')}) as held`,

    /**
     * The end of a run, recorded only by a session that still holds the lock. `$1` name, `$2` target, `$3` classid, `$4` objid,
     * `$5` run id, `$6` trigger, `$7` state, `$8` slot, `$9` attempt, `$10` window start, `$11` window end, `$12` started at,
     * `$13` worker, `$14` stats, `$15` error, `$16` whether the watermark moves, `$17` cursor (null: stays), `$18` every,
     * `$19` whether the failure counts as an attempt, `$20` milliseconds until a retry may begin (null: at once), `$21` a lower bound of
     * the same that also holds beyond the slot, `$22` the slot when its failure is handed to the host,
     * `$23` slice, `$24` slices, `$25` where a backfill goes on (null: as it was; a JSON null: it is done) -> {@link FinishRow}. The slot is
     * served with the last slice.
     *
     * Rows of ours read before and written after are safe: nobody else writes them without the lock.
     */
    finish: `with ${clock},
  ended as (
    insert into ${run} (id, name, target, trigger, state, slot, slice, slices, attempt, window_start, window_end, started_at, finished_at, worker, stats, error)
    select $5::uuid, $1::text, $2::text, $6::text, $7::text, ${at('$8::bigint')}, $23::int, $24::int, $9::int, ${at('$10::bigint')}, ${at('$11::bigint')},
      ${at('$12::bigint')}, ${at('now')}, $13::text, $14::jsonb, $15::jsonb
    from clock
    where exists (${ownLock('$3', '$4')})
    on conflict (id) do nothing
    returning *
  ),
  noted as (
    update ${sync} s set
      started = null,
      deaths = 0,
      last_slot = case when $7::text <> 'succeeded' or $8::bigint is null or $23::int < $24::int then s.last_slot
        when ${ms('s.last_slot')} between $8::bigint and $8::bigint + $18::bigint then s.last_slot
        else ${at('$8::bigint')} end,
      last_every = case when $7::text = 'succeeded' and $8::bigint is not null and $23::int = $24::int then $18::bigint else s.last_every end,
      succeeded_at = case when $7::text = 'succeeded' and $8::bigint is not null and $23::int = $24::int then ended.finished_at else s.succeeded_at end,
      backfill = nullif(coalesce($25::jsonb, s.backfill), 'null'),
      watermark = case when $16::boolean then greatest(s.watermark, ended.window_end) else s.watermark end,
      cursor = case when $16::boolean then coalesce($17::jsonb, s.cursor) else s.cursor end,
      attempts = s.attempts + ($19::boolean)::int,
      failed_at = case when $19::boolean then ended.finished_at else s.failed_at end,
      not_before = case
        when $7::text = 'succeeded' and $8::bigint is not null then null
        when not $19::boolean then s.not_before
        else ${notBefore({ delay: '$20', atLeast: '$21', slot: '$8', every: '$18' })}
      end,
      paused_until = case when $7::text = 'succeeded' and $8::bigint is not null then null else s.paused_until end,
      last_failure = case when $15::jsonb is null then s.last_failure
        else $15::jsonb || jsonb_build_object('at', ${ms('ended.finished_at')}, 'state', $7::text,
          'reported', coalesce($22::bigint, (s.last_failure->>'reported')::bigint)) end
    from ended
    where s.name = $1::text and s.target = $2::text
    returning ${ms('s.not_before')} as not_before
  )
  select clock.now::text as now, pg_backend_pid() as backend, (select not_before::text from noted) as not_before, ended.id is not null as recorded, ${runColumns('ended')}
  from clock
  left join ended on true`,

    /**
     * What a run without its lock can still say, through any session: that it was lost. It stands over a `vanished` of the same run, never over
     * anything else, and clears no mark but its own. `$1` name, `$2` target, `$3` run id, `$4` trigger, `$5` slot, `$6` attempt,
     * `$7` window start, `$8` window end, `$9` started at, `$10` worker, `$11` error, `$12` state, `$13` whether it uses up an attempt,
     * `$14`, `$15`, `$16`, `$17`, `$18`, `$19` as `$20`, `$21`, `$22`, `$18`, `$23`, `$24` of the finish -> the row that stands then.
     *
     * An end that is there already, for the answer to its finish was lost, was counted with it: nothing is noted a second time.
     */
    lost: `with ${clock},
  before as materialized (
    select state from ${run} where id = $3::uuid
  ),
  ended as (
    insert into ${run} as r (id, name, target, trigger, state, slot, slice, slices, attempt, window_start, window_end, started_at, finished_at, worker, error)
    select $3::uuid, $1::text, $2::text, $4::text, $12::text, ${at('$5::bigint')}, $18::int, $19::int, $6::int, ${at('$7::bigint')}, ${at('$8::bigint')}, ${at('$9::bigint')},
      ${at('now')}, $10::text, $11::jsonb
    from clock
    on conflict (id) do update set
      state = case when r.state = 'vanished' then excluded.state else r.state end,
      finished_at = case when r.state = 'vanished' then excluded.finished_at else r.finished_at end,
      error = case when r.state = 'vanished' then excluded.error else r.error end
    returning r.*, xmax <> 0 as stood
  ),
  noted as (
    update ${sync} s set
      started = case when s.started->>'id' = $3::text then null else s.started end,
      deaths = case when ended.stood then greatest(0, s.deaths - 1) else s.deaths end,
      attempts = s.attempts + counted::int,
      failed_at = case when counted then ended.finished_at else s.failed_at end,
      not_before = case
        when not counted then s.not_before
        else ${notBefore({ delay: '$14', atLeast: '$15', slot: '$5', every: '$17' })}
      end,
      last_failure = $11::jsonb || jsonb_build_object('at', ${ms('ended.finished_at')}, 'state', ended.state,
        'reported', coalesce($16::bigint, (s.last_failure->>'reported')::bigint))
    from ended, (
      select $13::boolean and attempt_slot = ${at('$5::bigint')} as counted from ${sync} where name = $1::text and target = $2::text
    ) as same
    where s.name = $1::text and s.target = $2::text and (not ended.stood or (select state from before) = 'vanished')
    returning ${ms('s.not_before')} as not_before
  )
  select clock.now::text as now, (select not_before::text from noted) as not_before, ${runColumns('ended')} from clock, ended`,

    /**
     * The start of a further run under a lock that is held. `$1` name, `$2` target, `$3` the mark, without its instant, `$4` where a
     * backfill goes on (null: as it was) -> backend, now, cursor.
     */
    proceed: `with ${clock}
  update ${sync} s set
    started = $3::jsonb || jsonb_build_object('at', clock.now),
    backfill = coalesce($4::jsonb, s.backfill)
  from clock
  where s.name = $1::text and s.target = $2::text
  returning pg_backend_pid() as backend, clock.now::text as now, s.cursor::text as cursor`,

    /**
     * What a run has done so far stays done. `$1` name, `$2` target, `$3` classid, `$4` objid, `$5` until (null: as it was), `$6` cursor
     * (null: as it was), `$7` whether the run is a backfill -> backend, and a row only while the lock is held.
     */
    checkpoint: `update ${sync} s set
    watermark = case when $7::boolean then s.watermark else greatest(s.watermark, ${at('$5::bigint')}) end,
    cursor = case when $7::boolean then s.cursor else coalesce($6::jsonb, s.cursor) end,
    backfill = case when $7::boolean and $5::bigint is not null then s.backfill || jsonb_build_object('position', $5::bigint) else s.backfill end
  where s.name = $1::text and s.target = $2::text
    and exists (${ownLock('$3', '$4')})
  returning pg_backend_pid() as backend`,

    /** Says where others can see it, until the session ends, what the run is at. `$1` application name -> backend. */
    announce: "select pg_backend_pid() as backend, set_config('application_name', $1::text, false) as announced",

    /** `$1` lock key (bigint as text) -> unlocked. */
    unlock: 'select pg_advisory_unlock($1::bigint) as unlocked',

    /** First install that waits: the current slot counts as served. `$1` name, `$2` target, `$3` lock key, `$4` every, `$5` offset, `$6` slot. */
    install: `insert into ${sync} (name, target, lock_key, every, "offset", last_slot, last_every)
  values ($1::text, $2::text, $3::bigint, $4::bigint, $5::bigint, ${at('$6::bigint')}, $4::bigint)
  on conflict (name, target) do nothing`,

    /** `$1` name, `$2` target, `$3` milliseconds to keep, `$4` how many at most -> gone. Never the last success. */
    prune: `with gone as (delete from ${run}
  where id in (
    select id from ${run}
    where name = $1::text and target = $2::text
      and started_at < clock_timestamp() - $3::bigint * interval '1 millisecond'
      and id is distinct from (
        select id from ${run}
        where name = $1::text and target = $2::text and state = 'succeeded'
        order by started_at desc
        limit 1
      )
    order by started_at
    limit $4::int
  ) returning id)
  select count(*)::int as gone from gone`,

    /** `$1` name, `$2` target. */
    pruned: `update ${sync} set pruned_at = clock_timestamp() where name = $1::text and target = $2::text`,

    /**
     * Who holds the lock. `$1` classid, `$2` objid -> {@link HolderRow}, or none. The view lists the locks of all databases of
     * the server, so the database is named; the holder's own row may be hidden from a role without rights on it.
     */
    holder: holding('$1', '$2'),

    /** `$1`..`$8` as for the hold -> {@link StateRow}. */
    state: `with ${moment}
  select moment.now::text, moment.slot::text, ${hold} as hold, s.name is not null as known,
    ${ms('s.watermark')}::text as watermark, ${ms('s.last_slot')}::text as last_slot, ${ms('s.not_before')}::text as not_before,
    ${ms('s.paused_until')}::text as paused_until, s.succeeded_at is not null as succeeded, s.last_failure::text as last_failure,
    (${missed})::text as missed,
    ((moment.slot - (${ms('s.created_at')} - $4::bigint) / $3::bigint * $3::bigint - $4::bigint) / $3::bigint)::text as since_made, s.started::text as started, s.backfill::text as backfill
  from moment
  left join ${sync} s on s.name = $1::text and s.target = $2::text`
  })
}
