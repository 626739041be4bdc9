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
import { gate } from './helpers/until.js'

const cluster = await startPostgres(t)
const thorough = process.env.SOAK === 'true'

const clock = systemClock
const tries = 20
const skip = thorough ? noPgBouncer : 'in npm run soak'

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

t.jobs = 7 // each pooler is a process of its own, and is waited for most of the time
t.setTimeout(300_000)

t.test('a direct connection is its own session', { buffered: true }, async t => {
  const url = cluster.url()
  const client = await connected(t, url)
  t.equal(await refusals(client, url), 0, 'when the server is quiet')
  await makeBusy(t, url)
  t.equal(await refusals(client, url), 0, 'when it is busy')
})

for (const size of [1, 5, 20]) {
  t.test(`a transaction pool of ${size} is found out`, { skip, buffered: true }, async t => {
    const { url } = await startPgBouncer(t, cluster, 'transaction', size)
    const client = await connected(t, url())
    t.equal(await refusals(client, url()), tries, 'when it is quiet')
    await makeBusy(t, url())
    t.equal(await refusals(client, url()), tries, 'when it is busy')
  })

  t.test(`a session pool of ${size} raises no false alarm`, { skip, buffered: true }, async t => {
    const { url } = await startPgBouncer(t, cluster, 'session', size)
    const client = await connected(t, url())
    t.equal(await refusals(client, url()), 0, 'when it is quiet')
    if (size === 1) return // nobody else can be at work while one has the only session
    await makeBusy(t, url())
    t.equal(await refusals(client, url()), 0, 'when it is busy')
  })
}

t.test('a probe leaves nothing listening on a session of its own', { skip }, async t => {
  const { url } = await startPgBouncer(t, cluster, 'session', 5)
  const client = await connected(t, url())
  await probeSession(client, () => new pg.Client(url()), probeChannel(), clock)
  const { rows } = await client.query('select pg_listening_channels()')
  t.equal(rows.length, 0)
  t.equal(client.listenerCount('notification'), 0)
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
  t.same(warned({ max: 1 }, { lock: { host: 'db' } }), [])
})

t.test('of a pool that shows no options nothing is said', async t => {
  warnAboutPool({} as pg.Pool, parseOptions({ name: 'a', sync () {} }), { warn: () => t.fail('warned') } as unknown as FastifyBaseLogger)
})

// what a pooler does, without one: its start-up told another backend

/** @param nth - how often a backend was asked for, with this one; gives which one answers, or nothing for the real one */
function pooled (client: pg.Client, answers: (nth: number) => number | undefined = () => undefined): pg.Client {
  let asked = 0
  return new Proxy(client, {
    get (target, name) {
      if (name === 'processID') return 1
      if (name !== 'query') return Reflect.get(target, name, target)
      return async (...words: Parameters<typeof client.query>) => {
        const result: any = await target.query(...words)
        const backend = result.rows[0]?.backend === undefined ? undefined : answers(++asked)
        return backend === undefined ? result : { ...result, rows: [{ backend }] }
      }
    }
  })
}

/** A second connection whose notification is up to `notify`. */
const second = (notify: (real: pg.Client) => Promise<unknown>, url = cluster.url()) => (): pg.Client => {
  const real = new pg.Client(url)
  const end = async (): Promise<void> => await pg.Client.prototype.end.apply(real)
  real.end = async () => {
    await end()
    throw new Error('the end of a probe is nobody\'s trouble')
  }
  return new Proxy(real, {
    get (target, name) {
      if (name !== 'query') return Reflect.get(target, name, target)
      return async (...words: Parameters<typeof real.query>) => String(words[0]).startsWith('notify') ? await notify(target) : await target.query(...words)
    }
  })
}
t.test('a session that hears another client, and stays the same while that one is busy, is its own', async t => {
  const client = await connected(t, cluster.url())
  const channel = probeChannel()
  await t.resolves(probeSession(pooled(client), second(async real => {
    real.emit('error', new Error('a probe may lose its connection'))
    return await real.query(`notify ${channel}`)
  }), channel, clock))
  t.equal((await client.query('select pg_listening_channels()')).rowCount, 0)
  t.equal(client.listenerCount('notification'), 0)
})

t.test('a session whose backend changes while another client is busy is refused, though the notification was heard', async t => {
  const client = await connected(t, cluster.url())
  await t.rejects(probeSession(pooled(client, nth => nth > 2 ? 2 : undefined), () => new pg.Client(cluster.url()), probeChannel(), clock), { code: 'FST_HOURLY_SYNC_POOLED', message: /answered first, then 2/ })
})

t.test('a session that hears nothing is refused', async t => {
  const client = await connected(t, cluster.url())
  await t.rejects(probeSession(pooled(client), second(async () => {}), probeChannel(), clock), { code: 'FST_HOURLY_SYNC_POOLED', message: /not heard/ })
})

t.test('a session that hears nothing, for the other client is kept waiting, is the only one of a pool', async t => {
  const client = await connected(t, cluster.url())
  await t.resolves(probeSession(pooled(client), second(async () => await new Promise(() => {})), probeChannel(), clock))
})

t.test('a session that keeps the other client waiting, and is served by several backends, is refused', async t => {
  const client = await connected(t, cluster.url())
  const served = gate()
  await t.rejects(probeSession(pooled(client, nth => {
    if (nth < 3) return undefined
    served.open()
    return 2
  }), second(async () => await served.passed), probeChannel(), clock), { code: 'FST_HOURLY_SYNC_POOLED', message: /not heard/ })
})

t.test('a second connection that fails is not taken for a pooler', async t => {
  const client = pooled(await connected(t, cluster.url()))
  await t.rejects(probeSession(client, second(async () => { throw new Error('away') }), probeChannel(), clock), { message: 'away' })
  const nowhere = `postgres://postgres:postgres@127.0.0.1:${await freePort()}/postgres`
  await t.rejects(probeSession(client, () => new pg.Client(nowhere), probeChannel(), clock), { code: 'ECONNREFUSED' })
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
