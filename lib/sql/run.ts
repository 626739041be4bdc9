/** SQL of a session that holds the lock, while its run goes on. */
import { at, clock, ownLock, ownSession, type Tables } from './text.js'

/** Texts of a run under way. */
export interface Running {
  prove: string
  proceed: string
  checkpoint: string
  announce: string
  unlock: string
}

export function runTexts ({ sync }: Tables): Running {
  return {
    /** Does this session still hold the lock? `$1` classid, `$2` objid -> backend, held. Only looks. */
    prove: `select pg_backend_pid() as backend, exists (${ownLock('$1', '$2')}) as held`,

    /**
     * The start of a further run under a lock that is held. `$1` name, `$2` target, `$3` the mark, without its instant and its session, `$4` where a
     * backfill goes on (null: as it was) -> backend, now, cursor.
     */
    proceed: `with ${clock}
  update ${sync} s set
    started = $3::jsonb || jsonb_build_object('at', clock.now, ${ownSession}),
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
    unlock: 'select pg_advisory_unlock($1::bigint) as unlocked'
  }
}
