import { chownSync, cpSync, lstatSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { levels, setStage } from './helpers/host.js'
import { startPostgres } from './helpers/postgres.js'
import { until } from './helpers/until.js'

const primary = await startPostgres(t)
const standby = await startPostgres(t, { primary_conninfo: `host=127.0.0.1 port=${primary.port} user=postgres password=postgres` })

/** As root, the server runs as another user, to whom its files belong. */
function own (path: string, { uid, gid }: { uid: number, gid: number }): void {
  chownSync(path, uid, gid)
  if (lstatSync(path).isDirectory()) for (const name of readdirSync(path)) own(join(path, name), { uid, gid })
}

t.test('a replica refuses the sync, and serves it once it is the primary', async t => {
  const stage = await setStage(t, primary)
  const first = await stage.host()
  await first.sync.runOnce()
  await primary.stop()
  await standby.stop()
  const owner = lstatSync(standby.directory)
  rmSync(standby.directory, { recursive: true })
  cpSync(primary.directory, standby.directory, { recursive: true })
  writeFileSync(join(standby.directory, 'standby.signal'), '')
  own(standby.directory, owner)
  await primary.start()
  await standby.start(true)

  const loop = stage.looping({}, { connectionString: standby.url() })
  const { app, sync } = await stage.host({}, { connectionString: standby.url() })
  for (let look = 0; look < 3; look++) {
    await loop.hands.advance(await loop.rests())
    await loop.rests()
  }
  t.match(loop.log.said('sync refused'), [{ level: levels.error, outcome: 'refused', err: { code: 'FST_HOURLY_SYNC_READ_ONLY' } }], 'once in the log')
  t.match(await loop.sync.status(), { lastLook: { outcome: 'refused', reason: /read-only replica/ } }, 'in the status')
  t.match(await app.triggerSync(), { started: false, reason: 'refused', message: /read-only replica/ }, 'to who triggers it')
  t.equal((await app.inject('/')).statusCode, 404, 'while the server answers')

  await stage.clock.at('2025-03-10T12:00:00Z')
  t.match(await first.sync.runOnce(), { outcome: 'succeeded' }, 'the primary is served meanwhile')
  await until(async () => (await sync.status()).lastSuccess?.slot?.getTime() === Date.parse('2025-03-10T12:00:00Z'))
  t.match(await sync.status(), { unavailable: null, hold: 'served' }, 'of which the replica can tell')

  await stage.clock.at('2025-03-10T13:00:00Z')
  await until(async () => (await sync.status()).slot?.getTime() === Date.parse('2025-03-10T13:00:00Z'))
  await first.app.close()
  await primary.stop('SIGQUIT')
  await standby.query('select pg_promote()')
  await until(async () => {
    await loop.hands.advance(await loop.rests())
    return loop.log.said('sync succeeded').length === 1
  })
  t.match(await loop.sync.status(), { lastSuccess: { slot: new Date('2025-03-10T13:00:00Z'), since: new Date('2025-03-10T11:50:00Z') } })
})
