import type { Test } from 'tap'
import type { Cluster } from './postgres.js'
import { type Pooler } from './pgbouncer.js'
import { type Boot, type Exit, type Server, startServer } from './server.js'
import type { Statement } from './server-log.js'
import { until } from './until.js'

const EVERY = 2_000

/** How the servers of a test reach their database. */
export interface Reach {
  url: (database: string) => string
  options: (database: string, index: number) => Boot['options']
  pooled: boolean
}

export const directly = (cluster: Cluster): Reach => ({ url: cluster.url, options: () => ({}), pooled: false })

/** With a direct connection for the lock. */
export const through = (pooler: Pooler, cluster: Cluster): Reach => ({
  url: pooler.url,
  options: (database, index) => ({ lock: { connectionString: cluster.url(database), application_name: directName(index) } }),
  pooled: true
})

const name = (index: number): string => `process-${index}`
const directName = (index: number): string => `direct-${index}`

interface Course {
  /** By how much the clock of each process is wrong, milliseconds. */
  clocks: number[]
  /** How long the sync takes, milliseconds. */
  work: number
  slots: number
}

/** What processes came to that wake at the same instant, slot after slot of 2 s. */
export interface Race extends Course {
  reach: Reach
  database: string
  servers: Server[]
  /** Where the slots begin, epoch milliseconds. */
  begins: number[]
  /** The runs in them; `late` is how far into its slot one began, milliseconds. */
  rows: Array<{ slot: number, state: string, trigger: string, attempt: number, late: number, worker: string }>
  exits: Exit[]
}

/** Races side by side, for they are idle nearly all the time. None begins while a process of another is still booting and takes the processor. */
export async function races (t: Pick<Test, 'teardown'>, cluster: Cluster, reach: Reach, courses: Course[]): Promise<Race[]> {
  const ready = await Promise.all(courses.map(async course => {
    const database = await cluster.database()
    const servers = await Promise.all(course.clocks.map(async (shift, index) => await startServer(t, {
      url: reach.url(database),
      applicationName: name(index),
      work: { kind: 'rest', ms: course.work },
      options: { every: EVERY, ...reach.options(database, index) }
    }, { FIXTURE_SHIFT: String(shift) })))
    // the first look is another: it sees to the tables
    for (const server of servers) await until(async () => (await server.call('status')).lastLook, 'each has looked once')
    return { ...course, reach, database, servers }
  }))
  const from = Math.ceil(Date.now() / EVERY + 1) * EVERY // a slot that all of them wait for
  return await Promise.all(ready.map(async race => {
    const { slots, work, servers, database } = race
    const end = from + slots * EVERY
    await until(async () => Date.now() > end + work + 500, 'the slots have passed', slots * EVERY + 30_000)
    for (const server of servers) await until(async () => (await server.call('status')).nextLook, 'none is at work')
    const exits = await Promise.all(servers.map(async server => await server.end()))
    const { rows } = await cluster.query(
      `select extract(epoch from slot)::float8 * 1000 as slot, state, trigger, attempt, extract(epoch from started_at - slot)::float8 * 1000 as late, worker
      from hourly_sync.run where slot >= to_timestamp($1::float8 / 1000) and slot < to_timestamp($2::float8 / 1000) order by slot, started_at`,
      [from, end], database)
    return { ...race, begins: Array.from({ length: slots }, (_, index) => from + index * EVERY), rows, exits }
  }))
}

/** Judges how the work was shared. */
export function judge (t: Test, race: Race, statements: Statement[]): void {
  const { reach, database, servers, begins, rows } = race

  t.test('exactly one run in each slot', async t => {
    t.strictSame(rows.map(({ slot }) => slot), begins)
  })

  t.test('each succeeded at the first attempt, and is called what it was', async t => {
    // a machine that is busy with other tests may bring a run of its own slot late: then it says so
    for (const { state, trigger, attempt, late } of rows) {
      t.strictSame({ state, attempt, trigger }, { state: 'succeeded', attempt: 1, trigger: late > EVERY / 2 ? 'catch-up' : 'schedule' }, `${late} ms into the slot`)
    }
    const prompt = rows.filter(({ trigger }) => trigger === 'schedule')
    t.ok(prompt.length >= 0.9 * rows.length, 'nearly every one at its time', { late: rows.map(({ late }) => late) })
  })

  t.test(reach.pooled ? 'a loser sends one statement a slot through the pool, and tries for the lock once at most' : 'a loser sends one statement a slot', async t => {
    const ofPooler = /^(?:SET |select 1$)/ // it names who asks, and tries a session that has rested
    const sent = statements.filter(({ database: where, text }) => where === database && !ofPooler.test(text))
    let looks = 0
    let retreats = 0
    for (const slot of begins) {
      const winner = rows.find(row => row.slot === slot)?.worker
      for (const [index, server] of servers.entries()) {
        if (winner?.endsWith(`:${server.pid}`)) continue
        const by = (application: string): Statement[] => sent.filter(line => line.application === application && line.at >= slot && line.at < slot + EVERY)
        const mine = by(name(index))
        const [claim, judged, ...more] = reach.pooled ? by(directName(index)) : mine
        if (mine.length > 0) looks++
        if (judged !== undefined) retreats++
        t.ok(!reach.pooled || mine.length <= 1, `${name(index)} in slot ${slot} looks`, { mine })
        t.ok(claim === undefined || claim.text.includes('pg_try_advisory_lock'), 'tries for the lock', { claim })
        t.ok(judged === undefined || judged.text.includes('vanished as ('), 'and no more than that', { judged })
        t.strictSame(more, [])
      }
    }
    // or nobody lost, and there was nothing to see
    t.ok(looks >= 0.9 * begins.length * (servers.length - 1), 'nearly every loser has looked in every slot', { looks })
    // One statement takes its snapshot, judges, and then tries the lock. Where the run of another ends in between, the slot looks due and the lock is free:
    // judged again under the lock it is not, and the lock goes back. A run of half a second does not end in between.
    t.ok(retreats <= (race.work > 0 ? 0 : Math.max(1, 0.05 * looks)), 'hardly any loser has come by the lock', { retreats })
  })
}
