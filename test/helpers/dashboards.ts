import fastifyPostgres from '@fastify/postgres'
import Fastify, { type FastifyInstance } from 'fastify'
import type { Test } from 'tap'
import hourlySync from '../../index.js'
import type { HourlySyncOptions } from '../../lib/types.js'
import type { Stage } from './host.js'

/** A server that listens, with the routes of one sync. */
export interface Served {
  app: FastifyInstance
  /** Of the server. */
  address: string
  /** Of the page. */
  url: string
}

/** The server's clock is as it is: a browser has no other. */
export async function serveSync (t: Pick<Test, 'teardown'>, stage: Stage, options: Partial<HourlySyncOptions> = {}, also: Array<Partial<HourlySyncOptions>> = []): Promise<Served> {
  const app = Fastify()
  t.teardown(async () => await app.close())
  await app.register(fastifyPostgres, { ...stage.poolConfig, options: '' })
  const shared = { schema: stage.schema, enabled: false, startupDelay: 0, sync: async () => {}, routes: { public: true } }
  for (const more of [options, ...also]) await app.register(hourlySync, { name: 'order-sync', ...shared, ...more })
  const address = await app.listen({ host: '127.0.0.1', port: 0 })
  return { app, address, url: `${address}/hourly-sync/${encodeURIComponent(options.name ?? 'order-sync')}/` }
}
