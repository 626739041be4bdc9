import type { Test } from 'tap'
import type { Cluster } from './postgres.js'
import type { Reach } from './race.js'
import { clean, forkServer } from './server.js'
import { until } from './until.js'

const HOUR = 3_600_000

/** Lets a process of each time zone run once, and compares the slots. */
export async function compareZones (t: Test, cluster: Cluster, reach: Reach, zones: string[]): Promise<void> {
  // so that the hour does not end between the first and the last
  const slots = await until(async () => {
    const slots = await Promise.all(zones.map(async TZ => {
      const database = await cluster.database()
      const server = await forkServer(t, { TZ })
      await server.call('boot', { url: reach.url(database), work: { kind: 'rest', ms: 0 }, options: { enabled: false, ...reach.options(database, 0) } })
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
}
