import pg from 'pg'
import t from 'tap'
import { levels, setStage } from './helpers/host.js'
import { startPostgres } from './helpers/postgres.js'
import { gate, until } from './helpers/until.js'

const cluster = await startPostgres(t)
const WORDS = 'the holder of the lock is older than its timeout: its process may be stuck'

t.test('a holder that is older than its timeout and its time to stop', async t => {
  const stage = await setStage(t, cluster)
  await stage.clock.at('2025-03-10T10:00:00Z')
  const [entered, on] = [gate(), gate()]
  const holder = await stage.host({ // its own clock does not go so fast
    sync: async () => {
      entered.open()
      await on.passed
    }
  })
  const loser = await stage.host({ timeout: '20m', abandonAfter: '5m' })
  const run = holder.sync.runOnce()
  await entered.passed

  await t.test('is none for as long as it has', async t => {
    await stage.clock.at('2025-03-10T10:25:00Z')
    t.match(await loser.sync.runOnce(), { outcome: 'running' })
    t.match(await loser.sync.status(), { wedged: false, syncing: true })
    t.strictSame(loser.log.said(WORDS), [])
  })

  await t.test('is said once a slot by who is locked out', async t => {
    await stage.clock.at('2025-03-10T10:25:01Z')
    for (let look = 0; look < 3; look++) t.match(await loser.sync.runOnce(), { outcome: 'running' })
    const fields = { level: levels.warn, since: '2025-03-10T10:00:00.000Z', holder: new RegExp(`:${process.pid}$`), run: String }
    t.match(loser.log.said(WORDS), [{ ...fields, slot: '2025-03-10T10:00:00.000Z' }])
    await stage.clock.at('2025-03-10T11:00:00Z')
    for (let look = 0; look < 3; look++) t.match(await loser.sync.runOnce(), { outcome: 'running' })
    t.match(loser.log.said(WORDS), [fields, { ...fields, slot: '2025-03-10T11:00:00.000Z' }])
    t.equal(loser.log.said(WORDS).length, 2)
  })

  await t.test('is shown by status(), with its process and since when', async t => {
    const { holder } = await loser.sync.status()
    t.match(await loser.sync.status(), { wedged: true, syncing: true, due: true, behindSlots: 2 })
    t.match(holder, {
      pid: process.pid,
      host: String,
      address: '127.0.0.1',
      backend: Number,
      startedAt: new Date('2025-03-10T10:00:00Z'),
      slot: new Date('2025-03-10T10:00:00Z'),
      applicationName: new RegExp(`^hourly-sync:.*@.*:${process.pid}$`)
    })
  })

  await t.test('is none any more when it has ended', async t => {
    on.open()
    t.match(await run, { outcome: 'succeeded' })
    await until(async () => !(await loser.sync.status()).syncing)
    t.match(await loser.sync.status(), { wedged: false, holder: null })
  })
})

t.test('a lock that something else took after its holder had died is not held by the dead', async t => {
  const stage = await setStage(t, cluster)
  await stage.clock.at('2025-03-10T10:00:00Z')
  let mark: any
  const one = await stage.host({ sync: async () => { mark = (await stage.state()).started } })
  const loser = await stage.host({ timeout: '20m', abandonAfter: '5m' })
  await one.sync.runOnce()
  await until(async () => await stage.holders() === 0)
  await stage.query(`update ${stage.schema}.sync set started = $1, last_slot = null`, [mark])
  const client = new pg.Client({ connectionString: cluster.url(), application_name: 'python-service' })
  await client.connect()
  t.teardown(async () => await client.end())
  const { rows: [{ pid }] } = await client.query('select pg_backend_pid() as pid, pg_advisory_lock($1)', [loser.sync.lockKey])
  await stage.clock.at('2025-03-10T10:40:00Z')

  const holder = { backend: pid, applicationName: 'python-service', runId: null, trigger: null, slot: null, startedAt: null, host: null, pid: null }
  t.match(await loser.sync.runOnce(), { outcome: 'running' })
  t.match(await loser.sync.status(), { syncing: true, wedged: false, progress: null, holder })
  t.match(await loser.app.triggerSync(), { started: false, reason: 'running', message: /noted no run of this sync/, holder })
  t.strictSame(loser.log.said(WORDS), [])
  t.notMatch(loser.log.said('sync running elsewhere'), [{ run: mark.id }])

  await t.test('unless older code has noted the start, which does not say on what session', async t => {
    const { backend, connected, ...old } = mark
    t.match({ backend, connected }, { backend: Number, connected: /^\d+\.\d+$/ })
    await stage.query(`update ${stage.schema}.sync set started = $1`, [old])
    t.match(await loser.sync.runOnce(), { outcome: 'running' })
    t.match(await loser.sync.status(), { wedged: true, holder: { runId: old.id, pid: process.pid } })
    t.match(loser.log.said(WORDS), [{ level: levels.warn, run: old.id }])
  })
})

t.test('the mark of each further slice names the session too', async t => {
  const stage = await setStage(t, cluster)
  const marks: any[] = []
  const { sync } = await stage.host({
    maxWindow: '1h',
    initialSince: new Date('2025-03-10T08:30:00Z'),
    sync: async () => { marks.push((await stage.state()).started) }
  })
  await stage.clock.at('2025-03-10T10:00:00Z')
  t.match(await sync.runOnce(), { outcome: 'succeeded' })
  t.equal(marks.length, 2)
  t.match(marks[1], { slice: 2, backend: marks[0].backend, connected: marks[0].connected })
})
