import t from 'tap'
import { startPostgres } from '../helpers/postgres.js'
import { clean, forkServer, startServer } from '../helpers/server.js'
import { until } from '../helpers/until.js'

const EVERY = 2_000
const SLOTS = 6
const HOUR = 3_600_000

const cluster = await startPostgres(t)

t.test('slots of 2 s', async t => {
  t.jobs = 4
  for (const [title, shifts] of [
    ['a clock two minutes ahead, next to a right one', [120_000, 0]],
    ['a clock two minutes behind, next to a right one', [-120_000, 0]],
    ['a clock two minutes ahead, alone', [120_000]],
    ['a clock two minutes behind, alone', [-120_000]]
  ] as const) {
    t.test(`${title}: neither runs twice nor skips`, { buffered: true }, async t => {
      const database = await cluster.database()
      const servers = await Promise.all(shifts.map(async shift => await startServer(t, {
        url: cluster.url(database),
        work: { kind: 'rest', ms: 0 },
        options: { every: EVERY }
      }, { FIXTURE_SHIFT: String(shift) })))
      const from = Math.ceil(Date.now() / EVERY + 1) * EVERY // a slot that all of them wait for
      const end = from + SLOTS * EVERY
      await until(() => Date.now() > end + 500, 'the slots have passed')
      const { rows } = await cluster.query(
        `select extract(epoch from slot)::float8 * 1000 as slot from hourly_sync.run
        where slot >= to_timestamp($1::float8 / 1000) and slot < to_timestamp($2::float8 / 1000) order by slot`, [from, end], database)
      t.strictSame(rows.map(row => row.slot), Array.from({ length: SLOTS }, (_, index) => from + index * EVERY))
      for (const server of servers) t.strictSame(await server.end(), clean)
    })
  }
})

t.test('another TZ of the process changes no slot', async t => {
  const zones = ['UTC', 'Asia/Kolkata', 'America/New_York', 'Australia/Lord_Howe', 'Asia/Kathmandu']
  // so that the hour does not end between the first and the last
  const slots = await until(async () => {
    const slots = await Promise.all(zones.map(async TZ => {
      const database = await cluster.database()
      const server = await forkServer(t, { TZ })
      await server.call('boot', { url: cluster.url(database), work: { kind: 'rest', ms: 0 }, options: { enabled: false } })
      const { run } = await server.call('runOnce')
      const { rows: [{ slot, began }] } = await cluster.query(
        'select extract(epoch from slot)::float8 * 1000 as slot, extract(epoch from started_at)::float8 * 1000 as began from hourly_sync.run', [], database)
      t.equal(slot, Math.floor(began / HOUR) * HOUR, `${TZ}: stored`)
      t.equal(String(run!.slot), new Date(slot).toISOString(), `${TZ}: handed out`)
      t.equal(String((await server.call('status')).nextSlot), new Date(slot + HOUR).toISOString(), `${TZ}: the next one`)
      t.strictSame(await server.end(), clean)
      return { slot, began }
    }))
    const hours = new Set(slots.map(({ began }) => Math.floor(began / HOUR)))
    return hours.size === 1 && slots.map(({ slot }) => slot)
  }, 'all within one hour', 60_000)
  t.equal(new Set(slots).size, 1)
})
