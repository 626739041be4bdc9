import t from 'tap'
import { startPostgres } from '../helpers/postgres.js'
import { openUpsert } from '../helpers/upsert.js'
import { createUpsert } from '../../lib/upsert.js'

t.setTimeout(1_800_000)
const count = 1_000_000

t.test('a million rows through an async generator, without growth', { skip: process.env.SOAK === '1' ? false : 'takes minutes: SOAK=1', timeout: 1_800_000 }, async t => {
  const cluster = await startPostgres(t)
  const { context, query, sent } = await openUpsert(t, cluster.url())
  await query('create table orders (id bigint primary key, status text, at timestamptz, details jsonb)')
  const upsert = createUpsert(context)

  let base = 0
  let peak = 0
  const rss = (): number => process.memoryUsage.rss() / 2 ** 20
  async function * orders (from: number, to: number): AsyncGenerator<object> {
    for (let id = from; id < to; id++) {
      if (id % 1000 === 0) {
        sent.length = 0
        peak = Math.max(peak, rss())
      }
      yield { id, status: id % 3 === 0 ? 'open' : 'paid', at: new Date(1_700_000_000_000 + id), details: { id, note: `order number ${id}` } }
    }
  }
  await upsert('orders', orders(0, 50_000), { key: ['id'] }) // code is compiled and the heap has its size
  base = peak = rss()
  t.same(await upsert('orders', orders(50_000, count), { key: ['id'] }), { inserted: count - 50_000, updated: 0, unchanged: 0, stale: 0 })
  t.comment(`${base.toFixed(0)} MiB before, at most ${peak.toFixed(0)} MiB while inserting`)
  t.ok(peak - base <= 50)
  t.same(await upsert('orders', orders(0, count), { key: ['id'] }), { inserted: 0, updated: 0, unchanged: count, stale: 0 })
  t.comment(`at most ${peak.toFixed(0)} MiB while nothing changes`)
  t.ok(peak - base <= 50)
})
