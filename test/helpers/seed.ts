/** Sends a statement to the database. */
type Query = (text: string, values?: unknown[]) => Promise<unknown>

/** A run to put into the history. Instants are epoch milliseconds; an hour is the slot's. */
export interface Seeded {
  slot: number | null
  state?: string
  trigger?: string
  attempt?: number
  slice?: number
  slices?: number
  since?: number | null
  until?: number
  at?: number
  took?: number
  worker?: string
  stats?: unknown
  error?: unknown
}

export const HOUR = 3_600_000

/** Writes the first state row of a sync, and runs. The schema must be there. */
export async function seed (query: Query, schema: string, name: string, { from, runs, lockKey = '0' }: { from: number, runs: Seeded[], lockKey?: string }): Promise<void> {
  const served = runs.filter(run => (run.state ?? 'succeeded') === 'succeeded' && run.slot !== null)
  const last = served.at(-1)
  await query(`insert into ${schema}.sync (name, lock_key, every, "offset", created_at, last_slot, last_every, succeeded_at, watermark)
    values ($1, $2, ${HOUR}, 0, to_timestamp($3::float8 / 1000), to_timestamp($4::float8 / 1000), ${HOUR}, to_timestamp($5::float8 / 1000), to_timestamp($5::float8 / 1000))
    on conflict (name, target) do update set created_at = excluded.created_at, last_slot = excluded.last_slot, succeeded_at = excluded.succeeded_at, watermark = excluded.watermark`,
  [name, lockKey, from, last?.slot ?? null, last === undefined ? null : last.at ?? last.slot! + 2_000])
  await query(`insert into ${schema}.run (id, name, trigger, state, slot, slice, slices, attempt, window_start, window_end, started_at, finished_at, worker, stats, error)
    select gen_random_uuid(), $1, trigger, state, to_timestamp(slot / 1000), slice, slices, attempt, to_timestamp(since / 1000), to_timestamp(until / 1000), to_timestamp(at / 1000), to_timestamp((at + took) / 1000), worker, stats, error
    from jsonb_to_recordset($2::jsonb) as seeded (trigger text, state text, slot float8, slice int, slices int, attempt int, since float8, until float8, at float8, took float8, worker text, stats jsonb, error jsonb)`,
  [name, JSON.stringify(runs.map(run => {
    const at = run.at ?? run.slot! + 2_000
    return {
      trigger: 'schedule', state: 'succeeded', slice: 1, slices: 1, attempt: 1, since: at - HOUR - 600_000, until: at, took: 1_200, worker: 'web-1:4242', ...run, at
    }
  }))])
}

/** So many hours up to now that are mixed: nearly all on time, an outage that was caught up, failures, one retried, one missing. */
export function mixedRuns (now: number, hours: number, message = 'the order service answered 500'): Seeded[] {
  const last = Math.floor(now / HOUR) * HOUR
  const runs: Seeded[] = []
  for (let back = hours; back >= 1; back--) {
    const slot = last - back * HOUR
    const size = 400 + Math.round(350 * Math.sin(slot / HOUR / 24 * 2 * Math.PI)) + (slot / HOUR * 7919) % 120
    const took = 900 + size * 4
    const stats = { orders: size, pages: Math.ceil(size / 100) }
    if (back === 30 || back === 101 || back === 100) continue // never fetched: the window of the next run is short
    if (back === 66) {
      runs.push({ slot, state: 'failed', took: 450, error: { name: 'OrderServiceError', message, statusCode: 500 } })
      continue
    }
    if (back === 29 || back === 99 || back === 65) {
      runs.push({ slot, since: slot - HOUR / 2, took, stats })
      continue
    }
    if (back % 60 >= 50 && back % 60 < 54) continue // an outage
    if (back % 60 === 49) {
      runs.push({ slot, trigger: 'catch-up', since: slot - 5 * HOUR - 600_000, took: took * 3, stats: { orders: size * 4, pages: 40 } })
      continue
    }
    if (back % 43 === 20) {
      for (const attempt of [1, 2, 3, 4]) {
        runs.push({ slot, trigger: attempt === 1 ? 'schedule' : 'retry', attempt, state: 'failed', at: slot + attempt * 240_000, took: 300, worker: 'web-2:977', error: { name: 'OrderServiceError', message, statusCode: 500 } })
      }
      continue
    }
    if (back % 31 === 7) runs.push({ slot, state: 'timed-out', took: 60_000, error: { name: 'FastifyError', message: 'the run took longer than its timeout of 60000 ms', code: 'FST_HOURLY_SYNC_TIMEOUT' } })
    runs.push({ slot, attempt: back % 31 === 7 ? 2 : 1, trigger: back % 31 === 7 ? 'retry' : 'schedule', at: slot + (back % 31 === 7 ? 300_000 : 2_000), took, stats, worker: back % 3 === 0 ? 'web-2:977' : 'web-1:4242' })
  }
  return runs
}
