import { AsyncLocalStorage } from 'node:async_hooks'
import pg from 'pg'
import t from 'tap'
import { systemClock } from '../lib/clock.js'
import { createDirectSource, createPoolGate, type Lease } from '../lib/connections.js'
import { FST_HOURLY_SYNC_LOCK_LOST } from '../lib/errors.js'
import { createFacade } from '../lib/facade.js'
import { checked, type Lent } from '../lib/lend.js'
import { lockHalves, lockKey } from '../lib/lock-key.js'
import { parseOptions } from '../lib/options.js'
import { createService, type Service } from '../lib/service.js'
import { createSession, type Session } from '../lib/session.js'
import { ours, statements } from '../lib/sql.js'
import type { HourlySyncOptions, SyncRun } from '../lib/types.js'
import { createLog, type Line } from './helpers/log.js'
import { createManualClock, type ManualClock } from './helpers/manual-clock.js'
import { startPostgres } from './helpers/postgres.js'
import { startProxy } from './helpers/proxy.js'
import { gate, until } from './helpers/until.js'

t.setTimeout(180_000) // for the slowest machine, not for this one
const server = await startPostgres(t)
const database = await server.database()
await server.query('create table note (id int primary key, text text)', [], database)

type Scope = Pick<typeof t, 'teardown' | 'name'>
type Asserting = Pick<typeof t, 'rejects' | 'equal' | 'notOk'>
const texts = statements('hourly_sync')

/** Waits that a test must not wait for. */
const turn = async (): Promise<void> => await new Promise(resolve => setImmediate(resolve))

/** Rejections that nobody handled, and warnings, of the whole file: there is to be none. */
const unhandled: unknown[] = []
process.on('unhandledRejection', reason => { unhandled.push(reason) })
const warnings: string[] = []
process.on('warning', warning => { warnings.push(warning.message) })

interface Held {
  session: Session
  /** What a run is given of it. */
  host: Lent
  lease: Lease
  pool: pg.Pool
  backend: number
  key: bigint
  /** Every text that reached the driver. */
  sent: string[]
  /** The most statements the driver has had at once. */
  most: () => number
  /** How often another session was asked who holds the lock. */
  questions: () => number
  /** What such a question waits for. */
  pause: { until?: Promise<void> }
  lost: Error[]
}

/** A session that holds the lock named after the test. */
async function hold (t: Scope, clock: ManualClock | typeof systemClock = systemClock, port = server.port, listen = true): Promise<Held> {
  const pool = new pg.Pool({ host: '127.0.0.1', port, user: 'postgres', password: 'postgres', database, max: 2 })
  const { log } = createLog()
  const lease = await createPoolGate(pool, clock, log).checkout({ order: 0, hurry: false, signal: new AbortController().signal })
  const { client } = lease
  const key = lockKey(t.name)
  const { classid, objid } = lockHalves(key)
  const { rows: [row] } = await client.query<{ backend: number, locked: boolean }>(ours('select pg_backend_pid() as backend, pg_try_advisory_lock($1::bigint) as locked', [key.toString()]))
  if (!row!.locked) throw new Error('the lock is not free')

  const sent: string[] = []
  let under = 0
  let most = 0
  const { query } = client
  client.query = ((...args: unknown[]) => {
    sent.push(typeof args[0] === 'string' ? args[0] : (args[0] as { text: string }).text)
    most = Math.max(most, ++under)
    const answer = Reflect.apply(query, client, args) as unknown as Promise<unknown>
    const over = (): void => { under-- }
    answer.then(over, over)
    return answer
  }) as unknown as typeof query

  let questions = 0
  const pause: Held['pause'] = {}
  const holder = async (): Promise<number | undefined> => {
    questions++
    await pause.until
    return (await server.query(texts.holder, [classid, objid], database)).rows[0]?.backend
  }
  const session = createSession({ lease, inside: new AsyncLocalStorage(), clock, backend: row!.backend, proof: [texts.prove, [classid, objid]], unlock: [texts.unlock, [key.toString()]], holder })
  const lost: Error[] = []
  if (listen) session.whenLost(why => { lost.push(why) })
  t.teardown(async () => {
    session.destroy()
    await pool.end()
  })
  return { session, host: session.lend(), lease, pool, backend: row!.backend, key, sent, most: () => most, questions: () => questions, pause, lost }
}

/** Whether anybody holds the lock, asked through another session. */
async function isHeld ({ key }: { key: bigint }): Promise<boolean> {
  const { classid, objid } = lockHalves(key)
  return (await server.query(texts.holder, [classid, objid], database)).rowCount === 1
}

const isThere = async (backend: number): Promise<boolean> => (await server.query('select from pg_stat_activity where pid = $1', [backend])).rowCount === 1
const terminate = async (backend: number): Promise<unknown> => await server.query('select pg_terminate_backend($1)', [backend])
const inStatement = async (backend: number, text: string): Promise<unknown> =>
  await until(async () => (await server.query("select from pg_stat_activity where pid = $1 and state = 'active' and query like $2", [backend, `%${text}%`])).rowCount === 1)
const stored = async (id: number): Promise<boolean> => (await server.query('select from note where id = $1', [id], database)).rowCount === 1

let ids = 0
const insert = (id: number): [string, unknown[]] => ['insert into note (id) values ($1)', [id]]

/** A sync on a pool of its own, and what its log says. */
function serve (t: Scope, options: Partial<HourlySyncOptions>): { service: Service, lines: Line[], pool: pg.Pool } {
  const pool = new pg.Pool({ connectionString: server.url(database), max: 4 })
  const { log, lines } = createLog()
  const service = createService(parseOptions({ name: t.name.slice(0, 100), sync: () => {}, ...options }), log)
  service.open(createPoolGate(pool, systemClock, log))
  t.teardown(async () => {
    await service.close()
    await pool.end()
  })
  return { service, lines, pool }
}

t.test('the queue', async t => {
  t.test('gives twenty queries at once their answers, in their order, one at a time at the driver', async t => {
    const { host, sent, most } = await hold(t)
    const numbers = Array.from({ length: 20 }, (_, i) => i)
    const answers = await Promise.all(numbers.map(async i => (await host.query(`select ${i} as i from pg_sleep(${i % 3 / 1_000})`)).rows[0].i))
    t.strictSame(answers, numbers)
    t.strictSame(sent.map(text => Number(/select (\d+)/.exec(text)![1])), numbers)
    t.equal(most(), 1)
  })

  t.test('lets statements of ours, of the host and of its transactions wait for each other', async t => {
    const { session, host, most } = await hold(t)
    const id = ++ids
    await Promise.all([
      host.query('select pg_sleep(0.01)'),
      session.prove(),
      host.transaction(async tx => await Promise.all([tx.query('select pg_sleep(0.01)'), tx.query(...insert(id)), tx.query('select 1')])),
      session.own(texts.prove, [0, 0]),
      host.transaction(async tx => { await tx.query('select 2') }),
      host.query('select 3'),
      createFacade(host.query).query('select 4')
    ])
    t.equal(most(), 1)
    t.equal(session.lost, undefined)
    t.ok(await stored(id))
  })

  t.test('goes on after a statement that failed', async t => {
    const { host, lost } = await hold(t)
    const answers = await Promise.allSettled([host.query('selec'), host.query('select 1 as one'), host.query('select 1/0'), host.query('select 2 as two')])
    t.match(answers, [{ reason: { code: '42601' } }, { value: { rows: [{ one: 1 }] } }, { reason: { code: '22012' } }, { value: { rows: [{ two: 2 }] } }])
    t.strictSame(lost, [])
  })

  t.test('is busy while a statement is under way or a transaction is open', async t => {
    const { session, host } = await hold(t)
    t.notOk(session.busy())
    const asked = host.query('select')
    t.ok(session.busy())
    await asked
    t.notOk(session.busy())
    await host.query('begin')
    t.ok(session.busy())
    await host.query('commit')
    t.notOk(session.busy())
  })

  t.test('takes a statement that may be left out in its turn, if no transaction is open then and it is wanted still', async t => {
    const { session, host, sent } = await hold(t)
    const tell = async (values: () => unknown[] | undefined): Promise<boolean> => await session.aside(texts.announce, values)
    const before = host.transaction(async tx => { await tx.query('select 1') })
    const told = tell(() => ['told'])
    await Promise.all([before, host.query('select 2')])
    t.ok(await told)
    t.strictSame(sent.slice(-5), ['begin', 'select 1', 'commit', texts.announce, 'select 2'])
    t.notOk(await tell(() => undefined))
    const begun = host.query('begin')
    let asked = false
    t.notOk(await tell(() => {
      asked = true
      return []
    }))
    t.notOk(asked)
    await begun
    await host.query('rollback')
    t.equal(sent.filter(text => text === texts.announce).length, 1)
  })
})

t.test('what is no query is refused', async t => {
  const { host, sent } = await hold(t)
  class Cursor { text = 'select 1'; submit (): void {} }
  for (const statement of [undefined, null, 7, {}, { text: 7 }, new Cursor()]) {
    await t.rejects(host.query(statement as string), { code: 'FST_HOURLY_SYNC_INVALID_QUERY' })
    await t.rejects(host.transaction(async tx => await tx.query(statement as string)), { code: 'FST_HOURLY_SYNC_INVALID_QUERY' })
  }
  t.notOk(sent.some(text => !['begin', 'rollback'].includes(text)), 'and never reaches the driver')
  t.equal(checked('select'), 'select')
  const config = { text: 'select', values: [1] }
  t.equal(checked(config), config)
  t.strictSame(checked({ text: 'select', callback () {} }), { text: 'select', callback: undefined }, 'a callback would leave the queue without a promise')
  t.match(await host.query({ text: 'select $1::int as i', values: [7], rowMode: 'array' } as pg.QueryConfig), { rows: [[7]] })
})

t.test('a transaction', async t => {
  t.test('is committed when its function resolves, and gives what that gave', async t => {
    const { host, sent } = await hold(t)
    const id = ++ids
    t.equal(await host.transaction(async tx => { await tx.query(...insert(id)); return 'done' }), 'done')
    t.ok(await stored(id))
    t.strictSame(sent, ['begin', insert(id)[0], 'commit'])
  })

  t.test('is rolled back when its function rejects or throws, with that error', async t => {
    const { session, host } = await hold(t)
    const id = ++ids
    await t.rejects(host.transaction(async tx => { await tx.query(...insert(id)); throw Object.assign(new Error('no'), { code: 'NO' }) }), { code: 'NO' })
    await t.rejects(host.transaction(() => { throw Object.assign(new Error('no'), { code: 'SYNC' }) }), { code: 'SYNC' })
    await t.rejects(host.transaction(async function * () { yield 1 }), { code: 'FST_HOURLY_SYNC_INVALID_OPTION' })
    t.notOk(await stored(id))
    t.notOk(session.busy())
    t.match(await host.query('select 1 as one'), { rows: [{ one: 1 }] })
  })

  t.test('waits for what its function did not await', async t => {
    const { host } = await hold(t)
    const id = ++ids
    await host.transaction(tx => {
      tx.query('select pg_sleep(0.02)')
      tx.query(...insert(id))
    })
    t.ok(await stored(id))
  })

  t.test('in which a failure was swallowed says that it was rolled back', async t => {
    const { session, host } = await hold(t)
    const id = ++ids
    await t.rejects(host.transaction(async tx => {
      await tx.query(...insert(id))
      await tx.query('select 1/0').catch(() => {})
    }), { code: 'FST_HOURLY_SYNC_ROLLED_BACK' })
    t.notOk(await stored(id))
    t.notOk(session.busy())
  })

  t.test('whose constraint fails at commit is rejected with that, and leaves the session idle', async t => {
    const { session, host } = await hold(t)
    await server.query('create table later (id int primary key, note int references note deferrable initially deferred)', [], database)
    await t.rejects(host.transaction(async tx => { await tx.query('insert into later values (1, -1)') }), { code: '23503' })
    t.notOk(session.busy())
  })

  t.test('that its own function ended by hand has nothing to commit, and is an error or nothing', async t => {
    const { session, host } = await hold(t)
    const id = ++ids
    await t.rejects(host.transaction(async tx => { await tx.query(...insert(id)); await tx.query('rollback'); await tx.query('begin; select 1/0') }), { code: '22012' })
    t.notOk(await stored(id))
    t.notOk(session.busy())
  })

  t.test('that failed is rolled back, also where the server says later than the error what became of it', async t => {
    const { session, host, lease } = await hold(t)
    const connection = (lease.client as unknown as { connection: { emit: (name: string, ...words: unknown[]) => boolean } }).connection
    const emit = connection.emit.bind(connection)
    connection.emit = (name, ...words) => {
      if (name !== 'readyForQuery') return emit(name, ...words)
      setTimeout(() => emit(name, ...words), 20) // as when it comes in a packet of its own
      return true
    }
    await t.rejects(host.transaction(async tx => { await tx.query('rollback'); await tx.query('begin; select 1/0') }), { code: '22012' })
    t.notOk(session.busy())
    await t.rejects(host.query('begin; select 1/0'), { code: '22012' })
    t.ok(session.busy(), 'and what is open is known to be')
  })

  t.test('refuses its tx once it has ended', async t => {
    const { host } = await hold(t)
    let kept: { query: (text: string) => Promise<unknown> } | undefined
    await host.transaction(async tx => { kept = tx })
    await t.rejects(kept!.query('select 1'), { code: 'FST_HOURLY_SYNC_TRANSACTION_ENDED' })
    await host.transaction(async tx => { kept = tx; throw new Error('no') }).catch(() => {})
    await t.rejects(kept!.query('select 1'), { code: 'FST_HOURLY_SYNC_TRANSACTION_ENDED' })
  })

  t.test('is not begun where the host has begun one by hand', async t => {
    const { host } = await hold(t)
    await host.query('begin')
    await t.rejects(host.transaction(async () => {}), { code: 'FST_HOURLY_SYNC_OPEN_TRANSACTION' })
    await host.query('commit')
    await t.resolves(host.transaction(async () => {}))
  })
})

t.test('a call on run from inside run.transaction', async t => {
  t.test('rejects at once and by its name, and the transaction goes on', async t => {
    const { host, sent } = await hold(t)
    const client = createFacade(host.query)
    await host.transaction(async tx => {
      await t.rejects(host.query('select 1'), { code: 'FST_HOURLY_SYNC_NESTED', message: /run\.query/ })
      await t.rejects(host.transaction(async () => {}), { code: 'FST_HOURLY_SYNC_NESTED', message: /run\.transaction/ })
      await t.rejects(client.query('select 1') as unknown as Promise<unknown>, { code: 'FST_HOURLY_SYNC_NESTED' })
      await tx.query('select 2')
    })
    t.strictSame(sent, ['begin', 'select 2', 'commit'])
  })

  t.test('rejects through helpers, timers and promises made inside', async t => {
    const { host } = await hold(t)
    const helper = async (): Promise<unknown> => { await turn(); return await host.query('select 1') }
    await host.transaction(async () => {
      await t.rejects(helper(), { code: 'FST_HOURLY_SYNC_NESTED' })
      await t.rejects(Promise.resolve().then(helper), { code: 'FST_HOURLY_SYNC_NESTED' })
      await t.rejects(new Promise((resolve, reject) => setTimeout(() => { helper().then(resolve, reject) }, 1)), { code: 'FST_HOURLY_SYNC_NESTED' })
    })
  })

  t.test('from outside waits its turn, and so does one that began inside and comes after the end', async t => {
    const { host } = await hold(t)
    let release = (): void => {}
    let late: Promise<unknown> | undefined
    const open = host.transaction(async () => {
      const over = new Promise<void>(resolve => { release = resolve })
      late = over.then(turn).then(turn).then(async () => { await open; return await host.query('select 2') })
      await over
    })
    const outside = host.query('select 1')
    await until(() => release.length === 1)
    release()
    await t.resolves(Promise.all([open, outside, late]))
  })

  t.test('of another session is let through', async t => {
    const [one, other] = [await hold(t), await hold({ teardown: fn => t.teardown(fn), name: `${t.name} (other)` })]
    await one.host.transaction(async () => { await t.resolves(other.host.query('select 1')) })
  })
})

t.test('settle', async t => {
  t.test('waits for what the host had begun, and finds nothing wrong', async t => {
    const { host } = await hold(t)
    const id = ++ids
    host.query('select pg_sleep(0.02)')
    host.query(...insert(id))
    host.seal()
    t.equal(await host.settle(), undefined)
    t.ok(await stored(id), 'those that waited had their turn')
  })

  t.test('finds an open transaction and rolls it back', async t => {
    const { session, host, lost } = await hold(t)
    const id = ++ids
    await host.query('begin')
    await host.query(...insert(id))
    host.seal()
    t.match(await host.settle(), { code: 'FST_HOURLY_SYNC_OPEN_TRANSACTION' })
    t.notOk(session.busy())
    t.notOk(await stored(id))
    t.strictSame(lost, [])
    t.ok(await isHeld({ key: lockKey(t.name) }), 'a rollback frees no lock')
  })

  t.test('finds an open transaction that has failed', async t => {
    const { session, host } = await hold(t)
    await host.query('begin')
    await host.query('select 1/0').catch(() => {})
    t.match(await host.settle(), { code: 'FST_HOURLY_SYNC_OPEN_TRANSACTION' })
    t.notOk(session.busy())
  })

  t.test('finds a failure that nobody awaited, whenever it comes', async t => {
    for (const text of ['select 1/0', 'select 1/0 from pg_sleep(0.05)']) {
      const { host } = await hold({ teardown: fn => t.teardown(fn), name: `${t.name} ${text}` })
      host.query(text)
      host.seal()
      t.match(await host.settle(), { code: 'FST_HOURLY_SYNC_UNOBSERVED', cause: { code: '22012' } }, text)
    }
  })

  t.test('finds a nested call that nobody awaited', async t => {
    const { host } = await hold(t)
    await host.transaction(async () => { host.query('select 1') })
    t.match(await host.settle(), { code: 'FST_HOURLY_SYNC_UNOBSERVED', cause: { code: 'FST_HOURLY_SYNC_NESTED' } })
  })

  t.test('finds no fault in a failure that was looked at', async t => {
    const { host } = await hold(t)
    await host.query('select 1/0').catch(() => {})
    await Promise.allSettled([host.query('select 1/0'), host.transaction(async tx => await tx.query('select 1/0'))])
    t.equal(await host.settle(), undefined)
  })
})

t.test('a sealed session refuses every call of the host, and takes ours', async t => {
  const { session, host, sent } = await hold(t)
  host.seal()
  await t.rejects(host.query('select 1'), { code: 'FST_HOURLY_SYNC_RUN_ENDED', message: /run\.query/ })
  await t.rejects(host.transaction(async () => {}), { code: 'FST_HOURLY_SYNC_RUN_ENDED', message: /run\.transaction/ })
  t.strictSame(sent, [])
  await session.prove()
  t.equal(session.lost, undefined)
})

t.test('prove', async t => {
  t.test('looks, takes no lock again, and finds it', async t => {
    const held = await hold(t)
    await held.session.prove()
    await held.session.prove()
    t.strictSame(held.lost, [])
    const { rows: [row] } = await held.host.query('select pg_advisory_unlock($1) as once, pg_advisory_unlock($1) as twice', [held.key])
    t.strictSame(row, { once: true, twice: false })
  })

  for (const text of ['discard all', 'select pg_advisory_unlock_all()']) {
    t.test(`loses after ${text}`, async t => {
      const held = await hold(t)
      await held.host.query(text)
      await held.session.prove()
      t.match(held.lost, [{ code: 'FST_HOURLY_SYNC_LOCK_LOST', message: /does not hold it/ }])
      t.equal(held.lost.length, 1)
      await t.rejects(held.host.query('select 1'), { code: 'FST_HOURLY_SYNC_LOCK_LOST' })
    })
  }

  t.test('is not taken in by the same key of another session, or in another database', async t => {
    const held = await hold(t)
    await held.host.query('select pg_advisory_unlock_all()')
    const elsewhere = [new pg.Client({ connectionString: server.url(database) }), new pg.Client({ connectionString: server.url() })]
    for (const client of elsewhere) {
      await client.connect()
      t.teardown(async () => await client.end())
      t.match(await client.query('select pg_try_advisory_lock($1) as locked', [held.key]), { rows: [{ locked: true }] })
    }
    await held.session.prove()
    t.equal(held.lost.length, 1)
  })

  t.test('is not taken in by a shared lock', async t => {
    const held = await hold(t)
    await held.host.query('select pg_advisory_unlock_all(), pg_advisory_lock_shared($1)', [held.key])
    await held.session.prove()
    t.equal(held.lost.length, 1)
  })

  t.test('loses when nobody answers twice within five seconds', async t => {
    const proxy = await startProxy(t, server.port)
    const clock = createManualClock()
    const held = await hold(t, clock, proxy.port)
    proxy.silence()
    const proven = held.session.prove()
    await until(() => clock.armed.includes(5_000))
    await clock.pass(5_000)
    t.strictSame(held.lost, [], 'once is not enough')
    await until(() => clock.armed.includes(5_000))
    await clock.pass(5_000)
    await proven
    t.match(held.lost, [{ code: 'FST_HOURLY_SYNC_LOCK_LOST', cause: { code: 'FST_HOURLY_SYNC_UNAVAILABLE' } }])
  })

  t.test('asks another session about a statement that is under way at the third proof, and keeps what is held', async t => {
    const held = await hold(t)
    const statement = held.host.query('select pg_sleep(600)').catch(() => {})
    await inStatement(held.backend, 'pg_sleep(600)')
    for (let proof = 1; proof <= 2; proof++) await held.session.prove()
    t.equal(held.questions(), 0)
    for (let proof = 3; proof <= 5; proof++) await held.session.prove()
    t.equal(held.questions(), 3)
    t.strictSame(held.lost, [])
    held.session.destroy()
    await statement
  })

  t.test('asks nobody about statements that come and go', async t => {
    const held = await hold(t)
    for (let proof = 1; proof <= 5; proof++) {
      const statement = held.host.query('select pg_sleep(0.1)')
      await turn()
      await held.session.prove()
      await statement
    }
    t.equal(held.questions(), 0)
    t.strictSame(held.lost, [])
  })

  t.test('loses when the answer of a statement does not come and the server has ended the session', async t => {
    const proxy = await startProxy(t, server.port)
    const held = await hold(t, systemClock, proxy.port)
    const statement = held.host.query('select pg_sleep(600)')
    const failed = t.rejects(statement, { code: 'FST_HOURLY_SYNC_LOCK_LOST' })
    await inStatement(held.backend, 'pg_sleep(600)')
    proxy.silence()
    await terminate(held.backend)
    await until(async () => !await isThere(held.backend))
    for (let proof = 1; proof <= 3; proof++) await held.session.prove()
    t.match(held.lost, [{ code: 'FST_HOURLY_SYNC_LOCK_LOST', message: /does not hold it/ }])
    await failed
  })

  t.test('makes nothing of an answer that comes when the session has gone on', async t => {
    const held = await hold(t)
    const answered = gate()
    held.pause.until = answered.passed
    const statement = held.host.query('select pg_sleep(1)')
    await inStatement(held.backend, 'pg_sleep(1)')
    for (let proof = 1; proof <= 2; proof++) await held.session.prove()
    const proven = held.session.prove()
    await until(() => held.questions() === 1)
    await statement
    await held.host.query('select pg_advisory_unlock_all()') // as at the end of a run
    answered.open()
    await proven
    t.strictSame(held.lost, [])
  })

  t.test('makes nothing of a question that is not answered', async t => {
    const held = await hold(t)
    const statement = held.host.query('select pg_sleep(600)').catch(() => {})
    await inStatement(held.backend, 'pg_sleep(600)')
    await server.query('alter database ' + database + ' allow_connections false')
    for (let proof = 1; proof <= 4; proof++) await held.session.prove()
    await server.query('alter database ' + database + ' allow_connections true')
    t.equal(held.questions(), 2)
    t.strictSame(held.lost, [])
    held.session.destroy()
    await statement
  })

  t.test('believes an answer that came while the event loop was blocked', async t => {
    const held = await hold(t)
    const proven = held.session.prove()
    const end = performance.now() + 6_000
    while (performance.now() < end); // longer than the limit: its timer is due before the answer is read
    await proven
    t.strictSame(held.lost, [])
  })

  t.test('is a lost lock where the answer comes from another backend', async t => {
    const held = await hold(t)
    await t.rejects(held.session.own('select 1 as backend', []), { code: 'FST_HOURLY_SYNC_POOLED' })
    t.match(held.lost, [{ code: 'FST_HOURLY_SYNC_LOCK_LOST', cause: { code: 'FST_HOURLY_SYNC_POOLED' } }])
  })
})

t.test('a backend that is terminated', async t => {
  const afterwards = async (t: Asserting, held: Held): Promise<void> => {
    t.equal(held.lost.length, 1, 'is lost once')
    t.equal(held.session.lost, held.lost[0])
    t.equal((held.lost[0] as { code?: string }).code, 'FST_HOURLY_SYNC_LOCK_LOST')
    await t.rejects(held.host.query('select 1'), held.lost[0]!)
    await t.rejects(held.host.transaction(async () => {}), { code: 'FST_HOURLY_SYNC_LOCK_LOST' })
    await t.rejects(held.session.own('select 1', []), { code: 'FST_HOURLY_SYNC_LOCK_LOST' })
    await held.session.prove()
    t.equal(await held.host.settle(), undefined, 'what was looked at is no fault')
    await held.session.release()
    t.equal(held.pool.totalCount, 0, 'is out of the pool')
    await until(async () => !await isHeld(held), 'has let go of the lock') // the server says why it ends a session before it has
    t.equal(held.lost.length, 1, 'is lost once, whatever comes later')
  }

  t.test('while idle', async t => {
    const held = await hold(t)
    await terminate(held.backend)
    await until(() => held.lost.length > 0)
    await afterwards(t, held)
  })

  t.test('inside a statement, which rejects with the loss, as do those that wait behind it', async t => {
    const held = await hold(t)
    const calls = [held.host.query('select pg_sleep(60)'), held.host.query('select 1'), held.host.transaction(async () => {})]
    const rejected = Promise.all(calls.map(async call => await t.rejects(call as Promise<unknown>, { code: 'FST_HOURLY_SYNC_LOCK_LOST' })))
    await inStatement(held.backend, 'pg_sleep(60)')
    await terminate(held.backend)
    await rejected
    await afterwards(t, held)
  })

  t.test('in a transaction, of which nothing stays', async t => {
    const held = await hold(t)
    const id = ++ids
    await t.rejects(held.host.transaction(async tx => {
      await tx.query(...insert(id))
      await terminate(held.backend)
      await until(() => held.lost.length > 0)
      await t.rejects(tx.query('select 1'), { code: 'FST_HOURLY_SYNC_LOCK_LOST' })
    }), { code: 'FST_HOURLY_SYNC_LOCK_LOST' })
    t.notOk(await stored(id))
    await afterwards(t, held)
  })

  t.test('in a transaction whose function swallows that, which rejects all the same', async t => {
    const held = await hold(t)
    await t.rejects(held.host.transaction(async tx => {
      const asked = tx.query('select pg_sleep(60)').catch(() => {})
      await inStatement(held.backend, 'pg_sleep(60)')
      await terminate(held.backend)
      await asked
    }), { code: 'FST_HOURLY_SYNC_LOCK_LOST' })
    await afterwards(t, held)
  })

  t.test('by its own idle_session_timeout', async t => {
    const held = await hold(t)
    await held.host.query("set idle_session_timeout = '50ms'")
    await until(() => held.lost.length > 0)
    await afterwards(t, held)
  })

  t.test('before anybody listens is told when somebody does', async t => {
    const held = await hold(t, systemClock, server.port, false)
    await terminate(held.backend)
    await until(() => held.session.lost)
    const told: Error[] = []
    held.session.whenLost(why => { told.push(why) })
    t.strictSame(told, [held.session.lost])
  })
})

t.test('a statement that is cancelled is no lost lock', async t => {
  const held = await hold(t)
  const rejected = t.rejects(held.host.query('select pg_sleep(60)'), { code: '57014' })
  await inStatement(held.backend, 'pg_sleep(60)')
  await server.query('select pg_cancel_backend($1)', [held.backend])
  await rejected
  await held.session.prove()
  t.strictSame(held.lost, [])
})

t.test('lose', async t => {
  t.test('ends the session at once, with a statement under way', async t => {
    const held = await hold(t)
    const rejected = t.rejects(held.host.query('select pg_sleep(60)'), { code: 'FST_HOURLY_SYNC_LOCK_LOST' })
    await inStatement(held.backend, 'pg_sleep(60)')
    held.session.lose(new FST_HOURLY_SYNC_LOCK_LOST('for a test'))
    await rejected
    t.equal(held.pool.totalCount, 0)
    await terminate(held.backend) // the server hears of it only when it looks at the client
    await until(async () => !await isHeld(held))
  })

  t.test('keeps its first reason', async t => {
    const held = await hold(t)
    const first = new FST_HOURLY_SYNC_LOCK_LOST('first')
    held.session.lose(first)
    held.session.lose(new Error('second'))
    t.equal(held.session.lost, first)
    t.strictSame(held.lost, [first])
  })
})

t.test('release', async t => {
  t.test('unlocks, ends the session, and takes it out of the pool', async t => {
    const held = await hold(t)
    await held.session.release()
    t.strictSame(held.sent, [texts.unlock])
    t.notOk(await isHeld(held))
    t.equal(held.pool.totalCount, 0)
    await until(async () => !await isThere(held.backend))
    t.strictSame(held.lost, [], 'is no loss')
    await t.rejects(held.host.query('select 1'), { code: 'FST_HOURLY_SYNC_RUN_ENDED' })
  })

  t.test('a second time does nothing', async t => {
    const held = await hold(t)
    await held.session.release()
    await held.session.release()
    held.session.destroy()
    t.strictSame(held.sent, [texts.unlock])
  })

  t.test('of a session that cannot be unlocked frees the lock as well', async t => {
    const held = await hold(t)
    await held.host.query('begin')
    await held.host.query('select 1/0').catch(() => {})
    await held.session.release() // the unlock fails: the transaction is aborted
    await until(async () => !await isHeld(held))
  })

  t.test('waits a second for its unlock behind a statement that does not end, then ends the session', async t => {
    const clock = createManualClock()
    const held = await hold(t, clock)
    const rejected = t.rejects(held.host.query('select pg_sleep(60)'))
    await inStatement(held.backend, 'pg_sleep(60)')
    const released = held.session.release()
    await until(() => clock.armed.includes(1_000))
    await clock.pass(1_000)
    await released
    await rejected
    t.equal(held.pool.totalCount, 0)
    await terminate(held.backend)
  })
})

t.test('destroy ends the session without a loss, and the lock is free', async t => {
  const held = await hold(t)
  held.session.destroy()
  t.strictSame(held.lost, [])
  await until(async () => !await isHeld(held))
  await t.rejects(held.host.query('select 1'), { code: 'FST_HOURLY_SYNC_RUN_ENDED' })
  await t.rejects(held.session.own('select 1', []), { code: 'FST_HOURLY_SYNC_RUN_ENDED' })
})

for (const [what, call] of [
  ['a query', async ({ host }: Held): Promise<unknown> => await host.query('select pg_sleep(600)')],
  ['a transaction', async ({ host }: Held): Promise<unknown> => await host.transaction(async tx => await tx.query('select pg_sleep(600)'))],
  ['a statement of ours', async ({ session }: Held): Promise<unknown> => await session.own('select pg_sleep(600)', [])]
] as const) {
  t.test(`${what} that destroy cuts off rejects as one that comes after the end of the run, and says why`, async t => {
    const held = await hold(t)
    const rejected = t.rejects(async () => await call(held), { code: 'FST_HOURLY_SYNC_RUN_ENDED', message: /^run\.query was not done/, cause: { message: /terminated/ } })
    await inStatement(held.backend, 'pg_sleep(600)')
    held.session.destroy()
    await rejected
    t.strictSame(held.lost, [])
  })
}

t.test('a run', async t => {
  t.test('whose unawaited write fails is failed, and nothing is unhandled', async t => {
    const { service, lines } = serve(t, { sync: run => { run.query('insert into note (id) values (null)') } })
    t.match(await service.runOnce(), { outcome: 'failed', run: { error: { code: 'FST_HOURLY_SYNC_UNOBSERVED' } } })
    t.match(lines.filter(({ level }) => level === 'error').map(({ message }) => message), ['sync failed'])
  })

  t.test('that leaves a transaction open is failed, without its writes', async t => {
    const id = ++ids
    const { service } = serve(t, { sync: async run => { await run.query('begin'); await run.query(...insert(id)) } })
    t.match(await service.runOnce(), { outcome: 'failed', run: { error: { code: 'FST_HOURLY_SYNC_OPEN_TRANSACTION' } } })
    t.notOk(await stored(id))
  })

  for (const text of ['discard all', 'select pg_advisory_unlock_all()']) {
    t.test(`that lets its lock go by ${text} is lock-lost, and no success is recorded`, async t => {
      const { service } = serve(t, { sync: async run => { await run.query(text) } })
      t.match(await service.runOnce(), { outcome: 'lock-lost', run: { error: { code: 'FST_HOURLY_SYNC_LOCK_LOST' } } })
      t.match(await service.status(), { lastSuccess: null, watermark: null, syncing: false })
    })
  }

  t.test('that has ended takes no more calls', async t => {
    let kept: SyncRun | undefined
    const { service } = serve(t, { sync: run => { kept = run } })
    t.match(await service.runOnce(), { outcome: 'succeeded' })
    await t.rejects(kept!.query('select 1'), { code: 'FST_HOURLY_SYNC_RUN_ENDED' })
    await t.rejects(kept!.transaction(async () => {}), { code: 'FST_HOURLY_SYNC_RUN_ENDED' })
    await t.rejects(kept!.client.query('select 1') as unknown as Promise<unknown>, { code: 'FST_HOURLY_SYNC_RUN_ENDED' })
  })

  t.test('writes through the session that holds the lock', async t => {
    let seen: number | undefined
    const { service } = serve(t, {
      sync: async run => { seen = (await run.query('select pg_backend_pid() as pid')).rows[0].pid },
      lockName: 'of its own'
    })
    const { classid, objid } = lockHalves(lockKey('of its own'))
    const { service: watcher } = serve({ teardown: fn => t.teardown(fn), name: 'watcher' }, {
      sync: async run => {
        const started = await service.trigger()
        t.ok(started.started)
        await until(async () => (await run.query(texts.holder, [classid, objid])).rows[0]?.pid !== 0 && seen !== undefined)
      }
    })
    t.match(await watcher.runOnce(), { outcome: 'succeeded' })
    t.type(seen, 'number')
  })

  t.test('of a loser leaves the client as it was', async t => {
    const { service, pool } = serve(t, {})
    t.match(await service.runOnce(), { outcome: 'succeeded' }, 'the tables are there')
    const blocker = new pg.Client({ connectionString: server.url(database) })
    await blocker.connect()
    t.teardown(async () => await blocker.end())
    await blocker.query('select pg_advisory_lock($1)', [service.lockKey])

    const client = await pool.connect()
    await client.query("set application_name = 'untouched'; set idle_session_timeout = '7min'")
    const listeners = client.eventNames().map(name => [name, client.listenerCount(name)])
    client.release()
    t.match(await service.runOnce({ force: true }), { outcome: 'running' })
    const again = await pool.connect()
    t.equal(again, client)
    t.strictSame((await again.query("select current_setting('application_name') as name, current_setting('idle_session_timeout') as timeout")).rows, [{ name: 'untouched', timeout: '7min' }])
    t.match(await again.query("select from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()"), { rowCount: 0 })
    again.release()
    const last = await pool.connect()
    t.strictSame(last.eventNames().map(name => [name, last.listenerCount(name)]), listeners)
    last.release()
  })
})

t.test('statements of ours', async t => {
  const oids = { bool: 16, int8: 20, int4: 23, text: 25, json: 114, timestamptz: 1184, uuid: 2950, jsonb: 3802 }

  t.test('are read as ever where the host has set global type parsers', async t => {
    const kept = Object.values(oids).flatMap(oid => (['text', 'binary'] as const).map(format => [oid, format, pg.types.getTypeParser(oid, format)] as const))
    for (const [oid, format] of kept) pg.types.setTypeParser(oid as never, format as 'text', (() => 'the host\'s') as never)
    t.teardown(() => { for (const [oid, format, parser] of kept) pg.types.setTypeParser(oid as never, format as 'text', parser as never) })

    const { service } = serve(t, { sync: async run => ({ cursor: { page: 1 }, stats: (await run.query('select 1::int4 as n')).rows[0] }) })
    const { run } = await service.runOnce()
    t.match(run, { state: 'succeeded', attempt: 1, slice: 1, stats: { n: 'the host\'s' } })
    t.equal(run!.since, null)
    t.type(run!.slot, Date)
    t.ok(Math.abs(run!.until.getTime() - Date.now()) < 600_000)
    t.match(await service.status(), { syncing: false, due: false, hold: 'served', behindSlots: 0, lastSuccess: { id: run!.id } })
    t.match(await service.runs(), [{ id: run!.id }])
  })

  t.test('are read as ever from a client of the host\'s that speaks binary', async t => {
    const client = new pg.Client({ connectionString: server.url(database), binary: true } as pg.ClientConfig)
    await client.connect()
    t.teardown(async () => await client.end())
    // the driver reads every field as UTF-8 first: of a number, bytes above 0x7f are lost before any parser sees them
    const answer = await client.query(ours("select true as yes, false as no, $1::int4 as int4, 'naïve 🚚'::text as text, null::int4 as nothing, 2882680683948311330::bigint::text as int8", [0x7f7f7f7f]))
    t.strictSame(answer.rows, [{ yes: true, no: false, int4: 0x7f7f7f7f, text: 'naïve 🚚', nothing: null, int8: '2882680683948311330' }])
  })

  t.test('serve a whole run on a pool that speaks binary', async t => {
    const pool = new pg.Pool({ connectionString: server.url(database), max: 2, binary: true } as pg.PoolConfig)
    const { log } = createLog()
    let cursor: unknown
    const service = createService(parseOptions({ name: t.name, every: '1s', sync: run => { cursor = run.cursor; return { cursor: { page: 7 }, stats: [1, 'ü'] } } }), log)
    service.open(createPoolGate(pool, systemClock, log))
    t.teardown(async () => {
      await service.close()
      await pool.end()
    })
    t.match(await service.runOnce({ force: true }), { outcome: 'succeeded', run: { attempt: 1, stats: [1, 'ü'] } })
    t.match(await service.runOnce({ force: true }), { outcome: 'succeeded' })
    t.strictSame(cursor, { page: 7 })
    t.match(await service.status(), { unavailable: null, syncing: false, lastRun: { state: 'succeeded' } })
    t.equal((await service.runs()).length, 2)
  })
})

t.test('the direct source serves a session just as well', async t => {
  const lease = await createDirectSource({ connectionString: server.url(database) }, systemClock).checkout({ order: 0, hurry: false, signal: new AbortController().signal })
  const key = lockKey(t.name)
  const { classid, objid } = lockHalves(key)
  const { rows: [row] } = await lease.client.query(ours('select pg_backend_pid() as backend, pg_try_advisory_lock($1::bigint)', [key.toString()]))
  const session = createSession({ lease, inside: new AsyncLocalStorage(), clock: systemClock, backend: row.backend, proof: [texts.prove, [classid, objid]], unlock: [texts.unlock, [key.toString()]], holder: async () => undefined })
  await session.prove()
  t.equal(session.lost, undefined)
  await session.release()
  t.notOk(await isHeld({ key }))
  await until(async () => !await isThere(row.backend))
})

t.test('in all of this no rejection was unhandled and the driver had nothing to complain about', async t => {
  await turn()
  t.strictSame(unhandled, [])
  t.strictSame(warnings, [])
})
