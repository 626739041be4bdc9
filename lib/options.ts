import type { ClientConfig, Pool } from 'pg'
import { bool, date, fn, group, inWords, invalid, isObject, isPool, millisecondsOf, object, oneOf, refuseUnknown, text, time } from './checks.js'
import { duration } from './duration.js'
import { parseRoutes, type RouteSettings } from './http/options.js'
import { lockConfig } from './lock-config.js'
import { EARLIEST } from './sql.js'
import type { HourlySyncOptions, SyncFunction, SyncRun } from './types.js'

/** The options, checked and complete. Durations are milliseconds. */
export interface Settings {
  readonly name: string
  readonly lockName: string
  readonly sync: SyncFunction
  readonly enabled: boolean
  /** Whether it would be enabled, but for the environment. */
  readonly switchedOff: boolean
  readonly missing: readonly string[]
  readonly start: 'ready' | 'listen'
  readonly startupDelay: number
  readonly every: number
  readonly offset: number
  readonly jitter: number
  readonly catchUp: 'once' | 'skip'
  readonly firstRun: 'run' | 'wait'
  readonly overlap: number
  /** An instant in epoch milliseconds, or milliseconds before now. */
  readonly initialSince: Readonly<{ at: number } | { back: number }> | null
  readonly maxWindow: number | null
  readonly timeout: number
  readonly abandonAfter: number
  readonly retry: Readonly<{ limit: number, delay: number, maxDelay: number }>
  readonly standby: number
  readonly heartbeat: number
  readonly closeTimeout: number
  readonly pg: string | undefined
  readonly pool: Pool | undefined
  readonly lock: ClientConfig | undefined
  readonly schema: string
  readonly migrate: boolean
  readonly keepFor: number
  /** Global, and what they match is never nothing. */
  readonly redact: readonly RegExp[]
  readonly routes: RouteSettings | undefined
  readonly isTransient: ((error: unknown) => boolean) | undefined
  readonly onError: ((error: unknown, run: SyncRun) => unknown) | undefined
}

/** Every option there is. */
export const optionNames: ReadonlyArray<keyof HourlySyncOptions> = [
  'name', 'sync', 'enabled', 'requires', 'start', 'startupDelay', 'every', 'offset', 'jitter', 'catchUp', 'firstRun', 'overlap',
  'initialSince', 'maxWindow', 'timeout', 'abandonAfter', 'retry', 'standby', 'heartbeat', 'closeTimeout', 'pg', 'pool', 'lock', 'lockName',
  'schema', 'migrate', 'history', 'isTransient', 'onError', 'redact', 'routes'
]

/** What Fastify itself hands to every plugin. */
const fastifys = ['prefix', 'logLevel', 'logSerializers', 'encapsulate']

const HOUR = 3_600_000
const MAX_DELAY = HOUR / 4

/**
 * Checks the options of one sync and fills in the defaults. The caller's object is never changed.
 *
 * @param environment - where `AUTO_SYNC` and `FASTIFY_HOURLY_SYNC_LOOP` are looked up
 * @throws FST_HOURLY_SYNC_INVALID_OPTION naming the option, what was expected and what came
 */
export function parseOptions (options: HourlySyncOptions, environment: NodeJS.ProcessEnv = process.env): Settings {
  if (!isObject(options)) throw invalid('options', 'an object', options)
  refuseUnknown(Object.fromEntries(Object.entries(options).filter(([name]) => !fastifys.includes(name))), optionNames, '')

  const name = key('name', options.name)
  const enabled = options.enabled === undefined ? environment.AUTO_SYNC === 'true' : bool('enabled', options.enabled)
  const off = environment.FASTIFY_HOURLY_SYNC_LOOP === 'off'
  const every = time('every', options.every, '1h', 1_000)
  const offset = time('offset', options.offset, 0)
  if (offset >= every) throw invalid('offset', `less than 'every' (${every} ms)`, options.offset)
  const jitter = time('jitter', options.jitter, 0)
  if (jitter >= every) throw invalid('jitter', `less than 'every' (${every} ms)`, options.jitter)
  const timeout = time('timeout', options.timeout, '50m', 1)
  const history = options.history === undefined ? {} : group('history', options.history, ['keepFor'])

  return Object.freeze({
    name,
    lockName: options.lockName === undefined ? name : key('lockName', options.lockName),
    sync: fn('sync', options.sync) as SyncFunction,
    enabled: enabled && !off,
    switchedOff: enabled && off,
    missing: missing(options.requires),
    start: oneOf('start', options.start, ['ready', 'listen']),
    startupDelay: time('startupDelay', options.startupDelay, '90s'),
    every,
    offset,
    jitter,
    catchUp: oneOf('catchUp', options.catchUp, ['once', 'skip']),
    firstRun: oneOf('firstRun', options.firstRun, ['run', 'wait']),
    overlap: time('overlap', options.overlap, '10m'),
    initialSince: initialSince(options.initialSince),
    maxWindow: options.maxWindow === undefined ? null : time('maxWindow', options.maxWindow, 0, 1_000),
    timeout,
    abandonAfter: time('abandonAfter', options.abandonAfter, '5m'),
    retry: retry(options.retry),
    standby: time('standby', options.standby, '15s', 100),
    heartbeat: time('heartbeat', options.heartbeat, '20s', 100, HOUR),
    closeTimeout: time('closeTimeout', options.closeTimeout, '5s', 0, HOUR),
    pg: options.pg === undefined ? undefined : text('pg', options.pg),
    pool: options.pool === undefined ? undefined : pool(options.pool),
    lock: options.lock === undefined ? undefined : lockConfig(options.lock),
    schema: options.schema === undefined ? 'hourly_sync' : schema(options.schema),
    migrate: options.migrate === undefined ? true : bool('migrate', options.migrate),
    keepFor: time('history.keepFor', history.keepFor, '90d', 1_000),
    isTransient: options.isTransient === undefined ? undefined : fn('isTransient', options.isTransient) as Settings['isTransient'],
    onError: options.onError === undefined ? undefined : fn('onError', options.onError) as Settings['onError'],
    redact: patterns(options.redact),
    routes: parseRoutes(options.routes, { name, every, timeout })
  })
}

function key (option: string, value: unknown): string {
  // \p{Cs}: half a surrogate pair has no UTF-8
  if (typeof value !== 'string' || [...value].length < 1 || [...value].length > 100 || /[\p{Cc}\p{Cs}]/u.test(value)) {
    throw invalid(option, 'a text of 1 to 100 characters without control characters', value)
  }
  return value
}

function schema (value: unknown): string {
  const name = key('schema', value)
  if (name.startsWith('pg_')) throw invalid('schema', "a name that does not begin with 'pg_', which PostgreSQL keeps for itself", value)
  // PostgreSQL cuts longer names, and two of them would then be one
  if (Buffer.byteLength(name) > 63) throw invalid('schema', 'at most 63 bytes long', value)
  return name
}

function missing (requires: unknown): readonly string[] {
  const given = requires === undefined ? {} : object('requires', requires)
  return Object.freeze(Object.keys(given).filter(name => given[name] === undefined || given[name] === null || given[name] === ''))
}

function initialSince (value: unknown): Settings['initialSince'] {
  if (value === undefined || value === null) return null
  if (!Number.isNaN(millisecondsOf(value))) return Object.freeze({ at: date('initialSince', value) })
  const back = duration(value)
  if (back === undefined) throw invalid('initialSince', `a valid Date, null, or ${inWords} before now`, value)
  if (back > -EARLIEST) throw invalid('initialSince', `at most ${-EARLIEST} ms before now`, value)
  return Object.freeze({ back })
}

function retry (value: unknown): Settings['retry'] {
  if (value === false) return Object.freeze({ limit: 0, delay: 0, maxDelay: 0 })
  const given = value === undefined ? {} : group('retry', value, ['limit', 'delay', 'maxDelay'])
  const limit = given.limit === undefined ? 3 : given.limit
  if (typeof limit !== 'number' || !Number.isInteger(limit) || limit < 0 || limit > 1_000) {
    throw invalid('retry.limit', 'a whole number from 0 to 1000', limit)
  }
  // one that is given alone takes the other's default with it
  const least = time('retry.delay', given.delay, '1m')
  const maxDelay = given.maxDelay === undefined ? Math.max(least, MAX_DELAY) : time('retry.maxDelay', given.maxDelay, 0)
  const delay = given.delay === undefined ? Math.min(least, maxDelay) : least
  if (delay > maxDelay) throw invalid('retry.delay', `at most 'maxDelay' (${maxDelay} ms)`, given.delay)
  return Object.freeze({ limit, delay, maxDelay })
}

/** A text is taken as it stands. */
function patterns (value: unknown): readonly RegExp[] {
  if (value === undefined) return Object.freeze([])
  if (!Array.isArray(value)) throw invalid('redact', 'an array of RegExps and texts', value)
  return Object.freeze(value.map((entry: unknown) => {
    if (typeof entry === 'string' && entry !== '') return new RegExp(entry.replaceAll(/[\\^$.*+?()[\]{}|]/g, '\\$&'), 'g')
    if (entry instanceof RegExp && !new RegExp(entry.source, entry.flags.replace(/[gy]/g, '')).test('')) {
      return new RegExp(entry.source, `${entry.flags.replace(/[gy]/g, '')}g`)
    }
    throw invalid('redact', 'an array of RegExps and texts that match something', typeof entry === 'string' ? 'an empty text' : entry)
  }))
}

function pool (value: unknown): Pool {
  if (!isPool(value)) throw invalid('pool', 'a pg.Pool', value)
  return value
}
