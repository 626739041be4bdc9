import { inspect } from 'node:util'
import type { ClientConfig, Pool } from 'pg'
import { duration } from './duration.js'
import { FST_HOURLY_SYNC_INVALID_OPTION } from './errors.js'
import { redact } from './failure.js'
import type { HourlySyncOptions, SyncFunction, SyncRun } from './types.js'

/** The options, checked and complete. Durations are milliseconds. */
export interface Settings {
  readonly name: string
  readonly lockName: string
  readonly sync: SyncFunction
  readonly enabled: boolean
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
  readonly isTransient: ((error: unknown) => boolean) | undefined
  readonly onError: ((error: unknown, run: SyncRun) => unknown) | undefined
}

/** What Fastify itself hands to every plugin. */
const fastifys = ['prefix', 'logLevel', 'logSerializers', 'encapsulate']

/** Every option there is. */
export const optionNames: ReadonlyArray<keyof HourlySyncOptions> = [
  'name', 'sync', 'enabled', 'requires', 'start', 'startupDelay', 'every', 'offset', 'jitter', 'catchUp', 'firstRun', 'overlap',
  'initialSince', 'maxWindow', 'timeout', 'abandonAfter', 'retry', 'standby', 'heartbeat', 'closeTimeout', 'pg', 'pool', 'lock', 'lockName',
  'schema', 'migrate', 'history', 'isTransient', 'onError'
]

const HOUR = 3_600_000

const inWords = "milliseconds or a number with a unit such as '90s', '10m' or '1h'"

/**
 * Checks the options of one sync and fills in the defaults. The caller's object is never changed.
 *
 * @param environment - where `AUTO_SYNC` and `FASTIFY_HOURLY_SYNC_LOOP` are looked up
 * @throws FST_HOURLY_SYNC_INVALID_OPTION naming the option, what was expected and what came
 */
export function parseOptions (options: HourlySyncOptions, environment: NodeJS.ProcessEnv = process.env): Settings {
  if (!isObject(options)) throw invalid('options', 'an object', options)
  refuseUnknown(options as unknown as Record<string, unknown>, optionNames, '')

  const name = key('name', options.name)
  const every = time('every', options.every, '1h', 1_000)
  const offset = time('offset', options.offset, 0)
  if (offset >= every) throw invalid('offset', `less than 'every' (${every} ms)`, options.offset)
  const jitter = time('jitter', options.jitter, 0)
  if (jitter >= every) throw invalid('jitter', `less than 'every' (${every} ms)`, options.jitter)
  const history = options.history === undefined ? {} : group('history', options.history, ['keepFor'])

  return Object.freeze({
    name,
    lockName: options.lockName === undefined ? name : key('lockName', options.lockName),
    sync: fn('sync', options.sync) as SyncFunction,
    enabled: loopOn(options.enabled, environment),
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
    timeout: time('timeout', options.timeout, '50m', 1),
    abandonAfter: time('abandonAfter', options.abandonAfter, '5m'),
    retry: retry(options.retry),
    standby: time('standby', options.standby, '15s', 100),
    heartbeat: time('heartbeat', options.heartbeat, '20s', 100, HOUR),
    closeTimeout: time('closeTimeout', options.closeTimeout, '5s', 0, HOUR),
    pg: options.pg === undefined ? undefined : text('pg', options.pg),
    pool: options.pool === undefined ? undefined : pool(options.pool),
    lock: options.lock === undefined ? undefined : Object.freeze({ ...object('lock', options.lock) }) as ClientConfig,
    schema: options.schema === undefined ? 'hourly_sync' : schema(options.schema),
    migrate: options.migrate === undefined ? true : bool('migrate', options.migrate),
    keepFor: time('history.keepFor', history.keepFor, '90d', 1_000),
    isTransient: options.isTransient === undefined ? undefined : fn('isTransient', options.isTransient) as Settings['isTransient'],
    onError: options.onError === undefined ? undefined : fn('onError', options.onError) as Settings['onError']
  })
}

function invalid (option: string, expected: string, got: unknown): Error {
  return new FST_HOURLY_SYNC_INVALID_OPTION(option, expected, shown(got))
}

/** A value as a message can show it: what is in an object may be a secret, and so may a part of a text. */
function shown (value: unknown): string {
  if (typeof value === 'string') return inspect(redact(value), { maxStringLength: 100 })
  if (isObject(value) && !(value instanceof Date)) return 'an object'
  return Array.isArray(value) ? 'an array' : inspect(value, { depth: -1 })
}

function isObject (value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function object (option: string, value: unknown): Record<string, unknown> {
  // a connection string, say, must not reach the log
  if (!isObject(value)) throw new FST_HOURLY_SYNC_INVALID_OPTION(option, 'an object', Array.isArray(value) ? 'an array' : `a value of type ${value === null ? 'null' : typeof value}`)
  return value
}

function group (option: string, value: unknown, names: string[]): Record<string, unknown> {
  const given = object(option, value)
  refuseUnknown(given, names, `${option}.`)
  return given
}

function refuseUnknown (given: Record<string, unknown>, names: readonly string[], within: string): void {
  for (const name of Object.keys(given)) {
    if (names.includes(name) || (within === '' && fastifys.includes(name))) continue
    // two letters of a name of two are all of it
    const near = names.find(candidate => distance(candidate.toLowerCase(), name.toLowerCase()) <= Math.min(2, candidate.length / 2))
    // the value may be a secret
    throw new FST_HOURLY_SYNC_INVALID_OPTION(`${within}${name}`,
      near === undefined ? `one of ${names.join(', ')}` : `spelled '${within}${near}' (did you mean that?)`, `'${name}'`)
  }
}

/** Levenshtein distance: how many letters to add, drop or change. */
function distance (a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, j) => j)
  for (let i = 1; i <= a.length; i++) {
    const next = [i]
    for (let j = 1; j <= b.length; j++) {
      next.push(Math.min(next[j - 1]! + 1, row[j]! + 1, row[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1)))
    }
    row = next
  }
  return row[b.length]!
}

function time (option: string, value: unknown, preset: string | number, least = 0, most = Infinity): number {
  const ms = duration(value === undefined ? preset : value)
  if (ms === undefined) throw invalid(option, inWords, value)
  if (ms < least) throw invalid(option, `at least ${least} ms`, value)
  if (ms > most) throw invalid(option, `at most ${most} ms`, value)
  return ms
}

function text (option: string, value: unknown): string {
  if (typeof value !== 'string' || value === '') throw invalid(option, 'a text', value)
  return value
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
  // PostgreSQL cuts longer names, and two of them would then be one
  if (Buffer.byteLength(name) > 63) throw invalid('schema', 'at most 63 bytes long', value)
  return name
}

function bool (option: string, value: unknown): boolean {
  if (typeof value !== 'boolean') throw invalid(option, 'true or false', value)
  return value
}

function fn (option: string, value: unknown): unknown {
  if (typeof value !== 'function') throw invalid(option, 'a function', value)
  return value
}

/** `undefined` is the first. */
function oneOf<T extends string> (option: string, value: unknown, choices: [T, ...T[]]): T {
  if (value === undefined) return choices[0]
  const found = choices.find(choice => choice === value)
  if (found === undefined) throw invalid(option, choices.map(choice => `'${choice}'`).join(' or '), value)
  return found
}

function loopOn (value: unknown, environment: NodeJS.ProcessEnv): boolean {
  const enabled = value === undefined ? environment.AUTO_SYNC === 'true' : bool('enabled', value)
  return enabled && environment.FASTIFY_HOURLY_SYNC_LOOP !== 'off'
}

function missing (requires: unknown): readonly string[] {
  const given = requires === undefined ? {} : object('requires', requires)
  return Object.freeze(Object.keys(given).filter(name => given[name] === undefined || given[name] === null || given[name] === ''))
}

function initialSince (value: unknown): Settings['initialSince'] {
  if (value === undefined || value === null) return null
  if (value instanceof Date && !Number.isNaN(value.getTime())) return Object.freeze({ at: value.getTime() })
  const back = duration(value)
  if (back === undefined) throw invalid('initialSince', `a valid Date, null, or ${inWords} before now`, value)
  return Object.freeze({ back })
}

function retry (value: unknown): Settings['retry'] {
  if (value === false) return Object.freeze({ limit: 0, delay: 0, maxDelay: 0 })
  const given = value === undefined ? {} : group('retry', value, ['limit', 'delay', 'maxDelay'])
  const limit = given.limit === undefined ? 3 : given.limit
  if (typeof limit !== 'number' || !Number.isInteger(limit) || limit < 0 || limit > 1_000) {
    throw invalid('retry.limit', 'a whole number from 0 to 1000', limit)
  }
  return Object.freeze({
    limit,
    delay: time('retry.delay', given.delay, '1m'),
    maxDelay: time('retry.maxDelay', given.maxDelay, '15m')
  })
}

function pool (value: unknown): Pool {
  const candidate = value as Partial<Pool> | null
  if (typeof candidate?.connect !== 'function' || typeof candidate.query !== 'function' || typeof candidate.on !== 'function') {
    throw invalid('pool', 'a pg.Pool', value)
  }
  return value as Pool
}
