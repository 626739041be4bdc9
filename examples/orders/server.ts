import postgres from '@fastify/postgres'
import Fastify, { type FastifyInstance } from 'fastify'
import hourlySync from 'fastify-hourly-sync'
import { numberIn, textIn } from './environment.js'
import { orders } from './orders-client.js'
import { createTable, orderOf, type OrderRow, readOne, readPage, saving } from './orders-table.js'
import { isMain, serve } from './serve.js'

export interface ServerOptions {
  databaseUrl: string
  orderServiceUrl: string
  /** Without it the server runs, and the sync does not. */
  apiKey?: string
  /** Whether this process looks for due slots by itself. */
  autoSync?: boolean
  every?: string
  startupDelay?: string
  /** More than the order service takes to show a change (its stamp is older than its appearance). */
  overlap?: string
  /** Longest window of one run; a longer gap is fetched in several. */
  maxWindow?: string
  retryDelay?: string
  /** Milliseconds between two calls of the order service. */
  callEvery?: number
  pageSize?: number
  logLevel?: string
}

/** What a key can look like; PostgreSQL would refuse some of the rest with an error. */
const externalId = { type: 'string', maxLength: 100, pattern: '^[A-Za-z0-9-]*$' }

/** A web server that answers from its own copy of the orders, and keeps the copy fresh once an hour. */
export async function buildServer (options: ServerOptions): Promise<FastifyInstance> {
  const { apiKey, orderServiceUrl, callEvery, pageSize } = options
  const app = Fastify({ logger: { level: options.logLevel ?? 'info' } })

  await app.register(postgres, { connectionString: options.databaseUrl })
  // an idle client that loses its connection would end the process
  app.pg.pool.on('error', error => app.log.warn(error, 'idle database client lost'))
  app.addHook('onReady', async () => { await app.pg.query(createTable) })

  await app.register(hourlySync, {
    name: 'order-sync',
    enabled: options.autoSync ?? false,
    requires: { ORDER_API_KEY: apiKey },
    every: options.every ?? '1h',
    startupDelay: options.startupDelay ?? '90s',
    overlap: options.overlap ?? '10m',
    maxWindow: options.maxWindow ?? '24h',
    retry: { delay: options.retryDelay ?? '1m' },
    routes: { public: true }, // it listens on the loopback interface alone; give yours a guard
    sync: async run => {
      run.log.info({ since: run.since, until: run.until }, 'fetching orders')
      const stats = { orders: 0, inserted: 0, updated: 0, unchanged: 0, stale: 0 }
      const pages = orders({
        baseUrl: orderServiceUrl,
        key: apiKey as string, // the sync does not run without it
        since: run.since,
        until: run.until,
        signal: run.signal,
        sleep: run.sleep,
        callEvery,
        limit: pageSize
      })
      for await (const page of pages) {
        const counts = await run.upsert('orders', page.rows, saving)
        for (const count of ['inserted', 'updated', 'unchanged', 'stale'] as const) stats[count] += counts[count]
        stats.orders = page.done
        run.progress(page.done, page.total)
        // orders come in the order of their stamps: a failure on a later page resumes here
        const last = page.rows.at(-1)
        if (last !== undefined && page.done < page.total) await run.checkpoint({ until: new Date(last.updated_at) })
      }
      return { stats }
    }
  })

  app.get('/healthz', async () => ({ status: 'ok' }))

  app.get<{ Querystring: { after: string, limit: number } }>('/orders', {
    schema: {
      querystring: {
        type: 'object',
        additionalProperties: false,
        properties: {
          after: { ...externalId, default: '' },
          limit: { type: 'integer', minimum: 1, maximum: 500, default: 50 }
        }
      }
    }
  }, async request => {
    const { after, limit } = request.query
    const { rows } = await app.pg.query<OrderRow>(readPage, [after, limit])
    return {
      orders: rows.map(orderOf),
      next: rows.length === limit ? rows.at(-1)?.external_id : null
    }
  })

  app.get<{ Params: { external_id: string } }>('/orders/:external_id', {
    schema: { params: { type: 'object', properties: { external_id: externalId } } }
  }, async (request, reply) => {
    const { rows: [row] } = await app.pg.query<OrderRow>(readOne, [request.params.external_id])
    return row === undefined ? await reply.code(404).send({ message: 'no such order' }) : orderOf(row)
  })

  app.post('/orders/refresh', async (_request, reply) => {
    const answer = await app.triggerSync()
    if (answer.started) return await reply.code(202).send({ started: true, runId: answer.runId })
    // somebody else is at it, which is as good; anything else is a state of this server
    return await reply.code(answer.reason === 'running' ? 409 : 503).send({ started: false, reason: answer.reason })
  })

  app.post<{ Body: { since: string, until: string } }>('/orders/backfill', {
    schema: {
      body: {
        type: 'object',
        required: ['since', 'until'],
        properties: { since: { type: 'string', format: 'date-time' }, until: { type: 'string', format: 'date-time' } }
      }
    }
  }, async (request, reply) => {
    const [since, until] = [new Date(request.body.since), new Date(request.body.until)]
    if (since >= until) return await reply.code(400).send({ message: 'a window ends after it begins' })
    const answer = await app.hourlySync.get().backfill({ since, until })
    if (answer.started) return await reply.code(202).send({ started: true, runId: answer.runId })
    return await reply.code(answer.reason === 'running' ? 409 : 503).send({ started: false, reason: answer.reason })
  })

  return app
}

if (isMain(import.meta.url)) {
  const env = process.env
  const app = await buildServer({
    databaseUrl: textIn(env, 'DATABASE_URL', 'postgres://postgres@127.0.0.1:5432/postgres'),
    orderServiceUrl: textIn(env, 'ORDER_SERVICE_URL', 'http://127.0.0.1:4000'),
    apiKey: env['ORDER_API_KEY'],
    autoSync: env['AUTO_SYNC'] === 'true',
    every: textIn(env, 'SYNC_EVERY', '1h'),
    startupDelay: textIn(env, 'SYNC_STARTUP_DELAY', '90s'),
    overlap: textIn(env, 'SYNC_OVERLAP', '10m'),
    retryDelay: textIn(env, 'SYNC_RETRY_DELAY', '1m'),
    callEvery: numberIn(env, 'ORDER_CALL_EVERY', 1000),
    pageSize: numberIn(env, 'ORDER_PAGE_SIZE', 200),
    logLevel: textIn(env, 'LOG_LEVEL', 'info')
  })
  await serve(app, numberIn(env, 'PORT', 3000))
}
