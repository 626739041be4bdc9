import type { FastifyBaseLogger } from 'fastify'
import pg from 'pg'
import t, { type Test } from 'tap'
import { systemClock } from '../lib/clock.js'
import { FST_HOURLY_SYNC_POOLED } from '../lib/errors.js'
import { migrationSql } from '../lib/migrations.js'
import { parseOptions } from '../lib/options.js'
import { probeChannel, probeRights, probeSession, secondOf, warnAboutPool } from '../lib/probe.js'
import { noPgBouncer, startPgBouncer } from './helpers/pgbouncer.js'
import { freePort, startPostgres } from './helpers/postgres.js'

const cluster = await startPostgres(t)
const thorough = process.env.SOAK === 'true'

const clock = systemClock
const tries = thorough ? 20 : 1

async function connected (t: Test, url: string): Promise<pg.Client> {
  const client = new pg.Client(url)
  client.on('error', () => {})
  await client.connect()
  t.teardown(async () => { await client.end() })
  return client
}

/** How many of the tries said that the session is shared. */
async function refusals (client: pg.Client, url: string): Promise<number> {
  const channel = probeChannel()
  let count = 0
  for (let index = 0; index < tries; index++) {
    await probeSession(client, () => new pg.Client(url), channel, clock).catch(error => {
      if (!(error instanceof FST_HOURLY_SYNC_POOLED)) throw error
      count++
    })
  }
  return count
}

/** Six clients that are never done. */
async function makeBusy (t: Test, url: string): Promise<void> {
  const over = new AbortController()
  const clients = Array.from({ length: 6 }, () => new pg.Client(url))
  const work = clients.map(async client => {
    client.on('error', () => {})
    await client.connect()
    while (!over.signal.aborted) await client.query('select count(*) from generate_series(1, 2000)')
    await client.end()
  })
  t.teardown(async () => {
    over.abort()
    await Promise.all(work)
  })
}

t.jobs = thorough ? 7 : 3 // each pooler is a process of its own, and is waited for most of the time
t.setTimeout(300_000)

t.test('a direct connection is its own session', { buffered: true }, async t => {
  const url = cluster.url()
  const client = await connected(t, url)
  t.equal(await refusals(client, url), 0, 'when the server is quiet')
  await makeBusy(t, url)
  t.equal(await refusals(client, url), 0, 'when it is busy')
})

for (const size of [1, 5, 20]) {
  t.test(`a transaction pool of ${size} is found out`, { skip: noPgBouncer, buffered: true }, async t => {
    const { url } = await startPgBouncer(t, cluster, 'transaction', size)
    const client = await connected(t, url())
    t.equal(await refusals(client, url()), tries, 'when it is quiet')
    await makeBusy(t, url())
    t.equal(await refusals(client, url()), tries, 'when it is busy')
  })

  t.test(`a session pool of ${size} raises no false alarm`, { skip: noPgBouncer, buffered: true }, async t => {
    const { url } = await startPgBouncer(t, cluster, 'session', size)
    const client = await connected(t, url())
    t.equal(await refusals(client, url()), 0, 'when it is quiet')
    if (size === 1) return // nobody else can be at work while one has the only session
    await makeBusy(t, url())
    t.equal(await refusals(client, url()), 0, 'when it is busy')
  })
}

t.test('a probe leaves nothing listening on a session of its own', { skip: noPgBouncer }, async t => {
  const { url } = await startPgBouncer(t, cluster, 'session', 5)
  const client = await connected(t, url())
  await probeSession(client, () => new pg.Client(url()), probeChannel(), clock)
  const { rows } = await client.query('select pg_listening_channels()')
  t.equal(rows.length, 0)
  t.equal(client.listenerCount('notification'), 0)
})

t.test('a second connection that fails is not taken for a pooler', { skip: noPgBouncer }, async t => {
  const { url } = await startPgBouncer(t, cluster, 'session', 5)
  const client = await connected(t, url())
  const nowhere = `postgres://postgres:postgres@127.0.0.1:${await freePort()}/postgres`
  await t.rejects(probeSession(client, () => new pg.Client(nowhere), probeChannel(), clock), { code: 'ECONNREFUSED' })
})

t.test('missing rights are named', async t => {
  await cluster.query(migrationSql('narrow'))
  await cluster.query("create role narrow login password 'postgres'")
  const client = await connected(t, cluster.url('postgres', 'narrow'))
  await t.rejects(probeRights(client, 'narrow'), { code: '42501' }, 'the schema cannot even be looked into')
  await cluster.query('grant usage on schema narrow to narrow; grant select, insert, update on narrow.sync to narrow; grant select on narrow.run to narrow')
  await t.rejects(probeRights(client, 'narrow'), {
    code: 'FST_HOURLY_SYNC_RIGHTS',
    message: /insert on run, update on run, delete on run$/
  })
  await cluster.query('grant insert, update, delete on narrow.run to narrow')
  await t.resolves(probeRights(client, 'narrow'))
})

t.test('a pool that will make trouble is warned about, unless the lock has a connection of its own', async t => {
  const warned = (poolOptions: object, options: object = {}): string[] => {
    const said: string[] = []
    const log = { warn: (...words: unknown[]) => said.push(String(words.at(-1))) } as unknown as FastifyBaseLogger
    warnAboutPool({ options: poolOptions } as pg.Pool, parseOptions({ name: 'a', sync () {}, ...options }), log)
    return said
  }
  t.match(warned({ max: 1 }), [/one client/])
  t.match(warned({ max: 10, maxLifetimeSeconds: 60 }), [/maxLifetimeSeconds/])
  t.same(warned({ max: 10, maxLifetimeSeconds: 3_000 }), [], 'as long as the timeout will do')
  t.same(warned({ max: 10, maxLifetimeSeconds: 0 }), [])
  t.same(warned({ max: 1 }, { lock: {} }), [])
})

t.test('of a pool that shows no options nothing is said', async t => {
  warnAboutPool({} as pg.Pool, parseOptions({ name: 'a', sync () {} }), { warn: () => t.fail('warned') } as unknown as FastifyBaseLogger)
})

t.test('a session whose backend changes while another client is busy is refused, though the notification was heard', async t => {
  const client = await connected(t, cluster.url())
  let asked = 0
  // what a pooler does that happened to serve all but the last of these from one session; its own start-up told another backend
  const pooled = new Proxy(client, {
    get (target, name) {
      if (name === 'processID') return 1
      if (name !== 'query') return Reflect.get(target, name, target)
      return async (...words: Parameters<typeof client.query>) => {
        const result: any = await target.query(...words)
        return result.rows[0]?.backend !== undefined && ++asked > 2 ? { ...result, rows: [{ backend: 2 }] } : result
      }
    }
  })
  await t.rejects(probeSession(pooled, () => new pg.Client(cluster.url()), probeChannel(), clock), { code: 'FST_HOURLY_SYNC_POOLED', message: /answered first, then 2/ })
})

t.test('the second connection is made like the first', async t => {
  const pool = new pg.Pool({ connectionString: cluster.url() })
  t.teardown(async () => { await pool.end() })
  for (const second of [secondOf(pool, undefined), secondOf({ options: { connectionString: cluster.url() } } as unknown as pg.Pool, undefined), secondOf(pool, { connectionString: cluster.url() })]) {
    const client = second()
    await client.connect()
    t.match(await client.query('select 1 as one'), { rows: [{ one: 1 }] })
    await client.end()
  }
})
