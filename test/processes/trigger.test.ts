import t from 'tap'
import { startPostgres } from '../helpers/postgres.js'
import { clean, startApi, startServer } from '../helpers/server.js'
import { until } from '../helpers/until.js'

const ROUNDS = 10

const cluster = await startPostgres(t)
const database = await cluster.database()
const api = await startApi(t)
const boot = { url: cluster.url(database), work: { kind: 'fetch' as const, url: api.url }, options: { enabled: false } }
const servers = [await startServer(t, boot), await startServer(t, boot)] as const

let recorded = 0
/** Lets the sync under way end, and waits for the end to be recorded. */
async function endRun (): Promise<void> {
  const { answer } = await api.request()
  answer()
  recorded++
  await until(async () => {
    const { rows } = await cluster.query("select state from hourly_sync.run where state = 'succeeded'", [], database)
    return rows.length === recorded
  }, 'the run is recorded')
  // the lock goes after the record
  await until(async () => {
    const { rows } = await cluster.query("select 1 from pg_locks where locktype = 'advisory'")
    return rows.length === 0
  }, 'the lock is free')
  for (const server of servers) await until(async () => !(await server.call('status')).syncing, 'nobody is syncing')
}

for (let round = 1; round <= ROUNDS; round++) {
  t.test(`two processes trigger at once, round ${round}`, async t => {
    // in turn the one and the other is asked first; the API has not answered yet, so the answers come before the sync ends
    const asked = round % 2 === 0 ? servers : servers.toReversed()
    const answers = await Promise.all(asked.map(async server => await server.call('trigger')))
    t.equal(answers.filter(({ started }) => started).length, 1, 'exactly one is told that it started')
    t.match(answers.find(({ started }) => !started), { reason: 'running' }, 'and the other, why not')
    await endRun()
  })

  t.test(`a double click in one process, round ${round}`, async t => {
    const answers = await servers[round % 2]!.call('doubleClick')
    t.equal(answers.filter(({ started }) => started).length, 1, 'exactly one is told that it started')
    t.match(answers.find(({ started }) => !started), { reason: 'running' }, 'and the other, why not')
    await endRun()
  })
}

t.test('there was one run for each answer that said so', async t => {
  const { rows } = await cluster.query('select state, trigger, count(*)::int from hourly_sync.run group by 1, 2', [], database)
  t.strictSame(rows, [{ state: 'succeeded', trigger: 'manual', count: 2 * ROUNDS }])
})

t.test('both servers end by themselves', async t => {
  for (const server of servers) t.strictSame(await server.end(), clean)
})
