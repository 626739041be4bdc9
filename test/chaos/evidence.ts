import type { Database } from './database.js'

/** A row that a run has written, in the order in which the transactions were committed. */
export interface Write {
  run: string
  seq: number
  /** What the run wrote, or `recorded` for the row of its end. */
  kind: string
  temper: string | null
  worker: number | null
  backend: number | null
  trigger: string | null
  /** Epoch milliseconds. */
  committed: number
  slot: number | null
  since: number | null
  until: number | null
}

export interface Run {
  id: string
  state: string
  trigger: string
  slot: number
  since: number | null
  until: number
  worker: string
  started: number
  finished: number
}

/**
 * Everything the syncs have left in the database. The commit's own stamp, taken from the real clock as the transaction ends and before its locks are let go,
 * gives the order: a row's number is drawn long before.
 */
export async function gather ({ ask }: Database): Promise<{ writes: Write[], runs: Run[] }> {
  const ms = (column: string): string => `(extract(epoch from ${column}) * 1000)::float8`
  const writes = await ask<Write>(`
    select run, seq, kind, temper, worker, backend, trigger, ${ms('slot')} as slot, ${ms('since')} as since, ${ms('until')} as until, ${ms('committed')} as committed from (
      select run::text, seq, kind, temper, worker, backend, trigger, slot, since, until, pg_xact_commit_timestamp(xmin) as committed, id from public.chaos_log
      union all
      select run::text, 1000000, 'recorded', null, null, null, null, null, null, null, pg_xact_commit_timestamp(xmin), 9223372036854775807
      from public.chaos_end where state = 'succeeded'
    ) as rows order by rows.committed, rows.id`)
  const runs = await ask<Run>(`
    select id::text, state, trigger, worker, ${ms('slot')} as slot, ${ms('window_start')} as since, ${ms('window_end')} as until, ${ms('started_at')} as started,
      ${ms('finished_at')} as finished
    from hourly_sync.run where name = 'chaos' order by started_at`)
  return { writes, runs }
}
