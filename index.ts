import type { FastifyPluginAsync } from 'fastify'
import fp from 'fastify-plugin'
import * as errors from './lib/errors.js'
import { placeOf, routes } from './lib/http/routes.js'
import { migrationSql } from './lib/migrations.js'
import { parseOptions } from './lib/options.js'
import { poolOf, registryOf } from './lib/registry.js'
import { createService } from './lib/service.js'
import { TransientSyncError } from './lib/transient.js'
import type { HourlySyncOptions, HourlySyncRegistry, TriggerAnswer } from './lib/types.js'
import { jsonNull } from './lib/upsert.js'

declare module 'fastify' {
  interface FastifyInstance {
    /** Starts a run now, due or not, and says honestly whether it did. The name may be left out when the app has one sync. */
    triggerSync: (name?: string) => Promise<TriggerAnswer>
    /** Whether any process is running the sync. */
    isSyncing: (name?: string) => Promise<boolean>
    hourlySync: HourlySyncRegistry
  }
}

const hourlySync: FastifyPluginAsync<HourlySyncOptions> = async (fastify, options) => {
  const settings = parseOptions(options)
  const service = createService(settings, fastify.log)
  const registry = registryOf(fastify)
  const earlier = registry.names

  registry.add(service)
  if (!fastify.hasDecorator('hourlySync')) {
    fastify.decorate('hourlySync', registry)
    fastify.decorate('triggerSync', async name => await registry.get(name).trigger())
    fastify.decorate('isSyncing', async name => await registry.get(name).isSyncing())
  }
  if (settings.routes !== undefined) {
    const place = placeOf(settings.routes, settings.name, earlier)
    await fastify.register(routes, { prefix: place.pattern, service, routes: settings.routes, place, pages: registry.pages })
  }
  fastify.addHook('onReady', async () => { // registration order does not matter
    service.open(registry.gate(poolOf(fastify, settings), fastify.log))
    if (settings.enabled && settings.start === 'ready') service.start()
  })
  if (settings.enabled && settings.start === 'listen') fastify.addHook('onListen', async () => { service.start() })
  fastify.addHook('preClose', async () => { service.abort() }) // does not wait: Fastify answers 503 while preClose waits
  fastify.addHook('onClose', async () => { await service.close() })
}

const named = { TransientSyncError, migrationSql, errors, jsonNull }

/** The plugin function; for `require()`, which gets just this, the other exports are on it as well. */
const plugin = Object.assign(fp(hourlySync, { name: 'fastify-hourly-sync', fastify: '5.x' }), named)

export default plugin
export { plugin as fastifyHourlySync, plugin as 'module.exports', TransientSyncError, migrationSql, errors, jsonNull }
export type * from './lib/types.js'
export type { TransientSyncErrorOptions } from './lib/transient.js'
