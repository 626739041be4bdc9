import type { FastifyInstance } from 'fastify'
import { buildOrderService } from '../../examples/orders/order-service.js'
import { VISIBLE_AFTER } from './limits.js'
import type { Scope } from './scope.js'

/** A call to the order service, as the service saw it. Epoch milliseconds. */
export interface Call {
  run: string
  worker: number
  from: number
  /** When it was answered, or its caller had gone. */
  to: number
}

export interface OrderService {
  app: FastifyInstance
  url: string
  key: string
  calls: Call[]
}

/** The order service with its rates turned up, and a log of who called for which run. */
export async function startOrderService (scope: Scope, seed: number): Promise<OrderService> {
  const key = 'chaos-key'
  const calls: Call[] = []
  const app = buildOrderService({
    keys: [key], seed, initialOrders: 400, changeEvery: 100, visibleAfter: VISIBLE_AFTER, callEvery: 20, largePage: 1_000, restFor: 100, failureRate: 0.03
  })
  app.addHook('onRequest', async (request, reply) => {
    const { 'x-run': run, 'x-worker': worker } = request.headers
    if (typeof run !== 'string') return
    const call: Call = { run, worker: Number(worker), from: Date.now(), to: Date.now() }
    calls.push(call)
    reply.raw.once('close', () => { call.to = Date.now() })
  })
  const url = await app.listen({ port: 0, host: '127.0.0.1' })
  scope.teardown(async () => {
    app.server.closeAllConnections()
    await app.close()
  })
  return { app, url, key, calls }
}
