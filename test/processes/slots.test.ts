import t from 'tap'
import { startPostgres } from '../helpers/postgres.js'
import { directly, judge, race, type Race } from '../helpers/race.js'
import { clean } from '../helpers/server.js'
import { serverLog, statementsOf } from '../helpers/server-log.js'

/** `npm run soak` takes more of them. */
const SLOTS = process.env.SOAK === 'true' ? 30 : 8

const cluster = await startPostgres(t, serverLog)

// side by side, for they are idle nearly all the time; what they came to is looked at below
const started: Array<Promise<Race>> = []
for (const processes of [2, 4]) {
  for (const work of [0, 500]) started.push(race(t, cluster, directly(cluster), { clocks: Array(processes).fill(0), work, slots: SLOTS }))
}
const races = await Promise.all(started)
const statements = await statementsOf(cluster)

for (const one of races) {
  t.test(`${one.servers.length} processes, a sync of ${one.work} ms, ${SLOTS} slots`, async t => judge(t, one, statements))
}

t.test('every server closes and ends by itself, without a word on stderr', async t => {
  for (const exit of races.flatMap(({ exits }) => exits)) t.strictSame(exit, clean)
})

t.test('no server has logged a warning or an error', async t => {
  const lines = races.flatMap(({ servers }) => servers.flatMap(({ log }) => log)).filter(({ level }) => level >= 40)
  t.strictSame(lines, [])
})
