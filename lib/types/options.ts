import type { FastifyInstance, FastifyReply, FastifyRequest, HookHandlerDoneFunction } from 'fastify'
import type { ClientConfig, Pool } from 'pg'
import type { Duration } from './words.js'
import type { SyncFunction, SyncRun } from './run.js'

/** What `fastify.register(hourlySync, options)` takes. The README's table gives defaults. */
export interface HourlySyncOptions {
  /** Key of lock and history. 1 to 100 characters, no control characters. */
  name: string
  sync: SyncFunction
  /** Whether the loop starts. */
  enabled?: boolean
  /** Configuration the sync needs: with an `undefined`, `null` or `''` among the values the loop stays off. */
  requires?: Record<string, unknown>
  /** The hook that starts the loop. */
  start?: 'ready' | 'listen'
  startupDelay?: Duration
  every?: Duration
  offset?: Duration
  jitter?: Duration
  catchUp?: 'once' | 'skip'
  firstRun?: 'run' | 'wait'
  overlap?: Duration
  /** Longest window handed to `sync`: a longer gap is served in slices, each a run of its own. */
  maxWindow?: Duration
  initialSince?: Date | Duration | null
  /** Longest run: then `run.signal` aborts. */
  timeout?: Duration
  /** How much longer the lock waits for a sync that ignores its signal. */
  abandonAfter?: Duration
  retry?: false | { limit?: number, delay?: Duration, maxDelay?: Duration }
  /** How often to look again while another process holds the lock of a due slot. */
  standby?: Duration
  /** How often a run proves that its session still owns the lock. */
  heartbeat?: Duration
  closeTimeout?: Duration
  /** Name of an @fastify/postgres instance. */
  pg?: string
  pool?: Pool
  /** A direct connection to the same database for the lock session alone, where the pool goes through a transaction pooler. Has to say where it is. */
  lock?: ClientConfig
  lockName?: string
  schema?: string
  migrate?: boolean
  history?: { keepFor?: Duration }
  isTransient?: (error: unknown) => boolean
  onError?: (error: unknown, run: SyncRun) => void | Promise<void>
  /** Further patterns that are taken out of error text; a text is taken as it stands. */
  redact?: ReadonlyArray<RegExp | string>
  /** HTTP routes and the dashboard; none unless given. */
  routes?: false | RouteOptions
}

/** A hook that lets a request pass, answers it, or throws: Fastify's own, in either style. */
export type GuardHook = (this: FastifyInstance, request: FastifyRequest, reply: FastifyReply, done: HookHandlerDoneFunction) => unknown
export type Guard = GuardHook | GuardHook[]

/** Routes of one sync. They are guarded by a hook, unless `public` says that they need not be. */
export interface RouteOptions {
  /** Where they are, below the prefix of the context that registers the plugin. */
  prefix?: string
  /** Guards every route: page, script, style and events alike. */
  onRequest?: Guard
  /** The same, for a guard that wants the body parsed. */
  preHandler?: Guard
  /** Whether they may be registered without a guard. */
  public?: boolean
  /** Whether there is a page. */
  dashboard?: boolean
  /** Age of the last success from which on `GET /health` says no. */
  maxAge?: Duration
  health?: { /** Exempts `GET /health` alone from the guard; it then says no more than `{ ok }`. */ public?: boolean }
}
