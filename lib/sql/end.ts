/** SQL that records how a run ended. */
import { at, clock, EARLIEST, ms, ownLock, runColumns, type RunRow, type Tables } from './text.js'

/** What {@link End.finish} answers: the row as well, when it was recorded. */
export interface FinishRow extends RunRow {
  now: string
  backend: number
  recorded: boolean
  not_before: string | null
}

/** When a retry may begin. Needs the `clock`. `greatest` passes over a null. */
const notBefore = ({ delay, atLeast, slot, every }: Record<'delay' | 'atLeast' | 'slot' | 'every', string>): string => `greatest(
          case when ${delay}::bigint is not null then ${at(`least(clock.now + ${delay}::bigint, ${slot}::bigint + ${every}::bigint)`)} end,
          ${at(`clock.now + ${atLeast}::bigint`)})`

/** Whether a finish serves its slot. */
const serves = "($7::text = 'succeeded' and $8::bigint is not null and ($23::int = $24::int or not $16::boolean))"

/** Texts of an end. */
export interface End {
  finish: string
  lost: string
  prune: string
  pruned: string
}

export function endTexts ({ sync, run }: Tables): End {
  return {
    /**
     * The end of a run, recorded only by a session that still holds the lock. `$1` name, `$2` target, `$3` classid, `$4` objid,
     * `$5` run id, `$6` trigger, `$7` state, `$8` slot, `$9` attempt, `$10` window start, `$11` window end, `$12` started at,
     * `$13` worker, `$14` stats, `$15` error, `$16` whether the watermark moves, `$17` cursor (null: stays), `$18` every,
     * `$19` whether the failure counts as an attempt, `$20` milliseconds until a retry may begin (null: at once), `$21` a lower bound of
     * the same that also holds beyond the slot, `$22` the slot when its failure is handed to the host,
     * `$23` slice, `$24` slices, `$25` where a backfill goes on (null: as it was; a JSON null: it is done) -> {@link FinishRow}. The slot is
     * served with the last slice, and with one that does not move the watermark, after which there is none.
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
      last_slot = case when not ${serves} then s.last_slot
        when ${ms('s.last_slot')} between $8::bigint and $8::bigint + $18::bigint then s.last_slot
        else ${at('$8::bigint')} end,
      last_every = case when ${serves} then $18::bigint else s.last_every end,
      succeeded_at = case when ${serves} then ended.finished_at else s.succeeded_at end,
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
    from clock, ended
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
     *
     * The state row is locked first, as the next holder does it, who may be about to write the same run as `vanished`: the other way round they would deadlock.
     */
    lost: `with ${clock},
  same as materialized (
    select attempt_slot from ${sync} where name = $1::text and target = $2::text for update
  ),
  before as materialized (
    select state from ${run} where id = $3::uuid
  ),
  ended as (
    insert into ${run} as r (id, name, target, trigger, state, slot, slice, slices, attempt, window_start, window_end, started_at, finished_at, worker, error)
    select $3::uuid, $1::text, $2::text, $4::text, $12::text, ${at('$5::bigint')}, $18::int, $19::int, $6::int, ${at('$7::bigint')}, ${at('$8::bigint')}, ${at('$9::bigint')},
      ${at('now')}, $10::text, $11::jsonb
    from clock
    left join same on true
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
    from clock, ended, (
      select $13::boolean and attempt_slot = ${at('$5::bigint')} as counted from same
    ) as attempt
    where s.name = $1::text and s.target = $2::text
      and (not ended.stood or ended.state = 'lock-lost' or (select state from before) = 'vanished') -- no finish writes lock-lost: what stood was vanished, and may be too young to be seen before
    returning ${ms('s.not_before')} as not_before
  )
  select clock.now::text as now, (select not_before::text from noted) as not_before, ${runColumns('ended')} from clock, ended`,

    /** `$1` name, `$2` target, `$3` milliseconds to keep, `$4` how many at most -> gone. Never the last success. */
    prune: `with gone as (delete from ${run}
  where id in (
    select id from ${run}
    where name = $1::text and target = $2::text
      and started_at < clock_timestamp() - least($3::bigint, ${-EARLIEST}) * interval '1 millisecond'
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
    pruned: `update ${sync} set pruned_at = clock_timestamp() where name = $1::text and target = $2::text`
  }
}
