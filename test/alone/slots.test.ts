import t from 'tap'
import { startPostgres } from '../helpers/postgres.js'
import { directly, judge, races } from '../helpers/race.js'
import { clean } from '../helpers/server.js'
import { serverLog, statementsOf } from '../helpers/server-log.js'

/** `npm run soak` takes more of them. */
const SLOTS = process.env.SOAK === 'true' ? 30 : 8

const cluster = await startPostgres(t, serverLog)

const raced = await races(t, cluster, directly(cluster),
  [2, 4].flatMap(processes => [0, 500].map(work => ({ clocks: Array(processes).fill(0), work, slots: SLOTS }))))
const statements = await statementsOf(cluster)

for (const one of raced) {
  t.test(`${one.servers.length} processes, a sync of ${one.work} ms, ${SLOTS} slots`, async t => judge(t, one, statements))
}

t.test('every server closes and ends by itself, without a word on stderr', async t => {
  for (const exit of raced.flatMap(({ exits }) => exits)) t.strictSame(exit, clean)
})

t.test('no server has logged a warning or an error', async t => {
  const lines = raced.flatMap(({ servers }) => servers.flatMap(({ log }) => log)).filter(({ level }) => level >= 40)
  t.strictSame(lines, [])
})
