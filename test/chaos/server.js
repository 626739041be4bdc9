/**
 * One of the web servers of the storm. It does on order what a host can do to itself (block, clocks), and its sync is every kind of sync:
 * quick, slow, heavy, failing, hanging, deaf; and each tries to write when it must not.
 */
import { createHash } from 'node:crypto'
import Fastify from 'fastify'
import postgres from '@fastify/postgres'
import hourlySync, { TransientSyncError } from 'fastify-hourly-sync'

const given = JSON.parse(process.env.CHAOS_SERVER)
const { orders, key, seed, tables } = given
let calm = given.calm
let closed = false

const realNow = Date.now
let clockShift = given.clockShift
Date.now = () => realNow() + clockShift

// keepAliveTimeout: a request that is answered while its server closes keeps its connection, and with it the process, for as long
const app = Fastify({ logger: { level: 'debug' }, keepAliveTimeout: 1_000 })
await app.register(postgres, { connectionString: given.pool, application_name: `host-${process.pid}`, max: 5, idleTimeoutMillis: 1_000, connectionTimeoutMillis: 5_000 })
await app.register(hourlySync, { ...given.sync, ...(given.lock && { lock: { connectionString: given.lock } }), enabled: true, sync })

const quiet = { logLevel: 'error' }
app.get('/orders', quiet, async () => (await app.pg.query(`select count(*)::int as orders from ${tables}.orders, pg_sleep(0.1)`)).rows[0])
app.post('/trigger', quiet, async () => {
  const { started, reason, runId } = await app.triggerSync()
  return { started, reason, runId }
})
app.get('/status', quiet, async () => await app.hourlySync.get().status())

const tempers = [['quick', 27], ['slow', 35], ['heavy', 15], ['broken', 5], ['transient', 5], ['hung', 2], ['deaf', 5], ['careless', 3], ['crowded', 3]]

/** The same for the same slot and attempt, whoever runs it. */
function temperOf (run) {
  if (calm) return { name: 'quick', chance: 0 }
  const dice = createHash('sha256').update(`${seed} ${run.slot.getTime()} ${run.attempt} ${run.trigger}`).digest()
  let left = dice.readUInt16BE(0) % 100
  const [name] = tempers.find(([, share]) => (left -= share) < 0)
  return { name, chance: dice.readUInt16BE(2) / 65_536 }
}

async function sync (run) {
  const { name: temper, chance } = temperOf(run)
  let count = 0
  const note = kind => [
    `insert into ${tables}.chaos_log (run, seq, kind, temper, worker, slot, since, until, trigger) values ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
    [run.id, count++, kind, temper, process.pid, run.slot, run.since, run.until, run.trigger]]
  const unwanted = kind => run.query(...note(kind)).then(() => true, () => false)

  setTimeout(() => { if (run.signal.aborted) unwanted('after abort') }, 4_000).unref()
  try {
    await run.query(...note('start'))
    const until = performance.now() + (temper === 'slow' ? 1_000 + 7_000 * chance : 0)
    await pages(run, note, temper)
    while (performance.now() < until) {
      await call(run, { limit: '1' }) // so that the service sees who is at work
      await run.sleep(150)
      if (chance > 0.5) await run.query(...note('step'))
    }
    if (temper === 'hung') await run.sleep(60_000)
    if (temper === 'deaf') await deaf(run, unwanted)
    if (temper === 'broken') throw new Error('broken, as some syncs are')
    if (temper === 'transient') throw new TransientSyncError('not now', { retryAfter: 300 })
    if (temper === 'crowded') await Promise.all(Array.from({ length: 8 }, () => run.query('select pg_sleep(0.05)')))
    if (temper === 'careless') await run.query('begin')
    await run.query(...note('final'))
  } catch (error) {
    await unwanted('last words')
    throw error
  } finally {
    setTimeout(() => unwanted('stray'), 700).unref()
  }
}

/** Pays no heed to its signal, and writes as long as it can. */
async function deaf (run, unwanted) {
  for (let turn = 0; turn < 25; turn++) {
    await new Promise(resolve => setTimeout(resolve, 200))
    if (!await unwanted('deaf') && run.signal.aborted) return
  }
}

async function pages (run, note, temper) {
  const window = {
    limit: '100',
    ...(run.since && { updated_since: run.since.toISOString() }),
    updated_until: run.until.toISOString()
  }
  let cursor = null
  do {
    const page = await call(run, cursor === null ? window : { ...window, cursor })
    await run.transaction(async tx => {
      await tx.query(...note('page'))
      if (temper === 'heavy') {
        await tx.query('select pg_sleep(0.6)')
        await new Promise(resolve => setTimeout(resolve, 300))
      }
      await tx.upsert(`${tables}.orders`, page.orders, { key: ['external_id'] })
    })
    cursor = page.next_cursor
    if (cursor !== null) await run.sleep(60)
  } while (cursor !== null)
}

/** One call, asked again when the service is out of order or wants a rest. */
async function call (run, query) {
  for (let attempt = 1; ; attempt++) {
    run.signal.throwIfAborted()
    const response = await fetch(`${orders}/orders?${new URLSearchParams(query)}`, {
      headers: { 'x-api-key': key, 'x-run': run.id, 'x-worker': String(process.pid) },
      signal: run.signal
    })
    const answer = await response.json()
    if (response.ok) return answer
    if (attempt === 6 || ![429, 503].includes(response.status)) throw Object.assign(new Error(`order service answered ${response.status}`), { statusCode: response.status })
    await run.sleep(60 * attempt)
  }
}

const orderOf = {
  block ({ ms }) {
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms)
    process.send({ unblocked: realNow() })
  },
  clock ({ ms }) { clockShift += ms },
  calm () { calm = true },
  stop () { app.hourlySync.get().stop() }
}
process.on('message', message => orderOf[message.order](message))

/** What keeps a process that was told to end and does not. */
function lingering () {
  console.error(`not ended yet, ${closed ? 'closed' : 'closing'}: ${process.getActiveResourcesInfo().join(' ')}`)
}

async function stop () {
  setTimeout(lingering, given.sync.closeTimeout + 2_000).unref()
  await app.close()
  closed = true
  if (process.connected) process.disconnect() // from here on it has to end by itself
}
process.on('SIGTERM', stop)
process.on('disconnect', stop)

await app.listen({ port: 0, host: '127.0.0.1' })
process.send({ port: app.server.address().port })
