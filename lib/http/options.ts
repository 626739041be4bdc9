import { bool, group, invalid, isCallable, text, time } from '../checks.js'
import { FST_HOURLY_SYNC_ROUTES_UNGUARDED } from '../errors.js'
import type { Guard } from '../types.js'

/** The option `routes`, checked and complete. */
export interface RouteSettings {
  /** A pattern of the router; `undefined`: made of the name. */
  readonly prefix: string | undefined
  readonly onRequest: Guard | undefined
  readonly preHandler: Guard | undefined
  readonly dashboard: boolean
  /** Milliseconds. */
  readonly maxAge: number
  readonly health: Readonly<{ public: boolean }>
}

/**
 * @throws FST_HOURLY_SYNC_INVALID_OPTION
 * @throws FST_HOURLY_SYNC_ROUTES_UNGUARDED when there is neither a guard nor the word that none is wanted
 */
export function parseRoutes (value: unknown, { name, every, timeout }: { name: string, every: number, timeout: number }): RouteSettings | undefined {
  if (value === undefined || value === false) return undefined
  const given = group('routes', value, ['prefix', 'onRequest', 'preHandler', 'public', 'dashboard', 'maxAge', 'health'])
  const health = given.health === undefined ? {} : group('routes.health', given.health, ['public'])
  const onRequest = guard('routes.onRequest', given.onRequest)
  const preHandler = guard('routes.preHandler', given.preHandler)
  const isPublic = given.public === undefined ? false : bool('routes.public', given.public)
  const settings = Object.freeze({
    prefix: given.prefix === undefined ? undefined : prefix(given.prefix),
    onRequest,
    preHandler,
    dashboard: given.dashboard === undefined ? true : bool('routes.dashboard', given.dashboard),
    maxAge: time('routes.maxAge', given.maxAge, 2 * every + timeout, 1),
    health: Object.freeze({ public: health.public === undefined ? false : bool('routes.health.public', health.public) })
  })
  if (onRequest === undefined && preHandler === undefined && !isPublic) throw new FST_HOURLY_SYNC_ROUTES_UNGUARDED(name)
  return settings
}

function prefix (value: unknown): string {
  const given = text('routes.prefix', value)
  if (!given.startsWith('/') || /[?#\s]/.test(given)) throw invalid('routes.prefix', "a path that begins with '/'", value)
  return given.replace(/\/+$/, '')
}

/** An empty list guards nothing, and is refused. */
function guard (option: string, value: unknown): Guard | undefined {
  if (value === undefined) return undefined
  const hooks = Array.isArray(value) ? value : [value]
  if (hooks.length === 0 || !hooks.every(isCallable)) throw invalid(option, 'a hook of Fastify, or an array of them', value)
  return value as Guard
}
