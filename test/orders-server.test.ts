import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import Fastify, { type FastifyInstance } from 'fastify'
import pg from 'pg'
import t from 'tap'
import type { Order } from '../examples/orders/order.js'
import { buildOrderService } from '../examples/orders/order-service.js'
import { createTable, orderOf, type OrderRow, readOne, readPage, saving } from '../examples/orders/orders-table.js'
import { buildServer } from '../examples/orders/server.js'
import type { RunRecord } from '../lib/types.js'
import { createUpsert, type Statements } from '../lib/upsert.js'
import { startPostgres } from './helpers/postgres.js'
import { gate, until } from './helpers/until.js'

const cluster = await startPostgres(t)

type Scope = Pick<typeof t, 'teardown'>

const pool = new pg.Pool({ connectionString: cluster.url(), max: 8 })
t.teardown(async () => await pool.end())
t.beforeEach(async () => await pool.query('drop table if exists orders'))

const order: Order = {
  external_id: 'ORD-1',
  customer: 'Zoë "Zee" Brönte',
  status: 'open',
  total: '1234567890.10',
  currency: 'EUR',
  item_count: 3,
  paid: false,
  note: "שלום 🎁 e\u0301 'quoted'\nback\\slash",
  tags: ['a,b', 'größe:XL', 'null', '🌱'],
  created_at: '2026-03-01T10:00:00.001Z',
  updated_at: '2026-03-01T10:00:00.123Z'
}

async function saved (): Promise<Order[]> {
  return (await pool.query<OrderRow>(readPage, ['', 100])).rows.map(orderOf)
}

async function save (rows: Order[]): Promise<void> {
  await pool.query(createTable)
  const query: Statements['query'] = async (text, values) => await pool.query(text, values)
  await createUpsert({ query, transaction: async fn => await fn({ query }) })('orders', rows, saving)
}

t.test('servers that boot at once make the table once', async t => {
  await Promise.all(Array.from({ length: 8 }, async () => await pool.query(createTable)))
  t.strictSame(await saved(), [])
})

t.test('an order reads back as it came, field by field', async t => {
  const empty: Order = { ...order, external_id: 'ORD-2', note: null, tags: [], total: '0.00', paid: true }
  await save([order, empty])
  t.strictSame(await saved(), [order, empty])
  t.strictSame((await pool.query<OrderRow>(readOne, ['ORD-2'])).rows.map(orderOf), [empty])
})

t.test('a page without rows saves nothing', async t => {
  await save([])
  t.strictSame(await saved(), [])
})

t.test('of a key that a page holds twice the last one counts', async t => {
  const later: Order = { ...order, note: 'later', updated_at: '2026-03-01T10:00:01.000Z' }
  await save([order, later])
  t.strictSame(await saved(), [later])
})

t.test('a newer state overwrites an older one, and never the other way round', async t => {
  const newer: Order = { ...order, status: 'shipped', note: null, updated_at: '2026-03-01T10:00:00.124Z' }
  await save([order])
  await save([newer])
  t.strictSame(await saved(), [newer])
  await save([order])
  t.strictSame(await saved(), [newer])
})

t.test('a page that comes again writes no row', async t => {
  const versions = async (): Promise<unknown[]> => (await pool.query('select ctid, xmin from orders')).rows
  await save([order])
  const before = await versions()
  await save([order])
  t.strictSame(await versions(), before)
})

interface World { service: FastifyInstance, app: FastifyInstance }

/** The server with a database and an order service of its own; its loop is off, runs are made by hand. */
async function world (t: Scope, { service = buildOrderService({ keys: ['key'], callEvery: 0, restFor: 0, failureRate: 0, initialOrders: 60, changeEvery: 3_600_000 }), apiKey = 'key' } = {}): Promise<World> {
  t.teardown(async () => await service.close())
  await service.listen({ port: 0, host: '127.0.0.1' })
  const app = await buildServer({
    databaseUrl: cluster.url(await cluster.database()),
    orderServiceUrl: `http://127.0.0.1:${(service.server.address() as AddressInfo).port}`,
    apiKey,
    callEvery: 0,
    pageSize: 25,
    logLevel: 'silent'
  })
  t.teardown(async () => await app.close())
  await app.ready()
  return { service, app }
}

/** Starts a run and waits for its end. A run is in the history a moment before its lock is free for the next one. */
async function refresh (app: FastifyInstance): Promise<RunRecord> {
  const runId = await until(async () => {
    const answer = await app.inject({ method: 'POST', url: '/orders/refresh' })
    return answer.json<{ runId?: string }>().runId
  }, 'a run has begun')
  return await until(async () => (await app.hourlySync.get().runs()).find(({ id }) => id === runId), 'the run has ended')
}

t.test('a refresh brings the orders of the service, field by field', async t => {
  const { app, service } = await world(t)
  const run = await refresh(app)
  t.match(run, { state: 'succeeded', trigger: 'manual', stats: { orders: 60, inserted: 60, updated: 0, unchanged: 0, stale: 0 }, since: null })
  const { orders, next } = (await app.inject({ url: '/orders', query: { limit: '100' } })).json()
  t.strictSame(orders, (await service.inject('/admin/orders')).json())
  t.equal(next, null)
})

t.test('the next refresh asks again only for the overlap and what came after it', async t => {
  const { app } = await world(t)
  const first = await refresh(app)
  const second = await refresh(app)
  t.equal(Number(second.since), Number(first.until) - 600_000)
})

t.test('a refresh that fails on a later page resumes after the one before', async t => {
  const orders = Array.from({ length: 4 }, (_, i): Order => ({ ...order, external_id: `ORD-${i}`, updated_at: new Date(Date.now() - 3_600_000 + i * 600_000).toISOString() }))
  const asked: Array<string | undefined> = []
  let away = true
  const service = Fastify()
  service.get<{ Querystring: { updated_since?: string, cursor?: string } }>('/orders', async (request, reply) => {
    const { updated_since: since, cursor } = request.query
    if (cursor === undefined) asked.push(since)
    else if (away) return await reply.code(400).send({ message: 'no such page' })
    const left = orders.filter(({ updated_at: at }) => at >= (since ?? '') && at > (cursor ?? ''))
    const page = left.slice(0, 2)
    return { orders: page, next_cursor: left.length > 2 ? page.at(-1)?.updated_at : null, total: orders.length }
  })
  const { app } = await world(t, { service })
  t.match(await refresh(app), { state: 'failed' })
  away = false
  t.match(await refresh(app), { state: 'succeeded' })
  const overlap = 600_000
  t.strictSame(asked, [undefined, new Date(Date.parse(orders[1]!.updated_at) - overlap).toISOString()])
  t.equal((await app.inject({ url: '/orders', query: { limit: '10' } })).json().orders.length, 4)
})

t.test('a window of the past is fetched again, a day at a time', async t => {
  const { app } = await world(t)
  const backfill = async (since: string, until: string): Promise<{ statusCode: number }> =>
    await app.inject({ method: 'POST', url: '/orders/backfill', payload: { since, until } })
  t.equal((await backfill('2026-01-04T00:00:00Z', '2026-01-01T00:00:00Z')).statusCode, 400)
  t.equal((await backfill('yesterday', 'today')).statusCode, 400)
  t.equal((await backfill('2026-01-01T00:00:00Z', '2026-01-04T00:00:00Z')).statusCode, 202)
  t.match((await backfill('2026-01-01T00:00:00Z', '2026-01-04T00:00:00Z')), { statusCode: 409 })
  const runs = await until(async () => {
    const runs = (await app.hourlySync.get().runs()).filter(({ trigger }) => trigger === 'backfill') // the slot that was due is served in between
    return runs.length === 3 && runs
  }, 'three slices have ended')
  t.strictSame(runs.map(({ trigger, state, slice }) => [trigger, state, slice]), [3, 2, 1].map(slice => ['backfill', 'succeeded', slice]))
})

t.test('without a key no window is fetched again', async t => {
  const { app } = await world(t, { apiKey: '' })
  const refused = await app.inject({ method: 'POST', url: '/orders/backfill', payload: { since: '2026-01-01T00:00:00Z', until: '2026-01-04T00:00:00Z' } })
  t.equal(refused.statusCode, 503)
})

t.test('orders are read in pages, and one by one', async t => {
  const { app } = await world(t)
  await refresh(app)
  const ids = []
  let next: string | null = ''
  while (next !== null) {
    const page: { orders: Order[], next: string | null } = (await app.inject({ url: '/orders', query: { limit: '20', after: next } })).json()
    ids.push(...page.orders.map(order => order.external_id))
    next = page.next
  }
  t.equal(new Set(ids).size, 60)
  t.strictSame(ids, [...ids].sort())
  t.match((await app.inject('/orders/ORD-000007')).json(), { external_id: 'ORD-000007' })
  t.equal((await app.inject('/orders/ORD-999999')).statusCode, 404)
  t.equal((await app.inject('/orders/%00')).statusCode, 400)
  t.equal((await app.inject({ url: '/orders', query: { limit: '501' } })).statusCode, 400)
})

t.test('a refresh says honestly whether it began, and does not wait for the end', async t => {
  const { passed, open } = gate()
  const service = Fastify()
  service.get('/orders', async () => {
    await passed
    return { orders: [order], next_cursor: null, total: 1 }
  })
  const { app } = await world(t, { service })
  const [one, two] = await Promise.all([0, 1].map(async () => await app.inject({ method: 'POST', url: '/orders/refresh' })))
  t.strictSame([one?.statusCode, two?.statusCode].sort(), [202, 409])
  t.match(one?.statusCode === 409 ? one.json() : two?.json(), { started: false, reason: 'running' })
  open()
  t.match(await until(async () => (await app.hourlySync.get().runs())[0]), { state: 'succeeded' })
})

t.test('without a key the server serves, and a refresh says what is missing', async t => {
  const { app } = await world(t, { apiKey: '' })
  t.equal((await app.inject('/healthz')).statusCode, 200)
  t.equal((await app.inject('/orders')).statusCode, 200)
  const refused = await app.inject({ method: 'POST', url: '/orders/refresh' })
  t.equal(refused.statusCode, 503)
  t.match(refused.json(), { started: false, reason: 'not-configured' })
})

t.test('an idle connection that is lost does not end the server', async t => {
  const { app } = await world(t)
  await app.inject('/orders')
  const { rows: [{ datname }] } = await app.pg.query('select current_database() as datname')
  const lost = once(app.pg.pool, 'error')
  await cluster.query('select pg_terminate_backend(pid) from pg_stat_activity where datname = $1', [datname])
  await lost
  t.equal((await app.inject('/orders')).statusCode, 200)
})
