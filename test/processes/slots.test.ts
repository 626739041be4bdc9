import t from 'tap'
import { startPostgres } from '../helpers/postgres.js'
import { clean, startServer, type Server } from '../helpers/server.js'
import { serverLog, statementsOf } from '../helpers/server-log.js'
import { until } from '../helpers/until.js'

const EVERY = 2_000
/** `npm run soak` takes more of them. */
const SLOTS = process.env.SOAK === 'true' ? 30 : 8

const cluster = await startPostgres(t, serverLog)

interface Case { processes: number, work: number, database: string, servers: Server[], from: number, rows: Row[] }
interface Row { slot: number, state: string, trigger: string, worker: string }

const cases: Case[] = []
for (const processes of [2, 4]) {
  for (const work of [0, 500]) {
    cases.push({ processes, work, database: await cluster.database(), servers: [], from: 0, rows: [] })
  }
}
const name = (process: number): string => `process-${process}`

// side by side, for they are idle nearly all the time; what they came to is looked at below
await Promise.all(cases.map(async one => {
  const { processes, work, database } = one
  one.servers = await Promise.all(Array.from({ length: processes }, async (_, index) => await startServer(t, {
    url: cluster.url(database),
    applicationName: name(index),
    work: { kind: 'rest', ms: work },
    options: { every: EVERY }
  })))
  // the first look is another: it sees to the tables
  for (const server of one.servers) await until(async () => (await server.call('status')).lastLook, 'each has looked once')
  one.from = Math.ceil(Date.now() / EVERY + 1) * EVERY // a slot that all of them wait for
  const end = one.from + SLOTS * EVERY
  await until(async () => Date.now() > end + work + 500, 'the slots have passed', SLOTS * EVERY + 30_000)
  const { rows } = await cluster.query(
    `select extract(epoch from slot)::float8 * 1000 as slot, state, trigger, worker from hourly_sync.run
    where slot >= to_timestamp($1::float8 / 1000) and slot < to_timestamp($2::float8 / 1000) order by slot, started_at`,
    [one.from, end], database)
  one.rows = rows
}))
const exits = await Promise.all(cases.flatMap(({ servers }) => servers.map(async server => await server.end())))
const statements = await statementsOf(cluster)

for (const { processes, work, database, servers, from, rows } of cases) {
  t.test(`${processes} processes, a sync of ${work} ms, ${SLOTS} slots`, async t => {
    const slots = Array.from({ length: SLOTS }, (_, index) => from + index * EVERY)

    t.test('exactly one run in each slot', async t => {
      t.strictSame(rows.map(row => row.slot), slots)
    })

    t.test('each succeeded, at the first look', async t => {
      t.strictSame([...new Set(rows.map(({ state, trigger }) => `${state}, ${trigger}`))], ['succeeded, schedule'])
    })

    t.test('a loser sends one statement a slot', async t => {
      const sent = statements.filter(line => line.database === database && line.application.startsWith('process-') && line.at >= from)
      let looks = 0
      let retreats = 0
      for (const slot of slots) {
        const winner = rows.find(row => row.slot === slot)?.worker
        for (const [index, server] of servers.entries()) {
          if (winner?.endsWith(`:${server.pid}`)) continue
          const mine = sent.filter(line => line.application === name(index) && line.at >= slot && line.at < slot + EVERY)
          const [look, judged] = mine
          if (look !== undefined) looks++
          if (judged !== undefined) retreats++
          t.ok(look === undefined || look.text.includes('pg_try_advisory_lock'), `${name(index)} in slot ${slot} looks`, { mine })
          t.ok(judged === undefined || (mine.length === 2 && judged.text.includes('set_config')), 'and no more than that', { mine })
        }
      }
      // or nobody lost, and there was nothing to see
      t.ok(looks >= 0.9 * SLOTS * (processes - 1), 'nearly every loser has looked in every slot', { looks })
      // One statement takes its snapshot, judges, and then tries the lock. Where the run of another ends in between, the slot looks due and the lock is free:
      // judged again under the lock it is not, and the lock goes back. A run of half a second does not end in between.
      t.ok(retreats <= (work > 0 ? 0 : Math.max(1, 0.05 * looks)), 'hardly any loser has come by the lock', { retreats })
    })
  })
}

t.test('every server closes and ends by itself, without a word on stderr', async t => {
  for (const exit of exits) t.strictSame(exit, clean)
})

t.test('no server has logged a warning or an error', async t => {
  const lines = cases.flatMap(({ servers }) => servers.flatMap(({ log }) => log)).filter(({ level }) => level >= 40)
  t.strictSame(lines, [])
})
