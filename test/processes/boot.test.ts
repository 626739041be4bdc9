import t from 'tap'
import { startPostgres } from '../helpers/postgres.js'
import { clean, forkServer } from '../helpers/server.js'
import { until } from '../helpers/until.js'

const PROCESSES = 16
/** `npm run soak` makes more of them. */
const ROUNDS = process.env.SOAK === 'true' ? 10 : 3

const cluster = await startPostgres(t)
const servers = await Promise.all(Array.from({ length: PROCESSES }, async () => await forkServer(t)))

for (let round = 1; round <= ROUNDS; round++) {
  t.test(`${PROCESSES} processes look for the first time at once, in an empty database, round ${round}`, async t => {
    const database = await cluster.database()
    const logged = servers.map(({ log }) => log.length)
    const booted = await Promise.allSettled(servers.map(async server => await server.call('boot', {
      url: cluster.url(database),
      work: { kind: 'rest', ms: 0 },
      options: { enabled: false }
    })))
    t.strictSame(booted.filter(({ status }) => status === 'rejected'), [], 'all come up')

    for (const server of servers) server.call('start') // not awaited: at once
    await until(async () => {
      const looks = await Promise.all(servers.map(async server => (await server.call('status')).lastLook?.outcome))
      return looks.every(outcome => outcome !== undefined && outcome !== 'unavailable')
    }, 'all have looked')
    // 'running' where it was locked out: those look again when the slot is over
    await until(async () => (await cluster.query('select 1 from hourly_sync.run', [], database)).rows.length > 0, 'a run is recorded')

    await Promise.all(servers.map(async server => await server.call('stop')))
    const { rows } = await cluster.query('select state from hourly_sync.run', [], database)
    t.strictSame(rows, [{ state: 'succeeded' }], 'one run')
    const lines = servers.flatMap(({ log }, index) => log.slice(logged[index]))
    t.ok(lines.length >= 2 * PROCESSES, 'the logs are there')
    t.strictSame(lines.filter(({ level }) => level >= 40), [], 'no error and no race reaches a log')
  })
}

t.test('all end by themselves', async t => {
  for (const exit of await Promise.all(servers.map(async server => await server.end()))) t.strictSame(exit, clean)
})
