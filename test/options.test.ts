import { inspect } from 'node:util'
import pg from 'pg'
import t from 'tap'
import { parseOptions, type Settings } from '../lib/options.js'
import type { HourlySyncOptions } from '../lib/types.js'

const sync = async (): Promise<void> => {}
const pool = new pg.Pool() // connects to nothing
const parse = (options: object, environment: NodeJS.ProcessEnv = {}): Settings => parseOptions({ name: 'orders', sync, ...options } as HourlySyncOptions, environment)

const MINUTE = 60_000
const HOUR = 3_600_000

t.test('without options the defaults are these', async t => {
  t.strictSame(parse({}), {
    name: 'orders',
    lockName: 'orders',
    sync,
    enabled: false,
    switchedOff: false,
    missing: [],
    start: 'ready',
    startupDelay: 90_000,
    every: HOUR,
    offset: 0,
    jitter: 0,
    catchUp: 'once',
    firstRun: 'run',
    overlap: 10 * MINUTE,
    initialSince: null,
    maxWindow: null,
    timeout: 50 * MINUTE,
    abandonAfter: 5 * MINUTE,
    retry: { limit: 3, delay: MINUTE, maxDelay: 15 * MINUTE },
    standby: 15_000,
    heartbeat: 20_000,
    closeTimeout: 5_000,
    pg: undefined,
    pool: undefined,
    lock: undefined,
    schema: 'hourly_sync',
    migrate: true,
    keepFor: 90 * 24 * HOUR,
    isTransient: undefined,
    onError: undefined,
    redact: [],
    routes: undefined
  })
})

const isTransient = (): boolean => true
const onError = (): void => {}

const good: Array<[title: string, options: object, settings: Partial<Settings>]> = [
  ['a name of one character', { name: 'a' }, { name: 'a', lockName: 'a' }],
  ['a name of a hundred characters', { name: '🚚'.repeat(100) }, { name: '🚚'.repeat(100) }],
  ['a name with spaces, dots and colons', { name: 'order sync:42.a' }, { name: 'order sync:42.a' }],
  ['a lock name of its own', { lockName: 'shared' }, { name: 'orders', lockName: 'shared' }],
  ['enabled', { enabled: true }, { enabled: true }],
  ["start: 'listen'", { start: 'listen' }, { start: 'listen' }],
  ['a number of milliseconds', { startupDelay: 0, overlap: 0, abandonAfter: 0, closeTimeout: 0 }, { startupDelay: 0, overlap: 0, abandonAfter: 0, closeTimeout: 0 }],
  ['durations in words', { every: '15m', offset: '5m', jitter: '30s', overlap: '1h' }, { every: 15 * MINUTE, offset: 5 * MINUTE, jitter: 30_000, overlap: HOUR }],
  ['the shortest slot', { every: 1_000, offset: 999, jitter: 999 }, { every: 1_000, offset: 999, jitter: 999 }],
  ["catchUp: 'skip'", { catchUp: 'skip' }, { catchUp: 'skip' }],
  ["firstRun: 'wait'", { firstRun: 'wait' }, { firstRun: 'wait' }],
  ['initialSince as a date', { initialSince: new Date(1_000) }, { initialSince: { at: 1_000 } }],
  ['initialSince before the epoch', { initialSince: new Date(-1_000) }, { initialSince: { at: -1_000 } }],
  ['initialSince as a duration', { initialSince: '30d' }, { initialSince: { back: 30 * 24 * HOUR } }],
  ['initialSince of null', { initialSince: null }, { initialSince: null }],
  ['retry: false', { retry: false }, { retry: { limit: 0, delay: 0, maxDelay: 0 } }],
  ['a part of retry', { retry: { limit: 0 } }, { retry: { limit: 0, delay: MINUTE, maxDelay: 15 * MINUTE } }],
  ['all of retry', { retry: { limit: 1_000, delay: '1s', maxDelay: '2s' } }, { retry: { limit: 1_000, delay: 1_000, maxDelay: 2_000 } }],
  ['a delay that does not grow', { retry: { delay: '1s', maxDelay: '1s' } }, { retry: { limit: 3, delay: 1_000, maxDelay: 1_000 } }],
  ['a delay longer than the longest one otherwise', { retry: { delay: '20m' } }, { retry: { limit: 3, delay: 20 * MINUTE, maxDelay: 20 * MINUTE } }],
  ['a longest delay shorter than the first one otherwise', { retry: { maxDelay: '10s' } }, { retry: { limit: 3, delay: 10_000, maxDelay: 10_000 } }],
  ['what is required, with and without a prototype', { requires: Object.assign(Object.create(null), { a: 1 }) }, { missing: [] }],
  ['the shortest heartbeat and standby', { heartbeat: 100, standby: 100 }, { heartbeat: 100, standby: 100 }],
  ['the name of an instance', { pg: 'reports' }, { pg: 'reports' }],
  ['a pool', { pool }, { pool }],
  ['a lock connection', { lock: { host: 'db', port: 5433 } }, { lock: { host: 'db', port: 5433 } }],
  ['a lock connection by its socket, with what pg and its pool know', { lock: { stream: onError, password: async () => 'x', ssl: { ca: 'x' }, keepAlive: true, statement_timeout: 0, types: {}, max: 1, sslmode: 'require' } }, {}],
  ['a lock connection on another port, with the rest from the environment', { lock: { port: 5433, host: undefined } }, { lock: { port: 5433 } }],
  ['a schema', { schema: 'we"ird Schema' }, { schema: 'we"ird Schema' }],
  ['a schema of 63 bytes', { schema: 's'.repeat(63) }, { schema: 's'.repeat(63) }],
  ['migrate: false', { migrate: false }, { migrate: false }],
  ['a retention', { history: { keepFor: '7d' } }, { keepFor: 7 * 24 * HOUR }],
  ['a history without a retention', { history: {} }, { keepFor: 90 * 24 * HOUR }],
  ['functions', { isTransient, onError }, { isTransient, onError }],
  ['patterns and texts to redact', { redact: [/key-\d+/y, /x/gi, 'a.b*c'] }, { redact: [/key-\d+/g, /x/gi, /a\.b\*c/g] }],
  ['routes that are off', { routes: false }, { routes: undefined }],
  ['routes that are public', { routes: { public: true } }, { routes: { prefix: undefined, onRequest: undefined, preHandler: undefined, dashboard: true, maxAge: 2 * HOUR + 50 * MINUTE, health: { public: false } } }],
  ['routes with a guard, and all the rest', { routes: { onRequest: onError, prefix: '/sync/', dashboard: false, maxAge: '3h', health: { public: true } } },
    { routes: { prefix: '/sync', onRequest: onError, preHandler: undefined, dashboard: false, maxAge: 3 * HOUR, health: { public: true } } }],
  ['a health of its own that is as it was', { routes: { preHandler: [onError], health: {} } }, { routes: { prefix: undefined, onRequest: undefined, preHandler: [onError], dashboard: true, maxAge: 2 * HOUR + 50 * MINUTE, health: { public: false } } }],
  ['undefined for everything that is not required', Object.fromEntries(['enabled', 'requires', 'start', 'startupDelay', 'every', 'offset', 'jitter', 'catchUp', 'firstRun', 'overlap', 'initialSince',
    'timeout', 'abandonAfter', 'retry', 'standby', 'heartbeat', 'closeTimeout', 'pg', 'pool', 'lock', 'lockName', 'schema', 'migrate', 'history', 'isTransient', 'onError', 'redact', 'routes'].map(name => [name, undefined])), parse({})],
  ['what Fastify itself hands to plugins', { prefix: '/a', logLevel: 'warn', logSerializers: {}, encapsulate: false }, parse({})]
]
for (const [title, options, settings] of good) t.match(parse(options), settings, `${title} is taken`)

const durations = ['startupDelay', 'every', 'offset', 'jitter', 'overlap', 'initialSince', 'timeout', 'abandonAfter', 'standby', 'heartbeat', 'closeTimeout']
const notDurations: unknown[] = ['1M', '1h30m', '-1s', -1, '', '60', 1.5, NaN, Infinity, 'soon', true, {}, [], 5n]
const texts = ['name', 'lockName', 'schema', 'pg']
const choices = ['start', 'catchUp', 'firstRun']
const functions = ['sync', 'isTransient', 'onError']
const flags = ['enabled', 'migrate']
const objects = ['requires', 'lock', 'history', 'retry', 'routes']

const bad: Array<[option: string, value: unknown]> = [
  ...durations.flatMap(option => notDurations.map((value): [string, unknown] => [option, value])),
  ...['startupDelay', 'every', 'timeout', 'heartbeat'].map((option): [string, unknown] => [option, null]),
  ...['retry.delay', 'retry.maxDelay', 'history.keepFor'].flatMap(option => notDurations.map((value): [string, unknown] => [option, value])),
  ['initialSince', new Date(NaN)],
  ['every', 999],
  ['every', 0],
  ['offset', HOUR],
  ['offset', '2h'],
  ['jitter', HOUR],
  ['timeout', 0],
  ['standby', 99],
  ['heartbeat', 99],
  ['heartbeat', '2h'],
  ['closeTimeout', '2h'],
  ['history.keepFor', 999],
  ...texts.flatMap(option => ['', null, 7, {}, [], true].map((value): [string, unknown] => [option, value])),
  ...['name', 'lockName', 'schema'].flatMap(option => ['x'.repeat(101), 'a\nb', 'a\0', '\x7f', '\ud83d', '\x85'].map((value): [string, unknown] => [option, value])),
  ['schema', 's'.repeat(64)],
  ['schema', '주'.repeat(22)],
  ['schema', 'pg_sync'],
  ...choices.flatMap(option => ['', 'RUN', 'never', null, 0, false, {}].map((value): [string, unknown] => [option, value])),
  ...functions.flatMap(option => [null, 'x', {}, true, function * () {}, async function * () {}].map((value): [string, unknown] => [option, value])),
  ['name', undefined],
  ['sync', undefined],
  ...flags.flatMap(option => ['true', 'false', 1, 0, null, {}].map((value): [string, unknown] => [option, value])),
  ...objects.flatMap(option => [null, 'x', 7, [], new Map([['limit', 0]]), new Date(), Object.create({ limit: 0 })].map((value): [string, unknown] => [option, value])),
  ['retry', true],
  ['requires', false],
  ...[-1, 1.5, NaN, Infinity, '3', null, 1_001].map((value): [string, unknown] => ['retry.limit', value]),
  ...[new pg.Client(), {}, { connectionString: undefined }, { host: null }, { user: 'app', ssl: true }].map((value): [string, unknown] => ['lock', value]),
  ...['', 7, null].map((value): [string, unknown] => ['lock.connectionString', value]),
  ...[null, 'x', 7, {}, [''], [/x*/], [/(?:)/y], [7], [null]].map((value): [string, unknown] => ['redact', value]),
  ...[null, 'x', 7, {}, { connectionString: 'x' }, { connect () {} }, { connect () {}, query () {} }, { connect () {}, query () {}, on () {} }, new pg.Client()].map((value): [string, unknown] => ['pool', value])
]
for (const [option, value] of bad) {
  const [outer, inner] = option.split('.') as [string, string?]
  t.throws(() => parse({ [outer]: inner === undefined ? value : { [inner]: value } }), { code: 'FST_HOURLY_SYNC_INVALID_OPTION', message: new RegExp(`^option '${option}' should be `) },
    `${option} of ${inspect(value).slice(0, 60)} is refused by name`)
}

t.test('a first delay above the longest is refused', async t => {
  t.throws(() => parse({ retry: { delay: '20m', maxDelay: '15m' } }), { code: 'FST_HOURLY_SYNC_INVALID_OPTION', message: "option 'retry.delay' should be at most 'maxDelay' (900000 ms), instead got '20m'" })
})

t.test('options that are no object are refused', async t => {
  for (const options of [undefined, null, 'orders', 7, []]) t.throws(() => parseOptions(options as unknown as HourlySyncOptions, {}), { code: 'FST_HOURLY_SYNC_INVALID_OPTION', message: /^option 'options' should be an object/ }, inspect(options))
})

t.test('a message says what was expected and what came', async t => {
  t.throws(() => parse({ every: '1h30m' }), { message: "option 'every' should be milliseconds or a number with a unit such as '90s', '10m' or '1h', instead got '1h30m'" })
  t.throws(() => parse({ every: 500 }), { message: "option 'every' should be at least 1000 ms, instead got 500" })
  t.throws(() => parse({ every: '10s', offset: '10s' }), { message: "option 'offset' should be less than 'every' (10000 ms), instead got '10s'" })
  t.throws(() => parse({ schema: 'pg_sync' }), { message: "option 'schema' should be a name that does not begin with 'pg_', which PostgreSQL keeps for itself, instead got 'pg_sync'" })
  t.throws(() => parse({ start: 'boot' }), { message: "option 'start' should be 'ready' or 'listen', instead got 'boot'" })
  t.throws(() => parse({ enabled: 'true' }), { message: "option 'enabled' should be true or false, instead got 'true'" })
})

t.test('an unknown option', async t => {
  const near: Array<[given: string, meant: string]> = [
    ['nmae', 'name'], ['interval', ''], ['evry', 'every'], ['overlapp', 'overlap'], ['timeOut', 'timeout'], ['lockname', 'lockName'], ['onerror', 'onError'], ['startUpDelay', 'startupDelay'],
    ['catchup', 'catchUp'], ['require', 'requires'], ['heartBeat', 'heartbeat'], ['retrys', 'retry'], ['retries', ''], ['pools', 'pool'], ['locks', 'lock'], ['schemas', 'schema'], ['histroy', 'history'], ['cron', ''], ['x', ''], ['id', '']
  ]
  for (const [given, meant] of near) {
    t.throws(() => parse({ [given]: 'hunter2' }), {
      code: 'FST_HOURLY_SYNC_INVALID_OPTION',
      message: meant === '' ? new RegExp(`^option '${given}' should be one of name, sync, `) : new RegExp(`^option '${given}' should be spelled '${meant}'`)
    }, meant === '' ? `'${given}' is refused with the list of those there are` : `'${given}' is refused with '${meant}' as the suggestion`)
  }
  t.throws(() => parse({ retry: { limits: 3 } }), { message: /^option 'retry\.limits' should be spelled 'retry\.limit'/ }, 'inside retry is refused as well')
  t.throws(() => parse({ retry: { prefix: 3 } }), { message: /^option 'retry\.prefix' should be one of limit, delay, maxDelay/ }, 'what Fastify hands to plugins is unknown inside retry')
  t.throws(() => parse({ history: { keep: '9d' } }), { message: /^option 'history\.keep' should be one of keepFor/ }, 'inside history is refused as well')
  for (const [given, meant] of [['conectionString', 'connectionString'], ['connectionstring', 'connectionString'], ['hosts', 'host'], ['passwd', 'password']]) {
    t.throws(() => parse({ lock: { port: 1, [given!]: 'hunter2' } }), { message: `option 'lock.${given}' should be spelled 'lock.${meant}' (did you mean that?), instead got '${given}'` }, `so is ${given} inside lock`)
  }
  t.throws(() => parse({ evry: undefined }), { code: 'FST_HOURLY_SYNC_INVALID_OPTION' }, 'is refused even when it is undefined')
})

t.test('what may be a secret is in no message', async t => {
  const url = 'postgres://app:hunter2@db/orders'
  const secrets: object[] = [
    { pool: url }, { pool: { connectionString: url } }, { pool: { password: 'hunter2' } }, { lock: url }, { lock: [url] }, { pg: { connectionString: url } }, { pg: [url] },
    { requires: 'hunter2' }, { requires: ['hunter2'] }, { connectionString: url }, { apiKey: 'hunter2' }, { retry: url }, { history: url }, { name: { password: 'hunter2' } }, { every: { secret: 'hunter2' } },
    { every: url }, { enabled: { password: 'hunter2' } }, { sync: url }, { schema: `${url}${'x'.repeat(100)}` }, { start: url }, { onError: { dsn: 'hunter2' } }, { isTransient: ['hunter2'] }
  ]
  for (const options of secrets) {
    try {
      parse(options)
      t.fail(`${inspect(options)} should be refused`)
    } catch (error) {
      t.match(error, { code: 'FST_HOURLY_SYNC_INVALID_OPTION' })
      t.notMatch(inspect(error, { depth: 9, showHidden: true }).replace(/^ +at .*/gm, ''), 'hunter2', inspect(options))
    }
  }
})

t.test('requires', async t => {
  t.strictSame(parse({ requires: { A: 'x', B: 0, C: false, D: NaN, E: {} } }).missing, [], 'any value but undefined, null and the empty text will do')
  t.strictSame(parse({ requires: { A: undefined, B: 'x', C: null, D: '' } }).missing, ['A', 'C', 'D'], 'those that are missing are named')
  t.notMatch(inspect(parse({ requires: { A: 'hunter2', B: '' } }), { depth: 9 }), 'hunter2', 'values are not kept')
})

t.test('the environment', async t => {
  const table: Array<[enabled: boolean | undefined, environment: NodeJS.ProcessEnv, on: boolean]> = [
    [undefined, {}, false],
    [undefined, { AUTO_SYNC: 'true' }, true],
    [undefined, { AUTO_SYNC: 'TRUE' }, false],
    [undefined, { AUTO_SYNC: '1' }, false],
    [undefined, { AUTO_SYNC: 'false' }, false],
    [true, {}, true],
    [true, { AUTO_SYNC: 'false' }, true],
    [false, { AUTO_SYNC: 'true' }, false],
    [true, { FASTIFY_HOURLY_SYNC_LOOP: 'off' }, false],
    [undefined, { AUTO_SYNC: 'true', FASTIFY_HOURLY_SYNC_LOOP: 'off' }, false],
    [true, { FASTIFY_HOURLY_SYNC_LOOP: 'on' }, true],
    [false, { FASTIFY_HOURLY_SYNC_LOOP: 'on' }, false],
    [true, { FASTIFY_HOURLY_SYNC_LOOP: '' }, true]
  ]
  for (const [enabled, environment, on] of table) t.equal(parse({ enabled }, environment).enabled, on, `enabled: ${enabled} with ${JSON.stringify(environment)} is ${on}`)
  for (const enabled of [true, false]) t.equal(parse({ enabled }, { FASTIFY_HOURLY_SYNC_LOOP: 'off' }).switchedOff, enabled, `enabled: ${enabled} is ${enabled ? '' : 'not '}what it has switched off`)
  t.equal(parseOptions({ name: 'orders', sync }).enabled, process.env.AUTO_SYNC === 'true', 'is that of the process unless given')
})

/** Freezes an object and what is in it. */
function freeze<T> (value: T): T {
  if (typeof value === 'object' && value !== null && !(value instanceof pg.Pool) && !(value instanceof Date)) Object.values(Object.freeze(value)).forEach(freeze)
  return value
}

/** Paths of objects in the settings that can be changed. */
function loose (value: unknown, path = 'settings'): string[] {
  if (typeof value !== 'object' || value === null || value instanceof pg.Pool) return []
  return [...(Object.isFrozen(value) ? [] : [path]), ...Object.entries(value).flatMap(([name, inner]) => loose(inner, `${path}.${name}`))]
}

const full = { requires: { A: '' }, retry: { limit: 1 }, history: { keepFor: '1d' }, lock: { host: 'db' }, initialSince: new Date(0), pool }

t.test('the caller\'s object is never changed, and may be frozen', async t => {
  const options = { name: 'orders', sync, ...structuredClone({ ...full, pool: undefined }), pool }
  parseOptions(options)
  t.strictSame(options, { name: 'orders', sync, ...full })
  t.ok(parse(freeze({ ...full })))
})

t.test('a change to the caller\'s object afterwards changes nothing', async t => {
  const options = { ...full, retry: { limit: 1 }, requires: { A: '' }, lock: { host: 'db' }, initialSince: new Date(0) }
  const settings = parse(options)
  options.retry.limit = 9
  options.requires.A = 'x'
  options.lock.host = 'other'
  options.initialSince.setTime(9)
  t.match(settings, { retry: { limit: 1 }, missing: ['A'], lock: { host: 'db' }, initialSince: { at: 0 } })
})

t.test('the settings are frozen through and through', async t => {
  for (const options of [{}, full, { retry: false }, { initialSince: '1h' }]) t.strictSame(loose(parse(options)), [])
})
