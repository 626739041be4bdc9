import { setTimeout as sleep } from 'node:timers/promises'
import { inspect } from 'node:util'
import t from 'tap'
import type { SyncRun } from '../lib/types.js'
import { levels, setStage } from './helpers/host.js'
import { startPostgres } from './helpers/postgres.js'
import { until } from './helpers/until.js'

const cluster = await startPostgres(t)
await cluster.query('create table orders (id int primary key)')
t.beforeEach(async () => { await cluster.query('truncate orders') })
const saved = async (): Promise<number[]> => (await cluster.query('select id from orders order by id')).rows.map(({ id }) => id)

// what it does

t.test('a sync that throws before its first await fails', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({ sync: () => { throw new RangeError('at once') } })
  t.match(await sync.runOnce(), { outcome: 'failed', reason: 'at once', run: { error: { name: 'RangeError' } } })
})

t.test('a sync that rejects fails', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({ sync: async () => await Promise.reject(new Error('later')) })
  t.match(await sync.runOnce(), { outcome: 'failed', reason: 'later' })
})

t.test('a sync that returns nothing, and no promise, succeeds', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({ sync: () => {} })
  t.match(await sync.runOnce(), { outcome: 'succeeded', reason: null, run: { stats: null, error: null } })
})

const hostile = new Proxy(new Error('hostile'), { get: () => { throw new Error('a trap') } })
const revoked = Proxy.revocable({}, {})
revoked.revoke()
const thrown: Array<[string, unknown]> = [
  ['undefined', undefined],
  ['null', null],
  ['a string', 'sorry'],
  ['an object', { status: 500 }],
  ['an object that cannot be shown', { [inspect.custom] () { throw new Error('not this one') } }],
  ['an error that cannot be read', hostile],
  ['a revoked proxy', revoked.proxy],
  ['an error of another shape', Object.assign(new Error('shape'), { code: 7, message: Symbol('text'), name: null, stack: 3, cause: null })],
  ['an error with a NUL and half a surrogate pair', new Error('a\0b\ud800')],
  ['an error that is its own cause', (() => { const error = new Error('circle'); error.cause = error; return error })()],
  ['an error of a megabyte', new Error('x'.repeat(1_000_000))]
]
for (const [what, value] of thrown) {
  t.test(`a sync that throws ${what} fails and is recorded`, async t => {
    const stage = await setStage(t, cluster)
    const { sync } = await stage.host({ sync: async () => { throw value } })
    t.match(await sync.runOnce(), { outcome: 'failed', run: { error: { message: String } } })
    t.match(await stage.history(), [{ state: 'failed', error: { message: String } }])
  })
}

t.test('what a sync returns besides its result is ignored with a warning', async t => {
  const stage = await setStage(t, cluster)
  const { sync, log } = await stage.host({ sync: async () => ({ rowCount: 3, rows: [] }) as any })
  t.match(await sync.runOnce(), { outcome: 'succeeded' })
  t.match(log.lines.filter(({ ignored }) => ignored), [{ level: levels.warn, ignored: ['rowCount', 'rows'] }])
})

t.test('a sync that returns a number succeeds with a warning', async t => {
  const stage = await setStage(t, cluster)
  const { sync, log } = await stage.host({ sync: async () => 5 as any })
  t.match(await sync.runOnce(), { outcome: 'succeeded' })
  t.equal(log.lines.filter(({ ignored }) => ignored).length, 1)
})

const circle: any = {}
circle.self = circle
for (const [what, result] of [
  ['a bigint', { cursor: 1n }],
  ['a NUL', { cursor: 'a\0b' }],
  ['a NUL in a key', { cursor: { 'a\0b': 1 } }],
  ['half a surrogate pair', { cursor: ['\ud800'] }],
  ['a circle', { cursor: circle }],
  ['a function', { cursor: () => {} }],
  ['no number', { cursor: NaN }],
  ['infinity inside', { cursor: { page: Infinity } }],
  ['statistics that are a bigint', { cursor: 1, stats: { rows: 1n } }],
  ['an advance that is not false', { cursor: 1, advance: 'no' }]
] as Array<[string, any]>) {
  t.test(`a result with ${what} fails the run and leaves the cursor`, async t => {
    const stage = await setStage(t, cluster)
    const results = [{ cursor: 'before' }, result]
    const { sync } = await stage.host({ sync: async () => results.shift() })
    await sync.runOnce({ force: true })
    t.match(await sync.runOnce({ force: true }), { outcome: 'failed', run: { error: { code: 'FST_HOURLY_SYNC_INVALID_RESULT' } } })
    t.equal((await stage.state()).cursor, 'before')
  })
}

t.test('statistics are stored with the run', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({ sync: async () => ({ stats: { orders: 7, pages: [1, 2] } }) })
  t.match(await sync.runOnce(), { run: { stats: { orders: 7, pages: [1, 2] } } })
  t.match(await stage.history(), [{ stats: { orders: 7, pages: [1, 2] } }])
})

t.test('a run tells what it is', async t => {
  const stage = await setStage(t, cluster)
  let told: Partial<SyncRun> = {}
  const { sync } = await stage.host({ sync: async run => { told = run } })
  await stage.clock.at('2025-03-10T10:01:00Z')
  const { run } = await sync.runOnce()
  t.match(told, {
    id: run!.id,
    name: stage.name,
    target: '',
    trigger: 'schedule',
    slot: new Date('2025-03-10T10:00:00Z'),
    attempt: 1,
    since: null,
    until: new Date('2025-03-10T10:01:00Z'),
    missedSlots: 0,
    cursor: null,
    signal: { aborted: false }
  })
})

t.test('what a run logs names the run', async t => {
  const stage = await setStage(t, cluster)
  const { sync, log } = await stage.host({ sync: async run => { run.log.info('fetched') } })
  const { run } = await sync.runOnce()
  t.match(log.said('fetched'), [{ sync: stage.name, target: '', run: run!.id, slot: '2025-03-10T10:00:00.000Z', trigger: 'schedule' }])
})

t.test('a sleep passes', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({ sync: async run => { await run.sleep(5) } })
  t.match(await sync.runOnce(), { outcome: 'succeeded' })
})

// what it does on the session

t.test('a transaction that was left open fails the run, and nothing of it is stored', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({
    sync: async run => {
      await run.query('begin')
      await run.query('insert into orders values (1)')
      return { cursor: 1 }
    }
  })
  t.match(await sync.runOnce(), { outcome: 'failed', run: { error: { code: 'FST_HOURLY_SYNC_OPEN_TRANSACTION' } } })
  t.strictSame(await saved(), [])
  t.match(await stage.history(), [{ state: 'failed' }])
  t.match(await stage.state(), { watermark: null, cursor: null, last_slot: null, started: null })
})

t.test('a transaction that had failed and was left open fails the run', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({
    sync: async run => {
      await run.query('begin')
      await run.query('select nonsense').catch(() => {})
    }
  })
  t.match(await sync.runOnce(), { outcome: 'failed', run: { error: { code: 'FST_HOURLY_SYNC_OPEN_TRANSACTION' } } })
})

t.test('the error of a sync is told, rather than the transaction that it left open', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({
    sync: async run => {
      await run.query('begin')
      throw new Error('the cause')
    }
  })
  t.match(await sync.runOnce(), { outcome: 'failed', reason: 'the cause' })
})

for (const statement of ['discard all', 'select pg_advisory_unlock_all()']) {
  t.test(`a sync that sends "${statement}" has lost its lock, and no success is recorded`, async t => {
    const stage = await setStage(t, cluster)
    const { sync } = await stage.host({
      sync: async run => {
        await run.query('insert into orders values (1) on conflict do nothing')
        await run.query(statement)
        return { cursor: 1 }
      }
    })
    t.match(await sync.runOnce(), { outcome: 'lock-lost', run: { error: { code: 'FST_HOURLY_SYNC_LOCK_LOST' } } })
    t.match(await stage.history(), [{ state: 'lock-lost', error: { code: 'FST_HOURLY_SYNC_LOCK_LOST' } }])
    t.match(await stage.state(), { watermark: null, cursor: null, last_slot: null, started: null })
    t.match(await sync.runOnce(), { outcome: 'lock-lost', run: { attempt: 1, since: null } }, 'the slot is due at once, and it was no attempt')
  })
}

t.test('a call on the run inside its transaction is refused at once, and the transaction rolls back', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({
    sync: async run => {
      await run.transaction(async tx => {
        await tx.query('insert into orders values (1)')
        await run.query('insert into orders values (2)')
      })
    }
  })
  t.match(await sync.runOnce(), { outcome: 'failed', run: { error: { code: 'FST_HOURLY_SYNC_NESTED' } } })
  t.strictSame(await saved(), [])
})

t.test('a transaction inside a transaction is refused at once', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({
    sync: async run => {
      await run.query('insert into orders values (1)')
      await run.transaction(async () => { await run.transaction(async () => {}) })
    }
  })
  t.match(await sync.runOnce(), { outcome: 'failed', run: { error: { code: 'FST_HOURLY_SYNC_NESTED' } } })
  t.strictSame(await saved(), [1], 'what was written before stays')
})

t.test('twenty queries at once are sent one after the other and all land', async t => {
  const stage = await setStage(t, cluster)
  const warnings: string[] = []
  const warned = (warning: Error): void => { warnings.push(warning.message) }
  process.on('warning', warned)
  t.teardown(() => process.removeListener('warning', warned))
  const { sync } = await stage.host({
    sync: async run => { await Promise.all(Array.from({ length: 20 }, async (_, id) => await run.query('insert into orders values ($1)', [id]))) }
  })
  t.match(await sync.runOnce(), { outcome: 'succeeded' })
  t.equal((await saved()).length, 20)
  await new Promise(resolve => setImmediate(resolve)) // a warning comes a turn later
  t.strictSame(warnings.filter(message => message.includes('client.query')), [])
})

t.test('twenty transactions at once do not mix', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({
    sync: async run => {
      const ends = await Promise.allSettled(Array.from({ length: 20 }, async (_, id) => await run.transaction(async tx => {
        await tx.query('insert into orders values ($1)', [id])
        if (id % 2 === 1) throw new Error('odd')
      })))
      return { stats: ends.filter(({ status }) => status === 'fulfilled').length }
    }
  })
  t.match(await sync.runOnce(), { outcome: 'succeeded', run: { stats: 10 } })
  t.strictSame(await saved(), Array.from({ length: 10 }, (_, index) => 2 * index))
})

t.test('a write that nobody awaited and that failed fails the run', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({
    sync: async run => {
      await run.query('insert into orders values (1)')
      run.query('insert into orders values (1)')
    }
  })
  t.match(await sync.runOnce(), { outcome: 'failed', run: { error: { code: 'FST_HOURLY_SYNC_UNOBSERVED' } } })
  t.equal((await stage.state()).watermark, null)
})

t.test('a slow write that nobody awaited has landed when the success is recorded', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({
    sync: async run => { run.query('insert into orders select 1 from pg_sleep(0.3)') }
  })
  t.match(await sync.runOnce(), { outcome: 'succeeded' })
  t.strictSame(await saved(), [1])
})

t.test('a transaction that nobody awaited has landed when the success is recorded', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({
    sync: async run => {
      run.transaction(async tx => {
        await sleep(50) // an answer of somebody else
        await tx.query('insert into orders values (1)')
      })
    }
  })
  t.match(await sync.runOnce(), { outcome: 'succeeded' })
  t.strictSame(await saved(), [1])
})

t.test('a call after the run has ended is refused', async t => {
  const stage = await setStage(t, cluster)
  let kept: SyncRun | undefined
  const { sync } = await stage.host({ sync: async run => { kept = run } })
  await sync.runOnce()
  await t.rejects(kept!.query('insert into orders values (1)'), { code: 'FST_HOURLY_SYNC_RUN_ENDED' })
  await t.rejects(kept!.transaction(async () => {}), { code: 'FST_HOURLY_SYNC_RUN_ENDED' })
  await t.rejects(kept!.client.query('insert into orders values (1)'), { code: 'FST_HOURLY_SYNC_RUN_ENDED' })
  t.strictSame(await saved(), [])
})

t.test('a call that comes after the sync has settled, but while its writes still land, is refused', async t => {
  const stage = await setStage(t, cluster)
  let late: Promise<unknown> | undefined
  const { sync } = await stage.host({
    sync: async run => {
      run.query('insert into orders select 1 from pg_sleep(0.3)')
      late = sleep(50).then(async () => await run.query('insert into orders values (2)')) // well within the write
      late.catch(() => {})
    }
  })
  await sync.runOnce()
  await t.rejects(late!, { code: 'FST_HOURLY_SYNC_RUN_ENDED' })
  t.strictSame(await saved(), [1])
})

t.test('a session of a run does not go back to the pool', async t => {
  const stage = await setStage(t, cluster)
  let backend
  const { sync, pool } = await stage.host({ sync: async run => { backend = (await run.query('select pg_backend_pid() as pid')).rows[0].pid } }, { max: 1 })
  await sync.runOnce()
  const { rows } = await pool.query('select pg_backend_pid() as pid')
  t.not(rows[0].pid, backend)
})

t.test('a logger that stops working in the middle changes nothing', async t => {
  const stage = await setStage(t, cluster)
  const { app, sync, log } = await stage.host({
    maxWindow: '1h',
    initialSince: '2h',
    sync: async () => {
      app.log.child = () => { throw new Error('disk full') }
      log.lines.push = () => { throw new Error('disk full') }
    }
  })
  t.match(await sync.runOnce(), { outcome: 'succeeded', run: { slice: 2, slices: 2 } })
  await until(async () => await stage.holders() === 0, 'the lock is free')
})

t.test('a pool that complains of what it is given back fails no run, and leaves neither lock nor rejection', async t => {
  const stage = await setStage(t, cluster)
  const { sync, pool } = await stage.host({}, { max: 2 }) // of which one is for syncs
  const { connect } = pool
  pool.connect = async () => {
    const client: any = await (connect as () => Promise<unknown>).call(pool)
    const { release } = client
    client.release = (destroy: any) => {
      release(destroy)
      throw new Error('not mine')
    }
    return client
  }
  for (const outcome of ['succeeded', 'not-due', 'not-due']) {
    t.match(await sync.runOnce(), { outcome })
    await until(async () => await stage.holders() === 0, 'the lock is free')
  }
})

t.test('a driver that does what nobody has foreseen fails the run, and leaves neither lock nor rejection', async t => {
  for (const heartbeat of ['1h', 100]) {
    const stage = await setStage(t, cluster)
    const { sync, pool } = await stage.host({
      heartbeat,
      sync: async run => {
        const [client] = (pool as any)._clients
        client.getTransactionStatus = () => { throw new Error('not today') }
        run.progress(1)
        if (heartbeat === 100) await new Promise(resolve => run.signal.addEventListener('abort', resolve))
      }
    })
    t.match(await sync.runOnce(), { outcome: heartbeat === 100 ? 'lock-lost' : 'failed', run: { error: { message: /not today/ } } })
    await until(async () => await stage.holders() === 0, 'the lock is free')
  }
})
