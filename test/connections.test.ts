import type { Socket } from 'node:net'
import pg from 'pg'
import t from 'tap'
import { systemClock } from '../lib/clock.js'
import { CLAIM_LIMIT, createDirectSource, createPoolGate, type PoolGate, type Waiting } from '../lib/connections.js'
import { createLog, type Line } from './helpers/log.js'
import { handClock } from './helpers/hand-clock.js'
import { createManualClock } from './helpers/manual-clock.js'
import { startPostgres } from './helpers/postgres.js'
import { startProxy } from './helpers/proxy.js'
import { until } from './helpers/until.js'

t.setTimeout(120_000) // for the slowest machine, not for this one
const server = await startPostgres(t)

type Scope = Pick<typeof t, 'teardown'>

function poolOf (t: Scope, max: number, port = server.port): pg.Pool {
  const pool = new pg.Pool({ connectionString: server.url().replace(String(server.port), String(port)), max })
  t.teardown(async () => await pool.end())
  return pool
}

function gateOf (pool: pg.Pool, clock = systemClock): { gate: PoolGate, lines: Line[] } {
  const { log, lines } = createLog()
  return { gate: createPoolGate(pool, clock, log), lines }
}

const waiting = (overrides: Partial<Waiting> = {}): Waiting => ({ order: 0, hurry: false, signal: new AbortController().signal, ...overrides })

/** What is known of a client's session on the server. */
async function isThere (backend: number): Promise<boolean> {
  return (await server.query('select from pg_stat_activity where pid = $1', [backend])).rowCount === 1
}

const backendOf = (client: pg.ClientBase): number => (client as unknown as { processID: number }).processID

const through = (port: number): pg.ClientConfig => ({ host: '127.0.0.1', port, user: 'postgres', password: 'postgres', database: 'postgres' })

const streamOf = (client: pg.ClientBase): Socket => (client as unknown as { connection: { stream: Socket } }).connection.stream

t.test('the gate', async t => {
  for (const [max, most] of [[1, 1], [2, 1], [3, 1], [4, 2], [10, 5]] as const) {
    t.test(`of a pool of ${max} lends ${most} at once`, async t => {
      const pool = poolOf(t, max)
      const { gate } = gateOf(pool)
      const leases = await Promise.all(Array.from({ length: most }, async () => await gate.checkout(waiting())))
      let more = false
      const another = gate.checkout(waiting()).then(lease => { more = true; return lease })
      await leases[0]!.client.query('select') // in a whole round trip it would have come
      t.notOk(more)
      t.equal(pool.totalCount - pool.idleCount, most)
      leases[0]!.giveBack()
      leases[0] = await another
      for (const lease of leases) lease.giveBack()
    })
  }

  t.test('of a pool that does not tell its size lends five at once', async t => {
    const pool = poolOf(t, 10)
    const { gate } = gateOf({ listeners: () => [], on: () => {}, connect: async () => await pool.connect() } as unknown as pg.Pool)
    const stop = new AbortController()
    const leases = await Promise.all(Array.from({ length: 5 }, async () => await gate.checkout(waiting())))
    const sixth = t.rejects(gate.checkout(waiting({ signal: stop.signal })))
    await leases[0]!.client.query('select') // in a whole round trip it would have come
    stop.abort()
    await sixth
    for (const lease of leases) lease.giveBack()
  })

  t.test('serves the oldest order first, and the same order as it came', async t => {
    const { gate } = gateOf(poolOf(t, 2))
    const first = await gate.checkout(waiting())
    const served: string[] = []
    const queue = [[3, 'c'], [1, 'a1'], [2, 'b'], [1, 'a2'], [4, 'd']] as const
    const all = queue.map(async ([order, name]) => {
      const lease = await gate.checkout(waiting({ order }))
      served.push(name)
      lease.giveBack()
    })
    first.giveBack()
    await Promise.all(all)
    t.strictSame(served, ['a1', 'a2', 'b', 'c', 'd'])
  })

  t.test('lets go of a place in the line that nobody wants any more', async t => {
    const { gate } = gateOf(poolOf(t, 2))
    const first = await gate.checkout(waiting())
    const stop = new AbortController()
    const given = gate.checkout(waiting({ order: 1, signal: stop.signal }))
    const patient = gate.checkout(waiting({ order: 2 }))
    stop.abort(Object.assign(new Error('stop'), { code: 'STOP' }))
    await t.rejects(given, { code: 'STOP' })
    first.giveBack()
    ;(await patient).giveBack()
    ;(await gate.checkout(waiting())).giveBack()
  })

  t.test('makes who is in a hurry wait for the other syncs within the limit, and a loop as long as it takes', async t => {
    const clock = createManualClock()
    const { gate } = gateOf(poolOf(t, 2), clock)
    const first = await gate.checkout(waiting())
    const hurried = t.rejects(gate.checkout(waiting({ hurry: true })), { code: 'FST_HOURLY_SYNC_UNAVAILABLE', message: /waiting for the other syncs/ })
    const patient = gate.checkout(waiting())
    await clock.pass(CLAIM_LIMIT)
    await hurried
    await clock.pass(100 * CLAIM_LIMIT)
    first.giveBack()
    ;(await patient).giveBack()
  })

  t.test('counts the wait of who is in a hurry towards its limit, and not that of a loop', async t => {
    const clock = createManualClock()
    const { gate } = gateOf(poolOf(t, 2), clock)
    for (const hurry of [true, false]) {
      const first = await gate.checkout(waiting())
      const next = gate.checkout(waiting({ hurry }))
      await clock.pass(CLAIM_LIMIT - 1_000)
      first.giveBack()
      const lease = await next
      let late = false
      const limited = lease.limited(new Promise(() => {})).catch(error => { late = true; t.match(error, { code: 'FST_HOURLY_SYNC_UNAVAILABLE', message: /the claim/ }) })
      await clock.pass(1_000)
      t.equal(late, hurry)
      await clock.pass(CLAIM_LIMIT)
      await limited
      lease.giveBack()
    }
  })

  t.test('counts no time in which the event loop was blocked', async t => {
    const hands = handClock()
    const { gate } = gateOf(poolOf(t, 2), hands)
    const lease = await gate.checkout(waiting())
    let answer = (): void => {}
    const first = lease.limited(new Promise<void>(resolve => { answer = resolve }))
    hands.sleep(15_000) // an answer that came in the meantime is read now
    answer()
    await first
    const next = lease.limited(new Promise<void>(resolve => { answer = resolve }))
    await hands.advance(4_000) // of the five that it was blocked beyond the limit
    answer()
    await next
    let late = false
    const last = lease.limited(new Promise(() => {})).catch(() => { late = true })
    await hands.advance(999)
    t.equal(late, false)
    await hands.advance(1)
    await last
    lease.giveBack()
  })

  t.test('gives a client that comes after the limit back untouched', async t => {
    const pool = poolOf(t, 1)
    const clock = createManualClock()
    const { gate } = gateOf(pool, clock)
    const busy = await pool.connect()
    const backend = backendOf(busy)
    const sent: string[] = []
    const { query } = busy
    busy.query = ((...args: unknown[]) => { sent.push(String(args[0])); return Reflect.apply(query, busy, args) }) as typeof query
    const late = t.rejects(gate.checkout(waiting()), { code: 'FST_HOURLY_SYNC_UNAVAILABLE', message: /getting a connection/ })
    await until(() => pool.waitingCount === 1)
    await clock.pass(CLAIM_LIMIT)
    await late
    t.equal(pool.waitingCount, 1, 'the pool still has it in its line')
    const listeners = busy.listenerCount('error')
    busy.release()
    await until(() => pool.idleCount === 1)
    t.strictSame(sent, [])
    const again = await pool.connect()
    t.equal(backendOf(again), backend)
    t.equal(again.listenerCount('error'), listeners)
    again.release()
    ;(await gate.checkout(waiting())).giveBack() // the permit came back as well
  })

  t.test('gives a client that comes after an abort back untouched', async t => {
    const pool = poolOf(t, 1)
    const { gate } = gateOf(pool)
    const busy = await pool.connect()
    const stop = new AbortController()
    const given = gate.checkout(waiting({ signal: stop.signal }))
    await until(() => pool.waitingCount === 1)
    stop.abort(Object.assign(new Error('stop'), { code: 'STOP' }))
    await t.rejects(given, { code: 'STOP' })
    busy.release()
    await until(() => pool.idleCount === 1)
    ;(await gate.checkout(waiting())).giveBack()
  })

  t.test('passes on what the driver says, and keeps no permit', async t => {
    const pool = new pg.Pool({ connectionString: server.url('nowhere'), max: 2 })
    const { gate } = gateOf(pool)
    for (let i = 0; i < 3; i++) await t.rejects(gate.checkout(waiting()), { code: '3D000' })
    await pool.end()
    await t.rejects(gate.checkout(waiting()), { message: /after calling end/ })
  })

  t.test('asks questions outside the line, with parsers of its own', async t => {
    const { gate } = gateOf(poolOf(t, 2))
    const lease = await gate.checkout(waiting())
    t.strictSame(await gate.ask('select $1::int as int4, $2::bigint as int8, true as bool, null as nothing', [1, 2]), [{ int4: 1, int8: '2', bool: true, nothing: null }])
    lease.giveBack()
  })

  t.test('waits for an answer within the limit', async t => {
    const clock = createManualClock()
    const { gate } = gateOf(poolOf(t, 2), clock)
    const asleep = async (text: string): Promise<boolean> => (await server.query("select from pg_stat_activity where query = $1 and wait_event = 'PgSleep'", [text])).rowCount === 1
    const late = t.rejects(gate.ask('select pg_sleep(50)', []), { code: 'FST_HOURLY_SYNC_UNAVAILABLE', message: /a question to the database was not done within 10000 ms/ })
    await until(async () => await asleep('select pg_sleep(50)'))
    await clock.pass(CLAIM_LIMIT)
    await late
    const sooner = t.rejects(gate.ask('select pg_sleep(40)', [], 100), { code: 'FST_HOURLY_SYNC_UNAVAILABLE', message: /within/ })
    await until(async () => await asleep('select pg_sleep(40)'))
    await clock.pass(100)
    await sooner
    await server.query("select pg_terminate_backend(pid) from pg_stat_activity where query like 'select pg_sleep(%0)'")
  })

  t.test('keeps no client for a question that a silent server does not answer', async t => {
    const proxy = await startProxy(t, server.port)
    const clock = createManualClock()
    const pool = poolOf(t, 2, proxy.port)
    const { gate } = gateOf(pool, clock)
    await gate.ask('select 1', [])
    proxy.silence()
    const late = t.rejects(gate.ask('select 2', []), { code: 'FST_HOURLY_SYNC_UNAVAILABLE' })
    await until(() => pool.idleCount === 0)
    await clock.pass(CLAIM_LIMIT)
    await late
    t.equal(pool.totalCount, 0)
    await until(() => proxy.left() === 1, 'its socket is closed')
  })
})

t.test('a lease', async t => {
  t.test('given back is the same session for the next, without our listener', async t => {
    const pool = poolOf(t, 1)
    const { gate } = gateOf(pool)
    const bare = await pool.connect()
    const listeners = bare.listenerCount('error')
    bare.release()
    const lease = await gate.checkout(waiting())
    t.equal(lease.client, bare)
    t.equal(lease.client.listenerCount('error'), listeners + 1, 'on loan it has one')
    lease.giveBack()
    const next = await pool.connect()
    t.equal(next, bare)
    t.equal(next.listenerCount('error'), listeners)
    next.release()
  })

  t.test('stops waiting for an answer when it is told to', async t => {
    const { gate } = gateOf(poolOf(t, 2))
    const lease = await gate.checkout(waiting())
    const stop = new AbortController()
    const limited = lease.limited(new Promise(() => {}), stop.signal)
    stop.abort(Object.assign(new Error('stop'), { code: 'STOP' }))
    await t.rejects(limited, { code: 'STOP' })
    t.equal(await lease.limited(Promise.resolve(7)), 7)
    lease.giveBack()
  })

  t.test('destroyed ends its session and leaves the pool', async t => {
    const pool = poolOf(t, 1)
    const { gate } = gateOf(pool)
    const lease = await gate.checkout(waiting())
    const backend = backendOf(lease.client)
    lease.destroy()
    t.equal(pool.totalCount, 0)
    await until(async () => !await isThere(backend))
  })

  for (const [first, second] of [['giveBack', 'giveBack'], ['giveBack', 'destroy'], ['destroy', 'destroy'], ['destroy', 'giveBack']] as const) {
    t.test(`takes one way back: ${second} after ${first} does nothing`, async t => {
      const pool = poolOf(t, 2)
      const { gate } = gateOf(pool)
      const lease = await gate.checkout(waiting())
      lease[first]()
      const count = pool.totalCount
      const next = await gate.checkout(waiting())
      t.doesNotThrow(() => lease[second]())
      t.equal(pool.totalCount, count === 0 ? 1 : count)
      await t.resolves(next.client.query('select'), 'and harms nobody who has the client by now')
      // nor does it let in one more than half
      let more = false
      const another = gate.checkout(waiting()).then(lease => { more = true; return lease })
      await next.client.query('select')
      t.notOk(more)
      next.giveBack()
      ;(await another).giveBack()
    })
  }

  t.test('whose session dies ends no process', async t => {
    const { gate } = gateOf(poolOf(t, 2))
    const lease = await gate.checkout(waiting())
    const ended = new Promise(resolve => lease.client.once('end', resolve as () => void))
    await server.query('select pg_terminate_backend($1)', [backendOf(lease.client)])
    await ended // both of its error events came before
    lease.destroy()
  })

  t.test('of a connection that went silent is gone a second after it was destroyed', async t => {
    const proxy = await startProxy(t, server.port)
    const pool = poolOf(t, 2, proxy.port)
    const { gate } = gateOf(pool)
    const lease = await gate.checkout(waiting())
    await lease.client.query('select')
    const stream = streamOf(lease.client)
    proxy.silence()
    const start = performance.now()
    lease.destroy()
    await new Promise(resolve => stream.once('close', resolve))
    const took = performance.now() - start
    t.ok(took >= 990, `it had its second to say goodbye (${took} ms)`)
    t.ok(took < 15_000, `and not much more (${took} ms)`)
    t.ok(stream.destroyed)
  })

  t.test('of a connection that says goodbye leaves no timer', async t => {
    const clock = createManualClock()
    const { gate } = gateOf(poolOf(t, 2), clock)
    const lease = await gate.checkout(waiting())
    const ended = new Promise(resolve => lease.client.once('end', resolve as () => void))
    lease.destroy()
    t.strictSame(clock.armed, [1_000])
    await ended
    t.strictSame(clock.armed, [])
  })
})

t.test('the pool listener', async t => {
  const ours = /an idle database connection was lost/

  t.test('is one, however many syncs and apps use the pool, and is told of once', async t => {
    const pool = poolOf(t, 2)
    const apps = Array.from({ length: 12 }, () => gateOf(pool))
    t.equal(pool.listenerCount('error'), 1)
    t.equal(apps.flatMap(({ lines }) => lines).filter(({ level, message }) => level === 'info' && /had no error listener/.test(message)).length, 1)
  })

  t.test('is added beside the host\'s, without a word', async t => {
    const pool = poolOf(t, 2)
    pool.on('error', () => {})
    const { lines } = gateOf(pool)
    t.equal(pool.listenerCount('error'), 2)
    t.strictSame(lines, [])
  })

  t.test('keeps an idle client that dies from ending the process, and says so in the log of the app that came last', async t => {
    const pool = poolOf(t, 2)
    const before = gateOf(pool)
    const last = gateOf(pool)
    const client = await pool.connect()
    const backend = backendOf(client)
    client.release()
    await server.query('select pg_terminate_backend($1)', [backend])
    const line = await until(() => last.lines.find(({ message }) => ours.test(message)))
    t.match(line, { level: 'warn', err: { code: '57P01' } })
    t.notOk(before.lines.some(({ message }) => ours.test(message)))
  })
})

t.test('the direct source', async t => {
  t.test('opens a connection of its own for each lease, and closes it whichever way it goes back', async t => {
    const source = createDirectSource({ connectionString: server.url() }, systemClock)
    const leases = [await source.checkout(waiting()), await source.checkout(waiting())]
    const backends = leases.map(({ client }) => backendOf(client))
    t.not(backends[0], backends[1])
    t.ok(await isThere(backends[0]!))
    leases[0]!.giveBack()
    leases[1]!.destroy()
    for (const backend of backends) await until(async () => !await isThere(backend))
  })

  t.test('takes one way back', async t => {
    const lease = await createDirectSource({ connectionString: server.url() }, systemClock).checkout(waiting())
    lease.giveBack()
    t.doesNotThrow(() => { lease.giveBack(); lease.destroy() })
  })

  t.test('passes on what the driver says', async t => {
    await t.rejects(createDirectSource({ connectionString: server.url('nowhere') }, systemClock).checkout(waiting()), { code: '3D000' })
  })

  t.test('gives up a connection to a server that says nothing', async t => {
    const proxy = await startProxy(t, server.port)
    proxy.silence()
    const clock = createManualClock()
    const late = t.rejects(createDirectSource({ ...through(proxy.port), application_name: 'late' }, clock).checkout(waiting()), { code: 'FST_HOURLY_SYNC_UNAVAILABLE' })
    await until(() => proxy.accepted() === 1)
    await clock.pass(CLAIM_LIMIT)
    await late
    await until(() => proxy.left() === 1)
  })

  t.test('ends no process when its connection dies', async () => {
    const lease = await createDirectSource({ connectionString: server.url() }, systemClock).checkout(waiting())
    const ended = new Promise(resolve => lease.client.once('end', resolve as () => void))
    await server.query('select pg_terminate_backend($1)', [backendOf(lease.client)])
    await ended
    lease.destroy()
  })

  t.test('lets go of a silent connection after it was destroyed', async t => {
    const proxy = await startProxy(t, server.port)
    const lease = await createDirectSource(through(proxy.port), systemClock).checkout(waiting())
    await lease.client.query('select')
    const closed = new Promise(resolve => streamOf(lease.client).once('close', resolve))
    proxy.silence()
    lease.destroy()
    await closed
  })
})
