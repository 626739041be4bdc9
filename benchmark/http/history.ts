import type { Cluster } from '../../test/helpers/postgres.js'
import { HOUR, mixedRuns, seed, type Seeded } from '../../test/helpers/seed.js'
import { hostOf } from './host.js'
import { median } from './numbers.js'

/** What one request costs, medians in milliseconds. */
export interface Costs { path: string, day: number, year: number }

/** A history of one day, and one of a year: 8,760 slots in 10,000 runs. */
function histories (now: number): Record<'day' | 'year', Seeded[]> {
  const year = mixedRuns(now, 8_760)
  const last = Math.floor(now / HOUR) * HOUR
  // what is left to ten thousand were first attempts that failed, spread over the year
  const failed = Array.from({ length: 10_000 - year.length }, (_, index): Seeded => ({
    slot: last - (8_760 - index * 7 % 8_760) * HOUR, state: 'failed', took: 300, error: { name: 'Error', message: 'the order service answered 500' }
  }))
  return { day: mixedRuns(now, 24), year: [...year, ...failed] }
}

/** Requests for the same paths over either history, taking turns. */
export async function measureHistory (cluster: Cluster, turns: number): Promise<Costs[]> {
  const app = await hostOf(cluster.url(), ['day', 'year'])
  try {
    await app.ready()
    const now = Date.now()
    for (const [name, runs] of Object.entries(histories(now))) {
      await app.hourlySync.get(name).runOnce({ force: true })
      await cluster.query('delete from hourly_sync.run where name = $1', [name])
      await seed(cluster.query, 'hourly_sync', name, { from: now - (name === 'day' ? 24 : 8_760) * HOUR, runs })
    }
    await cluster.query('vacuum analyze')
    const costs: Costs[] = []
    for (const path of ['/', '/slots', '/runs', '/status']) {
      const taken: Record<string, number[]> = { day: [], year: [] }
      for (let turn = -20; turn < turns; turn++) {
        for (const name of ['day', 'year']) {
          const begun = performance.now()
          const { statusCode } = await app.inject(`/hourly-sync/${name}${path}`)
          if (statusCode !== 200) throw new Error(`${path} answered ${statusCode}`)
          if (turn >= 0) taken[name]!.push(performance.now() - begun)
        }
      }
      costs.push({ path, day: median(taken.day!), year: median(taken.year!) })
    }
    return costs
  } finally {
    await app.close()
  }
}
