/** The worked examples of the README's section on saving, each against an API that behaves as it says. */
import t from 'tap'
import type { HourlySyncOptions, SyncRun } from '../lib/types.js'
import { setStage, type Host, type Stage } from './helpers/host.js'
import { startPostgres } from './helpers/postgres.js'

t.setTimeout(180_000)
const cluster = await startPostgres(t)
const HOUR = 3_600_000

interface Change { external_id: string, status: string, updated_at: Date }
type Test = Parameters<typeof setStage>[0]

const ids = async ({ query }: Stage, table: string): Promise<string[]> => (await query(`select external_id from ${table} order by external_id`)).rows.map(row => row.external_id)

/** A stage at noon, a table of its own and a host. */
async function scene (t: Test, sync: (run: SyncRun, table: string) => ReturnType<HourlySyncOptions['sync']>, options: Partial<HourlySyncOptions> = {}): Promise<Host & { stage: Stage, table: string }> {
  const stage = await setStage(t, cluster)
  const table = `public.orders_${stage.schema}`
  await stage.query(`create table ${table} (external_id text, status text, updated_at timestamptz, synced_at timestamptz, deleted_at timestamptz)`)
  await stage.query(`create unique index orders_${stage.schema}_live_key on ${table} (external_id) where deleted_at is null`)
  await stage.query(`create unique index on ${table} (external_id, deleted_at)`)
  await stage.clock.at('2026-03-10T12:00:00Z')
  return { ...await stage.host({ retry: { delay: 0 }, ...options, sync: async run => await sync(run, table) }), stage, table }
}

t.test('time windows: pages of the overlap come again and write nothing', async t => {
  const changes: Change[] = Array.from({ length: 24 }, (_, i) => ({ external_id: `o${i % 12}`, status: `s${i}`, updated_at: new Date(Date.UTC(2026, 2, 10, 11) + i * HOUR / 12) }))
  const counts: unknown[] = []
  const { sync, stage, table } = await scene(t, async (run, table) => {
    const page = changes.filter(({ updated_at: at }) => at < run.until && (run.since === null || at >= run.since))
    counts.push(await run.upsert(table, page, { key: ['external_id'], newerBy: 'updated_at', touch: ['synced_at'] }))
  }, { overlap: '30m' })
  await stage.query(`create unique index on ${table} (external_id)`)
  await sync.runOnce()
  await stage.clock.at('2026-03-10T13:00:00Z')
  t.match(await sync.runOnce(), { outcome: 'succeeded' })
  t.strictSame(counts, [{ inserted: 12, updated: 0, unchanged: 0, stale: 0 }, { inserted: 0, updated: 12, unchanged: 0, stale: 6 }])
  await stage.clock.at('2026-03-10T14:00:00Z')
  await sync.runOnce()
  t.strictSame(counts[2], { inserted: 0, updated: 0, unchanged: 6, stale: 0 })
  t.equal((await ids(stage, table)).length, 12)
})

t.test('a continuation token: a failure resumes after the last page that was saved', async t => {
  const pages = ['a', 'b', 'c', 'd'].map((id, i, all) => ({ rows: [{ external_id: id }], next: `token-${i + 1}`, last: i === all.length - 1 }))
  const asked: Array<string | null> = []
  let away = true
  const changes = ({ after }: { after: string | null }): typeof pages[number] => {
    asked.push(after)
    if (after === 'token-2' && away) throw new Error('the API is away')
    return pages[Number(after?.slice(6) ?? 0)] ?? { rows: [], next: after!, last: true }
  }
  const { sync, stage, table } = await scene(t, async (run, table) => {
    let token = run.cursor as string | null
    for (;;) {
      const page = changes({ after: token })
      await run.upsert(table, page.rows, { key: ['external_id'], index: `orders_${table.slice(14)}_live_key` })
      token = page.next
      if (page.last) return { cursor: token }
      await run.checkpoint({ cursor: token })
    }
  })
  t.match(await sync.runOnce(), { outcome: 'failed' })
  t.match(await stage.state(), { cursor: 'token-2' })
  away = false
  t.match(await sync.runOnce(), { outcome: 'succeeded' })
  t.strictSame(asked, [null, 'token-1', 'token-2', 'token-2', 'token-3'])
  t.strictSame(await ids(stage, table), ['a', 'b', 'c', 'd'])
  await stage.clock.at('2026-03-10T13:00:00Z')
  await sync.runOnce()
  t.equal(asked.at(-1), 'token-4', 'the next hour begins where this one ended')
})

t.test('24 h per query: no window is longer, and none is left out', async t => {
  const windows: Array<[Date, Date]> = []
  const { sync, stage, table } = await scene(t, async (run, table) => {
    if (run.until.getTime() - run.since!.getTime() > 24 * HOUR) throw new Error('400: more than 24 hours')
    windows.push([run.since!, run.until])
    const rows = Array.from({ length: 240 }, (_, i) => ({ external_id: `o${i}`, updated_at: new Date(Date.UTC(2026, 2, 1) + i * HOUR) }))
      .filter(({ updated_at: at }) => at >= run.since! && at < run.until)
    await run.upsert(table, rows, { key: ['external_id'], index: `orders_${table.slice(14)}_live_key`, newerBy: 'updated_at' })
  }, { maxWindow: '23h', overlap: '1h', initialSince: new Date('2026-03-01T00:00:00Z') })
  t.match(await sync.runOnce(), { outcome: 'succeeded', run: { slices: 10 } })
  t.equal(windows.length, 10)
  t.equal((await ids(stage, table)).length, 228, 'every hour up to noon of the tenth day')
})

t.test('soft-deleted rows: an order that comes to life again stands beside the deleted one', async t => {
  const answers = [{ live: ['a', 'b'], deleted: [] }, { live: ['b'], deleted: ['a'] }, { live: ['a', 'b'], deleted: [] }]
  const { sync, stage, table } = await scene(t, async (run, table) => {
    const { live, deleted } = answers.shift()!
    await run.transaction(async tx => {
      await tx.upsert(table, live.map(id => ({ external_id: id, status: 'open' })), { key: ['external_id'], index: `orders_${table.slice(14)}_live_key` })
      await tx.query(`update ${table} set deleted_at = now() where deleted_at is null and external_id = any($1)`, [deleted])
    })
  })
  for (let run = 0; run < 3; run++) t.match(await sync.runOnce({ force: true }), { outcome: 'succeeded' })
  const { rows } = await stage.query(`select external_id, deleted_at is null as live from ${table} order by external_id, live`)
  t.strictSame(rows, [{ external_id: 'a', live: false }, { external_id: 'a', live: true }, { external_id: 'b', live: true }])
})
