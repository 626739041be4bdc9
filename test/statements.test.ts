import t from 'tap'
import { setStage, type Stage } from './helpers/host.js'
import { startPostgres } from './helpers/postgres.js'
import { serverLog, statementsOf } from './helpers/server-log.js'
import { gate, until } from './helpers/until.js'

const cluster = await startPostgres(t, serverLog)

/** What the hosts of a stage have sent, as its first words; what they send for a run goes by another name. */
async function sent (stage: Stage, work: () => Promise<unknown>): Promise<string[]> {
  const isOurs = (application: string): boolean => application === stage.poolConfig.application_name || application.startsWith(`hourly-sync:${stage.name.slice(0, 20)}`)
  const before = (await statementsOf(cluster)).length
  await work()
  return (await statementsOf(cluster)).slice(before).filter(({ application }) => isOurs(application)).map(({ text }) => text.replace(/\s+/g, ' ').slice(0, 60))
}

t.test('a look at a slot that is not due is one statement', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host()
  await sync.runOnce()
  const statements = await sent(stage, async () => { t.match(await sync.runOnce(), { outcome: 'not-due' }) })
  t.equal(statements.length, 1, statements.join('\n'))
})

t.test('a look at a slot that another process serves is one statement', async t => {
  const stage = await setStage(t, cluster)
  const on = gate()
  const began = gate()
  const one = await stage.host({
    sync: async () => {
      began.open()
      await on.passed
    }
  })
  const other = await stage.host()
  await other.sync.runOnce({ force: true }) // its preparation
  await stage.clock.at('2025-03-10T11:00:00Z')
  const run = one.sync.runOnce()
  await began.passed
  const statements = await sent(stage, async () => { t.match(await other.sync.runOnce(), { outcome: 'running' }) })
  t.equal(statements.length, 1, statements.join('\n'))
  on.open()
  await run
})

t.test('a run is four statements besides its own work', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({ sync: async run => { await run.query('select 1 as work') } })
  await sync.runOnce() // its preparation, and the pruning of the day
  await stage.clock.at('2025-03-10T11:00:00Z')
  const statements = await sent(stage, async () => { t.match(await sync.runOnce(), { outcome: 'succeeded' }) })
  t.equal(statements.filter(text => text !== 'select 1 as work').length, 4, statements.join('\n'))
})

t.test('a run by hand is four statements as well', async t => {
  const stage = await setStage(t, cluster)
  const { app, sync } = await stage.host()
  await sync.runOnce()
  const statements = await sent(stage, async () => {
    const answer = await app.triggerSync()
    await (answer.started && answer.finished)
    await until(async () => await stage.holders() === 0)
  })
  t.equal(statements.length, 4, statements.join('\n'))
})

t.test('between its looks a loop sends nothing and holds no connection', async t => {
  const stage = await setStage(t, cluster)
  await stage.clock.at('2025-03-10T10:00:00Z')
  const loop = stage.looping()
  await loop.rests()
  const clients = loop.pool.totalCount - loop.pool.idleCount
  t.equal(clients, 0, 'none is checked out')
  const statements = await sent(stage, async () => {
    const pause = 59 * 60_000
    await stage.clock.pass(pause)
    await loop.hands.advance(pause)
    await new Promise(resolve => setTimeout(resolve, 300)) // so that what might be sent would have been
  })
  t.strictSame(statements, [])
  t.equal(loop.pool.totalCount - loop.pool.idleCount, 0)
})

t.test('a loop sends one statement a slot that another process has served', async t => {
  const stage = await setStage(t, cluster)
  await stage.clock.at('2025-03-10T10:00:00Z')
  const one = stage.looping()
  await one.rests()
  const other = stage.looping()
  await other.rests()
  const looks = async (): Promise<number> => other.log.said('sync not due').length
  const before = await looks()
  for (let hour = 11; hour < 14; hour++) {
    await one.look()
    const statements = await sent(stage, async () => {
      await other.hands.advance(60 * 60_000 + 1)
      await until(async () => await looks() === before + hour - 10)
    })
    t.equal(statements.length, 1, statements.join('\n'))
  }
})

t.test('an app that is ready and whose loop waits has sent nothing', async t => {
  const stage = await setStage(t, cluster)
  const statements = await sent(stage, async () => {
    const { app, pool } = await stage.host({ enabled: true, startupDelay: '90s' })
    await app.inject('/')
    t.equal(pool.totalCount - pool.idleCount, 0)
  })
  t.strictSame(statements, [])
})

t.test('a run that sleeps sends nothing but its proofs', async t => {
  const stage = await setStage(t, cluster)
  const on = gate()
  const { app } = await stage.host({ heartbeat: '1h', sync: async () => await on.passed })
  await app.triggerSync()
  const statements = await sent(stage, async () => {
    await new Promise(resolve => setTimeout(resolve, 300)) // so that what might be sent would have been
  })
  t.strictSame(statements, [])
  on.open()
})
