import Fastify, { type FastifyInstance, type FastifyRequest } from 'fastify'
import { callLimits } from './call-limits.js'
import { numberIn, textIn } from './environment.js'
import { openOrderBook } from './order-book.js'
import { orderPage, positionOf } from './order-page.js'
import { isMain, serve } from './serve.js'

export interface OrderServiceOptions {
  /** Who may call: the values accepted in the `x-api-key` header. */
  keys: string[]
  /** Everything that looks random follows from it. */
  seed?: number
  /** The clock, epoch milliseconds. */
  now?: () => number
  initialOrders?: number
  changeEvery?: number
  visibleAfter?: number
  callEvery?: number
  maxLimit?: number
  largePage?: number
  restFor?: number
  failureRate?: number
  /** Entries that the access log keeps: it is for looking at, not for keeping. */
  accessLogLimit?: number
  logger?: boolean
}

/** One call to `/orders` and what came of it. */
export interface AccessEntry {
  at: string
  status: number
  since: string | null
  until: string | null
  rows: number
}

interface OrdersQuery {
  updated_since?: string
  updated_until?: string
  cursor?: string
  limit: number
}

/**
 * A stand-in for the slow, rate-limited API of somebody else: orders by cursor, one call a second per key, a rest after
 * a large page, now and then a 503, and changes that show only seconds after their stamp.
 *
 * The routes under `/admin` are what the real thing would not have: they let a test or the demo know the truth.
 */
export function buildOrderService (options: OrderServiceOptions): FastifyInstance {
  const { keys, seed = 1, now = Date.now, initialOrders = 300, changeEvery = 400, visibleAfter = 3000 } = options
  const { callEvery = 1000, maxLimit = 200, largePage = 100, restFor = 2000, failureRate = 0.05, accessLogLimit = 10_000 } = options
  const book = openOrderBook({ seed, startsAt: now(), initialOrders, changeEvery, visibleAfter })
  const limits = callLimits({ callEvery, largePage, restFor, failureRate, seed })
  const accessLog: AccessEntry[] = []
  const rowsSent = new WeakMap<FastifyRequest['raw'], number>()

  const app = Fastify({ logger: options.logger ?? false })

  app.get<{ Querystring: OrdersQuery }>('/orders', {
    schema: {
      querystring: {
        type: 'object',
        additionalProperties: false,
        properties: {
          updated_since: { type: 'string', format: 'date-time' },
          updated_until: { type: 'string', format: 'date-time' },
          cursor: { type: 'string', maxLength: 500 },
          limit: { type: 'integer', minimum: 1, maximum: maxLimit, default: maxLimit }
        }
      }
    },
    onRequest: async (request, reply) => {
      const key = request.headers['x-api-key']
      if (typeof key !== 'string' || !keys.includes(key)) {
        return await reply.code(401).send({ message: 'send a valid key in x-api-key' })
      }
    },
    onResponse: async (request, reply) => {
      if (accessLog.length === accessLogLimit) accessLog.shift()
      accessLog.push({
        at: new Date(now()).toISOString(),
        status: reply.statusCode,
        since: request.query.updated_since ?? null,
        until: request.query.updated_until ?? null,
        rows: rowsSent.get(request.raw) ?? 0
      })
    }
  }, async (request, reply) => {
    const { updated_since: since, updated_until: until, cursor, limit } = request.query
    const after = cursor === undefined ? null : positionOf(cursor)
    if (cursor !== undefined && after === null) return await reply.code(400).send({ message: 'not a cursor of this service' })

    const key = request.headers['x-api-key'] as string
    const verdict = limits.ask(key, now())
    if (!verdict.allowed) {
      if (verdict.status === 429) reply.header('retry-after', verdict.retryAfter)
      return await reply.code(verdict.status).send({ message: verdict.message })
    }

    const page = orderPage(book.visible(now()), {
      since: since === undefined ? null : Date.parse(since),
      until: until === undefined ? null : Date.parse(until),
      after,
      limit
    })
    limits.served(key, now(), page.orders.length)
    rowsSent.set(request.raw, page.orders.length)
    return page
  })

  app.get('/admin/orders', async () => book.visible(now()))
  app.get('/admin/log', async () => accessLog)
  app.post('/admin/freeze', async () => ({ settled_at: new Date(book.freeze(now())).toISOString() }))

  return app
}

if (isMain(import.meta.url)) {
  const app = buildOrderService({
    keys: [textIn(process.env, 'ORDER_API_KEY', 'demo-key')],
    seed: numberIn(process.env, 'ORDER_SEED', 1),
    initialOrders: numberIn(process.env, 'ORDER_COUNT', 300),
    changeEvery: numberIn(process.env, 'ORDER_CHANGE_EVERY', 400),
    visibleAfter: numberIn(process.env, 'ORDER_VISIBLE_AFTER', 3000),
    callEvery: numberIn(process.env, 'ORDER_CALL_EVERY', 1000),
    largePage: numberIn(process.env, 'ORDER_LARGE_PAGE', 100),
    restFor: numberIn(process.env, 'ORDER_REST_FOR', 2000),
    failureRate: numberIn(process.env, 'ORDER_FAILURE_RATE', 0.05),
    logger: true
  })
  await serve(app, numberIn(process.env, 'PORT', 4000))
}
