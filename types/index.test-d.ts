/** Type tests: `tsc -p tsconfig.check.json` is what runs them. */
import Fastify, {
  type FastifyBaseLogger, type FastifyInstance, type FastifyReply, type FastifyRequest, type onRequestAsyncHookHandler, type onRequestHookHandler, type preHandlerHookHandler
} from 'fastify'
import type { Pool, QueryResult } from 'pg'
import hourlySync, {
  errors, fastifyHourlySync, jsonNull, migrationSql, TransientSyncError,
  type BackfillAnswer, type Hold, type Holder, type HourlySync, type HourlySyncOptions, type HourlySyncRegistry, type Json, type JsonInput, type NotStarted, type Outcome, type RunOnceResult,
  type RunRecord, type RunState, type SlotList, type Status, type SyncFunction, type SyncResult, type SyncRun, type Transaction, type Trigger, type TriggerAnswer, type Upsert, type UpsertError, type UpsertOptions, type UpsertResult
} from '../index.js'

/** Exactly the same type, where assignability alone would let `any` through. */
type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends (<T>() => T extends B ? 1 : 2) ? true : false
function same<A, B> (..._proof: Same<A, B> extends true ? [] : ['these types differ', A, B]): void {}

declare const app: FastifyInstance
declare const pool: Pool
declare const run: SyncRun

// --- registering
Fastify().register(hourlySync, { name: 'order-sync', sync: async () => {} })
Fastify().register(fastifyHourlySync, { name: 'order-sync', sync: () => {} })
Fastify().register(hourlySync, { name: 'order-sync', sync: async () => ({ cursor: { page: 1 }, stats: [1, 'two', null] }) })
// @ts-expect-error: `name` is required
Fastify().register(hourlySync, { sync: async () => {} })
// @ts-expect-error: `sync` is required
Fastify().register(hourlySync, { name: 'order-sync' })
// @ts-expect-error: no such option
Fastify().register(hourlySync, { name: 'order-sync', sync: async () => {}, evry: '1h' })
// @ts-expect-error: what it resolves with is no result
Fastify().register(hourlySync, { name: 'order-sync', sync: async () => 42 })

// --- routes
Fastify().register(hourlySync, { name: 'order-sync', sync: async () => {}, routes: { public: true } })
Fastify().register(hourlySync, { name: 'order-sync', sync: async () => {}, routes: { onRequest: [(_request, _reply, done) => done()], preHandler: async () => {} } })
declare const authenticate: { request: onRequestHookHandler, late: preHandlerHookHandler, soon: onRequestAsyncHookHandler, own: (request: FastifyRequest, reply: FastifyReply) => Promise<void> }
Fastify().register(hourlySync, { name: 'order-sync', sync: async () => {}, routes: { onRequest: [authenticate.request, authenticate.soon, authenticate.own], preHandler: [authenticate.late, authenticate.own] } })
Fastify().register(hourlySync, { name: 'order-sync', sync: async () => {}, routes: false })
// @ts-expect-error: no such option
Fastify().register(hourlySync, { name: 'order-sync', sync: async () => {}, routes: { open: true } })
// @ts-expect-error: a guard is a hook
Fastify().register(hourlySync, { name: 'order-sync', sync: async () => {}, routes: { onRequest: 'authenticate' } })

// --- options
const options: HourlySyncOptions = {
  name: 'order-sync',
  sync: async run => { run.log.info('hello') },
  enabled: true,
  requires: { ORDER_API_KEY: process.env.ORDER_API_KEY },
  start: 'listen',
  startupDelay: '90s',
  every: 3_600_000,
  offset: 0,
  jitter: '1m',
  catchUp: 'skip',
  firstRun: 'wait',
  overlap: '10m',
  initialSince: new Date(),
  timeout: '50m',
  abandonAfter: '5m',
  retry: { limit: 3, delay: '1m', maxDelay: '15m' },
  standby: '15s',
  heartbeat: '20s',
  closeTimeout: '5s',
  pg: 'orders',
  pool,
  lock: { connectionString: 'postgres://' },
  lockName: 'orders',
  schema: 'hourly_sync',
  migrate: false,
  history: { keepFor: '90d' },
  isTransient: error => error instanceof TypeError,
  onError: async (error, run) => { run.log.error(error) },
  redact: [/key-\d+/, 'plain'],
  routes: { prefix: '/sync', onRequest: async (request, reply) => { if (request.headers.authorization === undefined) await reply.code(401).send() }, maxAge: '3h', health: { public: true } }
}
const noRetry: HourlySyncOptions = { ...options, retry: false, initialSince: null, history: {} }
same<HourlySyncOptions['start'], 'ready' | 'listen' | undefined>()
same<HourlySyncOptions['every'], number | string | undefined>()
// @ts-expect-error: a duration is a number or a text
const wrongDuration: HourlySyncOptions = { ...options, every: new Date() }
// @ts-expect-error: a text is not a boolean
const wrongEnabled: HourlySyncOptions = { ...options, enabled: 'true' }
// @ts-expect-error: one of two
const wrongStart: HourlySyncOptions = { ...options, start: 'now' }
// @ts-expect-error: `true` says nothing that the default does not
const wrongRetry: HourlySyncOptions = { ...options, retry: true }
// @ts-expect-error: no such setting of retries
const wrongRetryName: HourlySyncOptions = { ...options, retry: { limits: 3 } }
// @ts-expect-error: a connection string belongs into an object
const wrongLock: HourlySyncOptions = { ...options, lock: 'postgres://' }
// @ts-expect-error: a name is no pool
const wrongPool: HourlySyncOptions = { ...options, pool: 'orders' }

// --- run
same<SyncRun['id'], string>()
same<SyncRun['since'], Date | null>()
same<SyncRun['until'], Date>()
same<SyncRun['slot'], Date | null>()
same<SyncRun['trigger'], 'schedule' | 'catch-up' | 'retry' | 'manual' | 'backfill'>()
same<SyncRun['attempt'], number>()
same<SyncRun['missedSlots'], number>()
same<SyncRun['cursor'], Json>()
same<SyncRun['signal'], AbortSignal>()
same<SyncRun['log'], FastifyBaseLogger>()
const answer: Promise<QueryResult<{ id: number }>> = run.query<{ id: number }>('select id from orders where id = $1', [1])
const configured = run.query({ name: 'orders', text: 'select 1' })
const committed: Promise<string> = run.transaction(async tx => {
  same<typeof tx, Transaction>()
  await tx.query('select 1')
  return 'done'
})
const unpromised: Promise<number> = run.transaction(() => 1)
const rested: Promise<void> = run.sleep(1_000)
run.progress(1)
run.progress(1, 10)
run.client.query('select 1')
// @ts-expect-error: only to be read
run.since = new Date()
// @ts-expect-error: a count is a number
run.progress('1')
// @ts-expect-error: milliseconds, not a text
run.sleep('1s')
// @ts-expect-error: a transaction is given by what it is to do
run.transaction('begin')

// --- upsert
interface Order { id: bigint, status: string | null, details: { items: number[] } | typeof jsonNull }
async function saving (orders: Order[], stream: AsyncGenerator<Order>): Promise<void> {
  await run.upsert('orders', orders, { key: ['id'] })
  same<ReturnType<Upsert>, Promise<UpsertResult>>()
  same<Pick<UpsertError, 'code' | 'row' | 'column'>, { code: string, row?: number, column?: string }>()
  same<UpsertResult, { inserted: number, updated: number, unchanged: number, stale: number }>()
  await run.upsert('public.orders', stream, { key: ['id'], index: 'orders_live_key', columns: ['id', 'status'], touch: ['updated_at'], newerBy: 'status', batch: 500 })
  await run.upsert('orders', new Map([[1, { id: 1 }]]).values(), { key: ['id'] })
  await run.transaction(async tx => { same<typeof tx.upsert, Upsert>(); await tx.upsert('orders', orders, { key: ['id'] }) })
  // @ts-expect-error: a key is required
  await run.upsert('orders', orders, {})
  // @ts-expect-error: columns, not a text
  await run.upsert('orders', orders, { key: 'id' })
  // @ts-expect-error: rows are objects
  await run.upsert('orders', [1, 2], { key: ['id'] })
  // @ts-expect-error: one row is no list of rows
  await run.upsert('orders', orders[0]!, { key: ['id'] })
  // @ts-expect-error: no such option
  await run.upsert('orders', orders, { key: ['id'], where: 'true' })
}
const upsertOptions: UpsertOptions = { key: ['id'] }
same<typeof jsonNull, { toJSON: () => null }>()
same<typeof hourlySync.jsonNull, typeof jsonNull>()

// --- result
const results: SyncResult[] = [{}, { cursor: null }, { cursor: 'page-2', stats: { saved: 3 } }, { advance: false }]
const syncs: SyncFunction[] = [async () => {}, () => {}, async () => ({ advance: false }), () => ({ cursor: [1, { two: undefined }] })]
// @ts-expect-error: leave it out instead
const wrongAdvance: SyncResult = { advance: true }
// @ts-expect-error: JSON has no dates
const wrongCursor: SyncResult = { cursor: new Date() }
// @ts-expect-error: nor functions
const wrongStats: SyncResult = { stats: { count: () => 1 } }
// @ts-expect-error: nor is one JSON by itself
const wrongFunction: SyncResult = { stats: () => 1 }
interface Stats { saved: number, pages: Page[], note?: string }
interface Page { token: string | null }
declare const counted: Stats
const described: SyncResult[] = [{ stats: counted }, { cursor: counted.pages }, { cursor: counted.pages as readonly Page[] }, { cursor: run.cursor }, { stats: { by: counted } }]
const counting: SyncFunction = async run => { await run.checkpoint({ cursor: counted }); return { stats: counted } }
Fastify().register(hourlySync, { name: 'order-sync', sync: async () => ({ cursor: counted.pages[0]!, stats: counted }) })
same<Json, RunRecord['stats']>()
const output: JsonInput = run.cursor
// @ts-expect-error: what a Map holds is not in its JSON
const wrongMap: SyncResult = { stats: new Map([['saved', 1]]) }
// @ts-expect-error: nor what a promise will be
const wrongPromise: SyncResult = { cursor: Promise.resolve('page-2') }
// @ts-expect-error: JSON has no big integers
const wrongBigint: SyncResult = { cursor: 1n }
// @ts-expect-error: no such key
const wrongKey: SyncResult = { watermark: new Date() }

// --- answers
async function answers (): Promise<void> {
  const answer = await app.triggerSync()
  same<typeof answer, TriggerAnswer>()
  if (answer.started) {
    same<typeof answer.runId, string>()
    same<typeof answer.finished, Promise<RunRecord>>()
    // @ts-expect-error: it has started
    console.log(answer.reason)
  } else {
    same<typeof answer.reason, 'running' | 'not-configured' | 'closing' | 'unavailable' | 'refused'>()
    same<typeof answer.message, string | undefined>()
    same<typeof answer.holder, Holder | undefined>()
    // @ts-expect-error: it has not started
    console.log(answer.runId)
  }
  await app.triggerSync('order-sync')
  // @ts-expect-error: a name is a text
  await app.triggerSync({ name: 'order-sync' })
  same<Awaited<ReturnType<typeof app.isSyncing>>, boolean>()
  same<typeof app.hourlySync, HourlySyncRegistry>()
  same<typeof app.hourlySync.names, string[]>()

  const sync = app.hourlySync.get('order-sync')
  same<typeof sync, HourlySync>()
  same<typeof sync.lockKey, string>()
  sync.start()
  sync.stop()
  same<Awaited<ReturnType<typeof sync.trigger>>, TriggerAnswer>()
  const backfilled = await sync.backfill()
  same<typeof backfilled, BackfillAnswer>()
  if (!backfilled.started) same<typeof backfilled.reason, 'running' | 'not-configured' | 'closing' | 'stopped' | 'unavailable' | 'refused'>()
  const once = await sync.runOnce({ force: true })
  same<typeof once, RunOnceResult>()
  same<typeof once.outcome, Outcome>()
  same<typeof once.run, RunRecord | null>()
  same<Awaited<ReturnType<typeof sync.status>>, Status>()
  same<Status['hold'], Hold | null>()
  same<Status['nextLook'], Date | null>()
  await sync.runs({ limit: 10, before: once.run?.id, state: 'failed', trigger: 'retry' })
  same<RunRecord | null, Awaited<ReturnType<HourlySync['run']>>>()
  same<SlotList, Awaited<ReturnType<HourlySync['slots']>>>()
  await sync.slots({ since: new Date(), until: new Date() })
  same<Awaited<ReturnType<typeof sync.runs>>, RunRecord[]>()
  // @ts-expect-error: a count is a number
  await sync.runs({ limit: '10' })
  // @ts-expect-error: no such option
  await sync.runOnce({ forced: true })
}
same<Outcome, RunState | NotStarted>()
same<RunRecord['trigger'], Trigger>()
same<RunRecord['startedAt'], Date>()

// --- the rest
const transient = new TransientSyncError('later', { retryAfter: '90s', cause: new Error('429') })
same<typeof transient.code, 'FST_HOURLY_SYNC_TRANSIENT'>()
const isError: Error = transient
// @ts-expect-error: a message comes first
const wrongTransient = new TransientSyncError({ retryAfter: '90s' })
same<ReturnType<typeof migrationSql>, string>()
same<typeof hourlySync.TransientSyncError, typeof TransientSyncError>()
same<typeof hourlySync.errors, typeof errors>()
const lost: string = new errors.FST_HOURLY_SYNC_LOCK_LOST('why').code

export {
  answer, answers, committed, configured, counting, described, isError, lost, noRetry, output, rested, results, saving, syncs, unpromised, upsertOptions, wrongAdvance, wrongBigint, wrongCursor, wrongDuration, wrongEnabled, wrongFunction,
  wrongKey, wrongLock, wrongMap, wrongPool, wrongPromise, wrongRetry, wrongRetryName, wrongStart, wrongStats, wrongTransient
}
