import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { createInterface } from 'node:readline'
import type { Readable } from 'node:stream'
import { fileURLToPath } from 'node:url'
import Fastify, { type FastifyInstance, type LightMyRequestResponse } from 'fastify'
import t from 'tap'
import { numberIn } from '../examples/orders/environment.js'
import type { Order } from '../examples/orders/order.js'
import type { OrderPage } from '../examples/orders/order-page.js'
import { type AccessEntry, buildOrderService, type OrderServiceOptions } from '../examples/orders/order-service.js'
import { orders, OrderServiceError, type OrdersRequest } from '../examples/orders/orders-client.js'

const start = Date.parse('2026-03-01T10:00:00.000Z')
const iso = (at: number): string => new Date(at).toISOString()

type Scope = Pick<typeof t, 'teardown'>

interface World {
  app: FastifyInstance
  clock: { now: number }
  ask: (query?: Record<string, string>, key?: string) => Promise<LightMyRequestResponse>
  page: (query?: Record<string, string>) => Promise<OrderPage>
  truth: () => Promise<Order[]>
  /** The whole window, a page after the other, with something done between two pages. */
  all: (query: Record<string, string>, between?: () => void) => Promise<Order[]>
}

/** A service on a clock that only the test moves; unless told otherwise it is patient, sound and still. */
function world (t: Scope, options: Partial<OrderServiceOptions> = {}): World {
  const clock = { now: start }
  const app = buildOrderService({
    keys: ['key', 'other'],
    now: () => clock.now,
    initialOrders: 50,
    changeEvery: 3_600_000,
    callEvery: 0,
    restFor: 0,
    failureRate: 0,
    ...options
  })
  t.teardown(async () => await app.close())
  const ask: World['ask'] = async (query = {}, key = 'key') =>
    await app.inject({ url: '/orders', query, headers: { 'x-api-key': key } })
  const page: World['page'] = async query => {
    const response = await ask(query)
    if (response.statusCode !== 200) throw new Error(response.body)
    return response.json()
  }
  return {
    app,
    clock,
    ask,
    page,
    truth: async () => (await app.inject('/admin/orders')).json(),
    all: async (query, between) => {
      const found: Order[] = []
      let cursor: string | null | undefined
      while (cursor !== null) {
        const { orders, next_cursor: next } = await page(cursor === undefined ? query : { ...query, cursor })
        found.push(...orders)
        cursor = next
        between?.()
      }
      return found
    }
  }
}

const ids = (orders: Order[]): string[] => orders.map(order => order.external_id)

t.test('without a valid key there is no page', async t => {
  const { app, ask } = world(t)
  t.equal((await app.inject('/orders')).statusCode, 401)
  t.equal((await ask({}, 'wrong')).statusCode, 401)
  t.equal((await ask({}, 'other')).statusCode, 200)
})

t.test('what is not a window, a limit or a cursor is refused', async t => {
  const { ask } = world(t)
  const wrong: Array<Record<string, string>> = [
    { updated_since: 'yesterday' }, { updated_until: '2026-13-01T00:00:00Z' }, { limit: '0' }, { limit: '201' },
    { cursor: 'nonsense' }, { cursor: Buffer.from('[1,2]').toString('base64url') }
  ]
  for (const query of wrong) t.equal((await ask(query)).statusCode, 400, JSON.stringify(query))
})

t.test('one key is served once a second, and is told when to come back', async t => {
  const { ask, clock } = world(t, { callEvery: 1000 })
  t.equal((await ask()).statusCode, 200)
  clock.now += 1
  const refused = await ask()
  t.equal(refused.statusCode, 429)
  t.equal(refused.headers['retry-after'], '1')
  clock.now += 998
  t.equal((await ask()).statusCode, 429, 'a refused call moves nothing')
  clock.now += 1
  t.equal((await ask()).statusCode, 200)
})

t.test('the rate of one key is not that of another', async t => {
  const { ask } = world(t, { callEvery: 1000 })
  t.equal((await ask({}, 'key')).statusCode, 200)
  t.equal((await ask({}, 'other')).statusCode, 200)
})

t.test('a large page is followed by a rest, a small one is not', async t => {
  const { ask, clock } = world(t, { largePage: 40, restFor: 2500 })
  t.equal((await ask({ limit: '39' })).statusCode, 200)
  t.equal((await ask({ limit: '40' })).statusCode, 200)
  const refused = await ask({ limit: '1' })
  t.equal(refused.statusCode, 429)
  t.equal(refused.headers['retry-after'], '3', 'whole seconds, never too few')
  clock.now += 2500
  t.equal((await ask({ limit: '1' })).statusCode, 200)
})

t.test('now and then a call fails with 503, on the same calls for the same seed', async t => {
  const outcomes = async (seed: number): Promise<string> => {
    const { ask } = world(t, { seed, failureRate: 0.2 })
    let codes = ''
    for (let call = 0; call < 200; call++) codes += (await ask({ limit: '1' })).statusCode === 503 ? 'x' : '.'
    return codes
  }
  const first = await outcomes(7)
  t.equal(await outcomes(7), first)
  t.not(await outcomes(8), first)
  const failed = first.split('x').length - 1
  t.ok(failed > 20 && failed < 60, `${failed} of 200 at a rate of a fifth`)
})

t.test('a call that failed with 503 counts for the rate', async t => {
  const { ask } = world(t, { failureRate: 1, callEvery: 1000 })
  t.equal((await ask()).statusCode, 503)
  t.equal((await ask()).statusCode, 429)
})

t.test('the same seed and clock give the same orders', async t => {
  const [one, two] = [world(t, { seed: 3, changeEvery: 100 }), world(t, { seed: 3, changeEvery: 100 })]
  one.clock.now += 20_000
  for (let step = 0; step < 20; step++) {
    two.clock.now += 1000
    await two.truth()
  }
  t.strictSame(await one.truth(), await two.truth(), 'however often somebody looks')
})

t.test('orders are created and changed as time goes by', async t => {
  const { clock, truth } = world(t, { changeEvery: 100, visibleAfter: 0 })
  const before = await truth()
  clock.now += 10_000
  const after = new Map((await truth()).map(order => [order.external_id, order]))
  t.ok(after.size > before.length, 'created')
  t.ok(before.some(order => after.get(order.external_id)?.updated_at !== order.updated_at), 'changed')
  t.strictSame(before.map(({ created_at: at }) => at), before.map(order => after.get(order.external_id)?.created_at))
})

t.test('a change shows only some seconds after its stamp', async t => {
  const { clock, page } = world(t, { initialOrders: 0, changeEvery: 10_000, visibleAfter: 3000 })
  clock.now = start + 12_999
  t.equal((await page()).total, 0)
  clock.now = start + 13_000
  const { orders } = await page()
  t.ok(orders.length > 0)
  t.ok(orders.every(order => order.updated_at === iso(start + 10_000)))
})

t.test('until a change shows, the order is as it was', async t => {
  const { clock, truth } = world(t, { initialOrders: 1, changeEvery: 1000, visibleAfter: 60_000 })
  const before = await truth()
  clock.now += 60_999
  t.strictSame(await truth(), before)
})

t.test('a window holds its beginning and not its end', async t => {
  const { page, truth } = world(t)
  const stamps = [...new Set((await truth()).map(order => order.updated_at))].sort()
  const [from, to] = [stamps[1] as string, stamps[3] as string]
  const { orders, total } = await page({ updated_since: from, updated_until: to })
  t.strictSame([...new Set(orders.map(order => order.updated_at))], stamps.slice(1, 3))
  t.equal(total, orders.length)
  t.equal((await page({ updated_since: from, updated_until: from })).total, 0)
})

t.test('a window in another time zone is the same window', async t => {
  const { page } = world(t)
  const here = await page({ updated_since: '2026-03-01T09:55:00Z' })
  t.ok(here.total > 0)
  t.strictSame(await page({ updated_since: '2026-03-01T15:25:00+05:30' }), here)
})

t.test('neighbouring windows hold every order once', async t => {
  const { page, truth } = world(t)
  const middle = '2026-03-01T09:56:00.000Z'
  const [before, after] = [await page({ updated_until: middle }), await page({ updated_since: middle })]
  t.ok(before.total > 0 && after.total > 0)
  t.strictSame(ids([...before.orders, ...after.orders]).sort(), ids(await truth()))
})

t.test('pages hold every order once, also where many share a stamp', async t => {
  const { all, truth } = world(t)
  t.strictSame(ids(await all({ limit: '3' })).sort(), ids(await truth()))
})

t.test('a last page that is full is the last page', async t => {
  const { page } = world(t)
  const { orders, next_cursor: next } = await page({ limit: '50' })
  t.equal(orders.length, 50)
  t.equal(next, null)
})

t.test('orders that change between two pages push no other one out', async t => {
  const { all, clock, truth } = world(t, { initialOrders: 200, changeEvery: 50, visibleAfter: 0 })
  const before = await truth()
  // the window stays open, so what changes moves to its end and comes (again) there
  const found = await all({ limit: '10' }, () => { clock.now += clock.now < start + 5000 ? 200 : 0 })
  t.ok(found.length > before.length)
  const last = new Map(found.map(order => [order.external_id, order]))
  t.strictSame([...last.values()].sort((a, b) => a.external_id < b.external_id ? -1 : 1), await truth())
})

t.test('an order that changes after its window has closed comes in the next one', async t => {
  const { all, clock, truth } = world(t, { initialOrders: 200, changeEvery: 50, visibleAfter: 0 })
  const until = iso(start)
  const first = await all({ limit: '10', updated_until: until }, () => { clock.now += 200 })
  clock.now += 1000
  const second = await all({ updated_since: until })
  const last = new Map([...first, ...second].map(order => [order.external_id, order]))
  t.strictSame([...last.values()].sort((a, b) => a.external_id < b.external_id ? -1 : 1), await truth())
})

t.test('a frozen service changes nothing any more, and says when the last change shows', async t => {
  const { app, clock, truth } = world(t, { changeEvery: 1000, visibleAfter: 3000 })
  clock.now += 5500
  const { settled_at: settled } = (await app.inject({ method: 'POST', url: '/admin/freeze' })).json()
  t.equal(settled, iso(start + 8000))
  clock.now = Date.parse(settled)
  const after = await truth()
  t.equal(after.map(order => order.updated_at).sort().at(-1), iso(start + 5000))
  clock.now += 3_600_000
  t.strictSame(await truth(), after)
  t.equal((await app.inject({ method: 'POST', url: '/admin/freeze' })).json().settled_at, iso(clock.now), 'settled already')
})

t.test('every call is in the access log, the key is not', async t => {
  const { app, ask } = world(t, { callEvery: 1000 })
  const since = iso(start - 3_600_000)
  await ask({ updated_since: since, updated_until: iso(start) })
  await ask()
  await ask({}, 'wrong-secret')
  const log = (await app.inject('/admin/log')).json<AccessEntry[]>()
  t.strictSame(log, [
    { at: iso(start), status: 200, since, until: iso(start), rows: 50 },
    { at: iso(start), status: 429, since: null, until: null, rows: 0 },
    { at: iso(start), status: 401, since: null, until: null, rows: 0 }
  ])
})

t.test('the access log does not grow for ever', async t => {
  const { app, ask } = world(t, { accessLogLimit: 3 })
  for (const limit of ['1', '2', '3', '4']) await ask({ limit })
  t.strictSame((await app.inject('/admin/log')).json<AccessEntry[]>().map(({ rows }) => rows), [2, 3, 4])
})

/** The service on a port, and a request to it whose waits move the service's clock instead of taking time. */
async function served (t: Scope, options: Partial<OrderServiceOptions> = {}): Promise<World & { waits: number[], request: OrdersRequest }> {
  const of = world(t, options)
  await of.app.listen({ port: 0, host: '127.0.0.1' })
  const waits: number[] = []
  const sleep = async (ms: number): Promise<void> => {
    waits.push(ms)
    of.clock.now += ms
  }
  const { port } = of.app.server.address() as AddressInfo
  return { ...of, waits, request: { baseUrl: `http://127.0.0.1:${port}`, key: 'key', since: null, until: null, sleep } }
}

async function collect (request: OrdersRequest): Promise<Order[]> {
  const found: Order[] = []
  for await (const { rows } of orders(request)) found.push(...rows)
  return found
}

t.test('the client brings the whole window, with its progress', async t => {
  const { request, truth } = await served(t)
  const pages = []
  for await (const page of orders({ ...request, limit: 20 })) pages.push(page)
  t.strictSame(pages.map(({ rows, done, total }) => [rows.length, done, total]), [[20, 20, 50], [20, 40, 50], [10, 50, 50]])
  t.strictSame(ids(pages.flatMap(({ rows }) => rows)).sort(), ids(await truth()))
})

t.test('the client asks for the window it was given', async t => {
  const { request, app } = await served(t)
  const [since, until] = [new Date(start - 240_000), new Date(start - 180_000)]
  const found = await collect({ ...request, since, until })
  t.ok(found.length > 0 && found.every(order => order.updated_at >= iso(+since) && order.updated_at < iso(+until)))
  t.match((await app.inject('/admin/log')).json(), [{ since: iso(+since), until: iso(+until) }])
})

t.test('an empty window is one page without rows', async t => {
  const { request } = await served(t, { initialOrders: 0 })
  const pages = []
  for await (const page of orders(request)) pages.push(page)
  t.strictSame(pages, [{ rows: [], done: 0, total: 0 }])
})

t.test('the client keeps to the rate, so nothing is refused', async t => {
  const { request, app, waits } = await served(t, { callEvery: 1000 })
  await collect({ ...request, limit: 20 })
  t.strictSame(waits, [1000, 1000])
  t.strictSame((await app.inject('/admin/log')).json<AccessEntry[]>().map(({ status }) => status), [200, 200, 200])
})

t.test('the client rests as long as it is told', async t => {
  const { request, waits, truth } = await served(t, { largePage: 20, restFor: 5000, callEvery: 1000 })
  t.strictSame(ids(await collect({ ...request, limit: 20 })).sort(), ids(await truth()))
  t.strictSame(waits, [1000, 4000, 1000, 4000])
})

t.test('the client gets over a 503, waiting longer each time', async t => {
  const { request, waits, truth } = await served(t, { seed: 1, failureRate: 0.5 })
  t.strictSame(ids(await collect({ ...request, limit: 10, callEvery: 100 })).sort(), ids(await truth()))
  t.ok(waits.includes(200), 'twice in a row')
})

t.test('the client gives up on a service that stays away', async t => {
  const { request, waits } = await served(t, { failureRate: 1 })
  await t.rejects(collect({ ...request, callEvery: 100, attempts: 4 }), { name: 'OrderServiceError', statusCode: 503 })
  t.strictSame(waits, [100, 200, 400])
})

t.test('the client does not repeat what cannot succeed', async t => {
  const { request, waits } = await served(t)
  const error = await collect({ ...request, key: 'wrong-secret' }).catch((error: unknown) => error)
  t.ok(error instanceof OrderServiceError)
  t.match(error, { statusCode: 401 })
  t.notMatch((error as Error).message, 'wrong-secret')
  t.strictSame(waits, [])
})

t.test('an aborted client asks for no further page', async t => {
  const { request, app } = await served(t)
  const controller = new AbortController()
  const reason = new Error('enough')
  const pages = orders({ ...request, limit: 20, signal: controller.signal })
  await pages.next()
  controller.abort(reason)
  await t.rejects(pages.next(), reason)
  t.equal((await app.inject('/admin/log')).json<AccessEntry[]>().length, 1)
})

t.test('an abort ends a wait, too, when the client waits by itself', async t => {
  const { request } = await served(t)
  const controller = new AbortController()
  const pages = orders({ ...request, sleep: undefined, limit: 20, callEvery: 3_600_000, signal: controller.signal })
  await pages.next()
  const second = pages.next()
  controller.abort()
  await t.rejects(second, { name: 'AbortError' })
})

t.test('the client waits for what Retry-After says, in seconds or until a date, or as long as it thinks right', async t => {
  const app = Fastify()
  t.teardown(async () => await app.close())
  const headers = ['7', 'Thu, 01 Jan 2026 00:00:00 GMT', 'soon', undefined]
  app.get('/orders', async (_request, reply) => {
    const header = headers.shift()
    if (header !== undefined) reply.header('retry-after', header)
    return await reply.code(503).send('a proxy speaks no JSON')
  })
  await app.listen({ port: 0, host: '127.0.0.1' })
  const { port } = app.server.address() as AddressInfo
  const waits: number[] = []
  const sleep = async (ms: number): Promise<void> => { waits.push(ms) }
  const request = { baseUrl: `http://127.0.0.1:${port}`, key: 'key', since: null, until: null, callEvery: 10, attempts: 5, sleep }
  await t.rejects(collect(request), { message: 'order service answered 503' })
  t.strictSame(waits, [7000, 0, 40, 80])
})

t.test('an error without a message of its own is still an error with a status', async t => {
  const app = Fastify()
  t.teardown(async () => await app.close())
  app.get('/orders', async (_request, reply) => await reply.code(500).send({ message: 42 }))
  await app.listen({ port: 0, host: '127.0.0.1' })
  const { port } = app.server.address() as AddressInfo
  const request = { baseUrl: `http://127.0.0.1:${port}`, key: 'key', since: null, until: null }
  await t.rejects(collect(request), { statusCode: 500, message: 'order service answered 500' })
})

interface Started { child: ChildProcess, url: string, exited: Promise<number | null> }

/** The service as its own process, once it listens. */
async function started (t: Scope, env: Record<string, string>): Promise<Started> {
  const child = fork(fileURLToPath(new URL('../examples/orders/order-service.ts', import.meta.url)), {
    env: { ...process.env, PORT: '0', ...env },
    stdio: ['ignore', 'pipe', 'inherit', 'ipc']
  })
  t.teardown(() => child.kill('SIGKILL'))
  const exited = once(child, 'exit').then(([code]) => code as number | null)
  const url = await new Promise<string>((resolve, reject) => {
    createInterface({ input: child.stdout as Readable }).on('line', line => {
      const found = /Server listening at (http:[^"]+)/.exec(line)?.[1]
      if (found !== undefined) resolve(found)
    })
    exited.then(code => reject(new Error(`ended with ${code}`)), reject)
  })
  return { child, url, exited }
}

t.test('the service runs by itself, set up by its environment, and ends on SIGTERM', async t => {
  const { child, url, exited } = await started(t, { ORDER_API_KEY: 'of the test', ORDER_COUNT: '7' })
  const response = await fetch(`${url}/orders`, { headers: { 'x-api-key': 'of the test' } })
  t.equal(response.status, 200)
  t.equal((await response.json() as OrderPage).total, 7)
  child.kill('SIGTERM')
  t.equal(await exited, 0)
})

t.test('the service does not outlive the process that forked it', async t => {
  const { child, exited } = await started(t, {})
  child.disconnect()
  t.equal(await exited, 0)
})

t.test('a number in the environment that is none is an error, not the default', async t => {
  t.equal(numberIn({}, 'RATE', 3), 3)
  t.equal(numberIn({ RATE: '' }, 'RATE', 3), 3)
  t.equal(numberIn({ RATE: '0.5' }, 'RATE', 3), 0.5)
  for (const wrong of ['fast', '-1', 'Infinity']) t.throws(() => numberIn({ RATE: wrong }, 'RATE', 3), { message: `RATE should be a number of zero or more, instead got '${wrong}'` })
})
