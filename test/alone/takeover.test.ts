import t, { type Test } from 'tap'
import { startProxy } from '../chaos/proxy.js'
import { startPostgres } from '../helpers/postgres.js'
import { type Api, type Boot, clean, type Server, startApi, startServer } from '../helpers/server.js'
import { until } from '../helpers/until.js'

const HEARTBEAT = 1_000
const STANDBY = 1_000
/** A look, and what a busy machine needs. */
const LOOK = 1_000

const cluster = await startPostgres(t)

interface Scene {
  database: string
  /** Of the holder, and of the standby. */
  apis: [Api, Api]
  standby: Server
  boot: (work: Boot['work'], port?: number) => Boot
  rows: () => Promise<any[]>
  /** Pid of who saved, and which of its two writes it was. */
  saved: () => Promise<Array<[number, number]>>
  /** Lets `fault` happen, and waits for the standby's run to begin: milliseconds between the two. */
  replaced: (fault: () => void) => Promise<number>
  /** Lets the standby's run end. */
  succeed: () => Promise<void>
}

async function setScene (t: Test, hold: (scene: Pick<Scene, 'boot' | 'apis' | 'database'>) => Promise<void>): Promise<Scene> {
  const database = await cluster.database()
  await cluster.query('create table saved (pid int, seq int, at timestamptz default clock_timestamp())', [], database)
  const apis: Scene['apis'] = [await startApi(t), await startApi(t)]
  const boot: Scene['boot'] = (work, port = cluster.port) => ({
    url: cluster.url(database).replace(`:${cluster.port}/`, `:${port}/`), work, options: { every: '24h', heartbeat: HEARTBEAT, standby: STANDBY }
  })
  await hold({ boot, apis, database })
  const standby = await startServer(t, boot({ kind: 'write', url: apis[1].url }))
  await until(() => standby.log.some(({ msg }) => msg === 'sync running elsewhere'), 'the standby is locked out')
  const rows: Scene['rows'] = async () => (await cluster.query('select * from hourly_sync.run order by started_at', [], database)).rows
  let end = (): void => {}
  return {
    database,
    apis,
    standby,
    boot,
    rows,
    saved: async () => (await cluster.query('select pid, seq from saved order by at', [], database)).rows.map(({ pid, seq }) => [pid, seq]),
    async replaced (fault) {
      const began = performance.now()
      fault()
      end = (await apis[1].request()).answer
      return performance.now() - began
    },
    async succeed () {
      end()
      await until(async () => (await rows()).some(({ state }) => state === 'succeeded'), 'the run of the standby is recorded')
    }
  }
}

t.test('a holder that is killed while it awaits the API is replaced within a standby', async t => {
  let holder!: Server
  const scene = await setScene(t, async ({ boot, apis }) => {
    holder = await startServer(t, boot({ kind: 'write', url: apis[0].url }))
    await apis[0].request()
  })
  const took = await scene.replaced(() => { holder.kill('SIGKILL') })
  t.ok(took <= STANDBY + LOOK, `after ${took} ms`)
  await scene.succeed()
  t.strictSame((await scene.rows()).map(({ state }) => state), ['vanished', 'succeeded'])
  t.strictSame(await scene.standby.end(), clean)
})

t.test('a holder that is killed inside a statement is replaced within a standby, and the second in which the server looks at its connection', async t => {
  let holder!: Server
  const scene = await setScene(t, async ({ boot, database }) => {
    holder = await startServer(t, boot({ kind: 'statement' }))
    await until(async () => (await cluster.query("select from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()", [], database)).rowCount === 1)
  })
  const took = await scene.replaced(() => { holder.kill('SIGKILL') })
  t.ok(took <= STANDBY + 1_000 + LOOK, `after ${took} ms`)
  await scene.succeed()
  t.strictSame((await scene.rows()).map(({ state }) => state), ['vanished', 'succeeded'])
  t.strictSame(await scene.standby.end(), clean)
})

for (const fault of ['is stopped', 'is behind a network that goes silent'] as const) {
  t.test(`a holder that ${fault} is replaced within three heartbeats and a standby; back again, it writes nothing, records no success, and serves on`, async t => {
    let holder!: Server & { address: string }
    const proxy = await startProxy(cluster.port)
    t.teardown(proxy.close)
    let answer!: () => void
    const scene = await setScene(t, async ({ boot, apis }) => {
      holder = await startServer(t, boot({ kind: 'write', url: apis[0].url }, proxy.port))
      answer = (await apis[0].request()).answer
    })
    const took = await scene.replaced(() => {
      if (fault === 'is stopped') holder.kill('SIGSTOP')
      else proxy.freeze()
    })
    t.ok(took <= 3 * HEARTBEAT + STANDBY + LOOK, `after ${took} ms`)
    await scene.succeed()
    if (fault === 'is stopped') holder.kill('SIGCONT')
    else proxy.thaw(true) // all that was held back is delivered
    answer()
    await until(() => holder.log.some(({ msg }) => msg === 'sync lock-lost'), 'it has been told')
    t.strictSame(await scene.saved(), [[holder.pid, 1], [scene.standby.pid, 1], [scene.standby.pid, 2]], 'nothing of the old run lands after the new one has begun')
    await until(async () => (await scene.rows()).every(({ state }) => state !== 'vanished'), 'it has said what became of it')
    t.strictSame((await scene.rows()).map(({ state }) => state), ['lock-lost', 'succeeded'])
    t.equal(await (await fetch(holder.address)).text(), 'ok', 'it answers')
    const again = until(async () => (await holder.call('trigger')).started, 'it can run again')
    const { answer: last } = await scene.apis[0].request()
    last()
    await again
    await until(async () => (await scene.rows()).length === 3, 'it runs')
    t.match((await scene.rows())[2], { state: 'succeeded', trigger: 'manual' })
    for (const server of [holder, scene.standby]) t.strictSame(await server.end(), clean)
  })
}
