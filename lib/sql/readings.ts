/**
 * The SQL of what is read and never decided on: runs, slots, what listeners are told. The rules of lib/sql.ts hold here too.
 */
import { at, clock, type HolderRow, holding, identifier, moment, ms, runColumns } from '../sql.js'

/** How many of the newest runs a listener's look sees. */
export const NEWEST = 50

/** What {@link Readings.slots} answers, a row a slot. */
export interface SlotRow {
  slot: string
  state: string
  runs: number
  failures: number
  /** The run that served it, caught it up, or was its last. */
  run: string | null
}

/** What {@link Readings.hours} answers, a row an hour. */
export interface HourRow {
  hour: string
  on_time: number
  caught_up: number
  failed: number
  missing: number
  pending: number
  /** Runs of these slots that did not succeed. */
  failures: number
  /** A run that says why the hour is as it is: of its worst slot, the latest. */
  run: string | null
  trigger: string | null
  run_state: string | null
  run_started_at: string | null
  run_finished_at: string | null
  error: string | null
}

/** What {@link Readings.look} answers. */
export interface LookRow extends Omit<HolderRow, 'backend'> {
  started: string | null
  backend: number | null
  /** The newest runs: `id state`, with commas between. */
  newest: string | null
}

export interface HealthRow {
  now: string
  succeeded_at: string | null
}

/** The texts, for one schema. */
export interface Readings {
  runs: string
  run: string
  theseRuns: string
  lastSuccess: string
  slots: string
  hours: string
  look: string
  health: string
}

export function readings (schemaName: string): Readings {
  const schema = identifier(schemaName)
  const sync = `${schema}.sync`
  const run = `${schema}.run`

  /**
   * The first success from `slots.slot` on whose window holds an instant, as a query. Windows that end before are passed over, for a long gap
   * has many slices. Where the first ones that reach it begin after it, so do all: a few are enough, or time that nobody fetched cost a look at all
   * that came later.
   */
  const fetched = (instant: string): string => `select later.id
        from (
          select r.id, r.window_start
          from ${run} r
          where r.name = $1::text and r.target = $2::text and r.state = 'succeeded'
            and r.slot >= ${at('slots.slot')} and r.window_end >= ${at(instant)}
          order by r.slot, r.started_at
          limit 20
        ) as later
        where later.window_start is null or later.window_start <= ${at(instant)}
        limit 1`

  /** Of which slots it is asked. As a condition of the join it would be looked at last, after every slot of the past was looked for. */
  const unserved = 'ran.served_by is null and slots.slot < moment.slot and (ran.runs > 0 or slots.slot >= known.since)'

  /**
   * What every slot came to, in `judged`. `$1` name, `$2` target, `$3` every, `$4` offset, `$5` since, `$6` until (each null for what
   * follows from the other and `$7`), `$7` the longest time looked at, `$8` how long runs are kept.
   *
   * A slot is served by a run of its own. It is caught up by the first later success whose window holds its end, if its start was fetched
   * as well: windows follow on each other, and those of slices are often shorter than a slot. Or by a backfill over the whole of it. Nobody
   * knows of slots from before the first state row, and of those whose runs are pruned.
   */
  const judged = `${moment},
  known as materialized (
    select greatest(moment.now - $8::bigint, (select ${ms('created_at')} from ${sync} where name = $1::text and target = $2::text)) as since
    from moment
    where exists (select from ${sync} where name = $1::text and target = $2::text)
  ),
  span as materialized (
    select ceil((since - $4::bigint)::numeric / $3::bigint)::bigint * $3::bigint + $4::bigint as first, until
    from (
      select coalesce($5::bigint, least(coalesce($6::bigint, now), now) - $7::bigint) as since,
        least(now, coalesce($6::bigint, $5::bigint + $7::bigint, now)) as until
      from moment
    ) as asked
  ),
  slots as materialized (
    select slot from span, generate_series(first, until - 1, $3::bigint) as slot
  ),
  ran as materialized (
    select floor((${ms('r.slot')} - $4::bigint)::numeric / $3::bigint)::bigint * $3::bigint + $4::bigint as slot,
      count(*)::int as runs,
      (count(*) filter (where r.state <> 'succeeded'))::int as failures,
      (array_agg(r.id order by r.started_at) filter (where r.state = 'succeeded' and r.slice = r.slices))[1] as served_by,
      (array_agg(r.id order by r.started_at desc))[1] as latest
    from span, ${run} r
    where r.name = $1::text and r.target = $2::text
      and r.slot >= ${at('span.first')} and r.slot < ${at('span.until')}
    group by 1
  ),
  judged as (
    select slots.slot,
      case
        when ran.served_by is not null then 'on-time'
        when slots.slot >= moment.slot then 'pending'
        when ran.runs is null and slots.slot < coalesce(known.since, moment.now) then 'unknown'
        when covering.id is not null then 'caught-up'
        when ran.runs > 0 then 'failed'
        else 'missing'
      end as state,
      coalesce(ran.runs, 0) as runs,
      coalesce(ran.failures, 0) as failures,
      coalesce(ran.served_by, covering.id, ran.latest) as run
    from moment
    cross join slots
    left join known on true
    left join ran on ran.slot = slots.slot
    left join lateral (
      select reaching.id
      from (${fetched('slots.slot + $3::bigint')}) as reaching
      where ${unserved} and exists (${fetched('slots.slot')})
      union all
      select r.id
      from ${run} r
      where ${unserved} and r.name = $1::text and r.target = $2::text and r.slot is null and r.state = 'succeeded'
        and r.window_start <= ${at('slots.slot')} and r.window_end >= ${at('slots.slot + $3::bigint')}
      limit 1
    ) as covering on true
  )`

  return Object.freeze({
    /**
     * `$1` name, `$2` target, `$3` limit, `$4` id of a run (null: from the newest), `$5` state, `$6` trigger (null: any) -> rows older
     * than it, newest first.
     */
    runs: `select ${runColumns('r')}
  from ${run} r
  where r.name = $1::text and r.target = $2::text
    and ($4::uuid is null or (r.started_at, r.id) < (select started_at, id from ${run} where id = $4::uuid))
    and ($5::text is null or r.state = $5::text)
    and ($6::text is null or r.trigger = $6::text)
  order by r.started_at desc, r.id desc
  limit $3::int`,

    /** `$1` name, `$2` target, `$3` id -> the run, if it is one of this sync, or none. */
    run: `select ${runColumns('r')} from ${run} r where r.id = $3::uuid and r.name = $1::text and r.target = $2::text`,

    /** `$1` ids -> their rows, in the order they ended. */
    theseRuns: `select ${runColumns('r')} from ${run} r where r.id = any($1::uuid[]) order by r.finished_at, r.id`,

    /** `$1` name, `$2` target -> the newest run that succeeded, or none. */
    lastSuccess: `select ${runColumns('r')}
  from ${run} r
  where r.name = $1::text and r.target = $2::text and r.state = 'succeeded'
  order by r.started_at desc, r.id desc
  limit 1`,

    /** {@link judged} -> {@link SlotRow}, oldest first. */
    slots: `with ${judged}
  select slot::text, state, runs, failures, run::text from judged order by slot`,

    /** {@link judged}, counted by the hour they begin in -> {@link HourRow}, oldest first. */
    hours: `with ${judged},
  counted as (
    select floor(slot / 3600000.0)::bigint * 3600000 as hour,
      (count(*) filter (where state = 'on-time'))::int as on_time,
      (count(*) filter (where state = 'caught-up'))::int as caught_up,
      (count(*) filter (where state = 'failed'))::int as failed,
      (count(*) filter (where state = 'missing'))::int as missing,
      (count(*) filter (where state = 'pending'))::int as pending,
      sum(failures)::int as failures,
      (array_agg(run order by array_position(array['failed', 'pending', 'caught-up', 'on-time'], state), slot desc) filter (where run is not null))[1] as run
    from judged
    where state <> 'unknown'
    group by 1
  )
  select counted.hour::text, counted.on_time, counted.caught_up, counted.failed, counted.missing, counted.pending, counted.failures, counted.run::text,
    r.trigger, r.state as run_state, ${ms('r.started_at')}::text as run_started_at, ${ms('r.finished_at')}::text as run_finished_at, r.error->>'message' as error
  from counted
  left join ${run} r on r.id = counted.run
  order by counted.hour`,

    /** What listeners are told of. `$1` name, `$2` target, `$3` classid, `$4` objid -> {@link LookRow}. */
    look: `select s.started::text as started, holder.backend, holder.connected, holder.application_name, holder.address,
    (select string_agg(newest.id::text || ' ' || newest.state, ',')
      from (select id, state from ${run} where name = $1::text and target = $2::text order by started_at desc, id desc limit ${NEWEST}) as newest) as newest
  from (values (true)) as one
  left join ${sync} s on s.name = $1::text and s.target = $2::text
  left join (${holding('$3', '$4')}) as holder on true`,

    /** `$1` name, `$2` target -> {@link HealthRow}. */
    health: `with ${clock}
  select clock.now::text, ${ms('s.succeeded_at')}::text as succeeded_at
  from clock
  left join ${sync} s on s.name = $1::text and s.target = $2::text`
  })
}
