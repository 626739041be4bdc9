import type { FastifyBaseLogger, FastifyInstance } from 'fastify'
import type { Pool } from 'pg'
import { isPool } from './checks.js'
import { systemClock } from './clock.js'
import { createPoolGate, type PoolGate } from './connections.js'
import {
  FST_HOURLY_SYNC_DUPLICATE, FST_HOURLY_SYNC_NAME_REQUIRED, FST_HOURLY_SYNC_NATIVE, FST_HOURLY_SYNC_NO_POOL, FST_HOURLY_SYNC_UNKNOWN
} from './errors.js'
import type { Pages } from './http/routes.js'
import type { Settings } from './options.js'
import type { Service } from './service.js'
import type { HourlySyncRegistry } from './types.js'

/** The syncs of one app, and what they share. */
export interface Registry extends HourlySyncRegistry {
  /** Where the syncs have their pages. */
  readonly pages: Pages
  /** @throws FST_HOURLY_SYNC_DUPLICATE */
  add: (service: Service) => void
  gate: (pool: Pool, log: FastifyBaseLogger) => PoolGate
}

const registry = Symbol('fastify-hourly-sync.registry')

/** The one of the app, whichever context asks: they share the server. */
export function registryOf (fastify: FastifyInstance): Registry {
  const server = fastify.server as unknown as { [registry]?: Registry }
  server[registry] ??= createRegistry()
  return server[registry]
}

function createRegistry (): Registry {
  const services = new Map<string, Service>()
  const gates = new Map<Pool, PoolGate>()
  const pages: Pages = new Map()
  const quoted = (): string => [...services.keys()].map(name => `'${name}'`).join(', ')

  return {
    pages,
    add (service) {
      for (const other of services.values()) {
        if (other.name === service.name || other.lockKey === service.lockKey) throw new FST_HOURLY_SYNC_DUPLICATE(service.name, other.name)
      }
      services.set(service.name, service)
      pages.set(service.name, undefined)
    },
    get names () { return [...services.keys()] },
    get (name) {
      if (name === undefined && services.size > 1) throw new FST_HOURLY_SYNC_NAME_REQUIRED(quoted())
      const service = name === undefined ? [...services.values()][0] : services.get(name)
      if (service === undefined) throw new FST_HOURLY_SYNC_UNKNOWN(String(name), quoted())
      return service.face
    },
    gate (pool, log) {
      const gate = gates.get(pool) ?? createPoolGate(pool, systemClock, log)
      gates.set(pool, gate)
      return gate
    }
  }
}

/**
 * The pool of a sync: the option, or what @fastify/postgres has put on the instance. Looked for when the app is ready, so that the order
 * of registration does not matter.
 *
 * @throws FST_HOURLY_SYNC_NO_POOL
 * @throws FST_HOURLY_SYNC_NATIVE
 */
export function poolOf (fastify: FastifyInstance, { name, pool, pg }: Settings): Pool {
  const decorated = (fastify as unknown as { pg?: { pool?: Pool } & Record<string, { pool?: Pool } | undefined> }).pg
  const found = pool ?? (pg === undefined ? decorated?.pool : decorated?.[pg]?.pool)
  if (!isPool(found)) {
    throw new FST_HOURLY_SYNC_NO_POOL(name, `at fastify.pg${pg === undefined ? '' : `.${pg}`}: register @fastify/postgres or hand in the option 'pool'`)
  }
  const { Client } = found as unknown as { Client?: { prototype?: object } }
  // pg-native's has no such method, and what it makes shows neither backend nor transaction
  if (Client?.prototype !== undefined && !('getStartupConf' in Client.prototype)) throw new FST_HOURLY_SYNC_NATIVE(name)
  return found
}
