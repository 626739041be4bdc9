/** A sync that rejects while calls that nobody awaits any more are under way: its error is what the run came to, and nothing holds up the end. */
import { Readable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import type { HourlySyncOptions, SyncRun } from '../lib/types.js'
import { type Host, setStage, type Stage } from './helpers/host.js'
import { startPostgres } from './helpers/postgres.js'
import { gate, until } from './helpers/until.js'

const cluster = await startPostgres(t)
const key = { key: ['id'] }
const unhandled: unknown[] = []
const note = (reason: unknown): void => { unhandled.push(reason) }
process.on('unhandledRejection', note)
t.teardown(() => process.removeListener('unhandledRejection', note))

interface Scene extends Host { stage: Stage, table: string, stored: () => Promise<number[]> }

async function scene (t: Test, sync: (run: SyncRun, table: string) => unknown, options: Partial<HourlySyncOptions> = {}): Promise<Scene> {
  const stage = await setStage(t, cluster)
  const table = `public.t_${stage.schema}`
  await stage.query(`create table ${table} (id int primary key)`)
  const host = await stage.host({ ...options, sync: async run => { await sync(run, table) } })
  return { ...host, stage, table, stored: async () => (await stage.query(`select id from ${table} order by id`)).rows.map(({ id }) => id) }
}

/** Fails when it is told to. */
async function fail (when: Promise<unknown>): Promise<never> {
  await when
  throw new Error('the cause')
}

const failed = { outcome: 'failed', reason: 'the cause', run: { state: 'failed', error: { message: 'the cause' } } }

t.test('an endless generator is closed, and its upsert goes no further', async t => {
  const second = gate()
  let closed = 0
  let error: any
  let signal: AbortSignal | undefined
  async function * rows (): AsyncGenerator<object> {
    try {
      for (let id = 1; ; id++) {
        yield { id }
        if (id === 2) second.open()
        await sleep(10)
      }
    } finally {
      closed++
    }
  }
  const { sync, stored } = await scene(t, async (run, table) => {
    signal = run.signal
    await Promise.all([run.upsert(table, rows(), { ...key, batch: 1 }).catch(thrown => { error = thrown }), fail(second.passed)])
  })
  t.match(await sync.runOnce(), failed)
  await until(() => error)
  t.match(error, { code: 'FST_HOURLY_SYNC_RUN_ENDED' })
  await until(() => closed)
  const saved = await stored()
  t.ok(saved.length >= 1)
  await sleep(100) // in which an upsert that went on would have saved ten more
  t.strictSame(await stored(), saved)
  t.equal(closed, 1)
  t.match(signal, { aborted: true, reason: { message: 'the cause' } })
})

for (const [what, wait] of [['that never comes', async () => await new Promise(() => {})], ['that only the signal ends', async (run: SyncRun) => await run.sleep(3_600_000)]] as const) {
  t.test(`a generator that waits for something ${what} does not hold up the end`, async t => {
    const waits = gate()
    let closed = false
    async function * rows (run: SyncRun): AsyncGenerator<object> {
      try {
        yield { id: 1 }
        waits.open()
        await wait(run)
      } finally {
        closed = true
      }
    }
    let error: any
    const { sync, stage } = await scene(t, async (run, table) => {
      await Promise.all([run.upsert(table, rows(run), key).catch(thrown => { error = thrown }), fail(waits.passed)])
    })
    t.match(await sync.runOnce(), failed)
    t.match(error, { code: 'FST_HOURLY_SYNC_RUN_ENDED' })
    t.equal(closed, what === 'that only the signal ends')
    t.equal(await stage.holders(), 0)
    waits.open()
    t.match(await sync.runOnce({ force: true }), failed, 'and the next run can begin')
  })
}

t.test('a batch in flight is saved, and the one after it is not', async t => {
  const second = gate()
  let closed = false
  async function * rows (): AsyncGenerator<object> {
    try {
      yield { id: 1 }
      second.open()
      yield { id: 2 }
      yield { id: 3 }
    } finally {
      closed = true
    }
  }
  const { sync, stored } = await scene(t, async (run, table) => {
    await run.query(`create function ${table}_slow () returns trigger language plpgsql as 'begin perform pg_sleep(0.5); return null; end';
      create trigger slow after insert on ${table} execute function ${table}_slow()`)
    await Promise.all([run.upsert(table, rows(), { ...key, batch: 1 }), fail(second.passed.then(async () => await sleep(100)))])
  })
  t.match(await sync.runOnce(), failed)
  t.ok(closed)
  t.strictSame(await stored(), [1])
})

t.test('a stream is destroyed with its next chunk', async t => {
  const reads = gate()
  const stream = new Readable({ objectMode: true, read () { reads.open() } })
  const { sync } = await scene(t, async (run, table) => { await Promise.all([run.upsert(table, stream, key), fail(reads.passed)]) })
  t.match(await sync.runOnce(), failed)
  stream.push({ id: 1 })
  await until(() => stream.destroyed)
})

t.test('an endless generator that waits for nothing ends with its batch', async t => {
  const { sync } = await scene(t, async (run, table) => {
    function * rows (): Generator<object> { for (let id = 1; ; id++) yield { id } }
    await Promise.all([run.upsert(table, rows(), { ...key, batch: 10 }), fail(sleep(100))])
  })
  t.match(await sync.runOnce(), failed)
})

t.test('an iterator that is no generator is asked to return once, or cannot be', async t => {
  for (const canReturn of [true, false]) {
    const asked = gate()
    let returned = 0
    const rows = { [Symbol.asyncIterator]: () => ({ next: async () => { asked.open(); return await new Promise<never>(() => {}) }, ...(canReturn && { return: async () => { returned++; throw new Error('not now') } }) }) }
    const { sync } = await scene(t, async (run, table) => { await Promise.all([run.upsert(table, rows as any, key), fail(asked.passed)]) })
    t.match(await sync.runOnce(), failed)
    t.equal(returned, canReturn ? 1 : 0)
  }
})

t.test('a statement in flight ends, and those behind it are not sent', async t => {
  const calls: Array<Promise<unknown>> = []
  const { sync, stored } = await scene(t, async (run, table) => {
    calls.push(
      run.query(`insert into ${table} select 1 from pg_sleep(0.5)`),
      run.query(`insert into ${table} values (2)`),
      run.transaction(async tx => await tx.query(`insert into ${table} values (3)`)),
      run.upsert(table, [{ id: 4 }], key),
      run.checkpoint({ cursor: 5 }))
    await Promise.all([...calls, fail(sleep(100))])
  })
  t.match(await sync.runOnce(), failed)
  t.strictSame((await Promise.allSettled(calls)).map(({ status, reason }: any) => reason?.code ?? status), ['fulfilled', ...Array.from({ length: 4 }, () => 'FST_HOURLY_SYNC_RUN_ENDED')])
  t.strictSame(await stored(), [1])
})

t.test('a transaction that waits for somebody else is rolled back, and sends nothing more', async t => {
  const waits = gate()
  const on = gate()
  const late = gate<any>()
  const { sync, stored, stage } = await scene(t, async (run, table) => {
    const transaction = run.transaction(async tx => {
      await tx.query(`insert into ${table} values (1)`)
      waits.open()
      await on.passed
      await tx.query(`insert into ${table} values (2)`).catch(late.open)
    })
    await Promise.all([transaction, fail(waits.passed)])
  })
  t.match(await sync.runOnce(), failed)
  t.equal(await stage.holders(), 0)
  on.open()
  t.match(await late.passed, { code: 'FST_HOURLY_SYNC_RUN_ENDED' })
  t.strictSame(await stored(), [])
})

t.test('a transaction that is just beginning is rolled back, and its function not called', async t => {
  let called = false
  const begun = gate()
  const { sync } = await scene(t, async run => {
    const transaction = run.transaction(async () => {
      called = true
      await new Promise(() => {})
    })
    setImmediate(begun.open) // its answer takes longer
    await Promise.all([transaction, fail(begun.passed)])
  })
  t.match(await sync.runOnce(), failed)
  t.notOk(called)
})

t.test('statements of a transaction that wait behind one in flight are not sent', async t => {
  const ends: any[] = []
  const { sync, stored } = await scene(t, async (run, table) => {
    const transaction = run.transaction(async tx => {
      ends.push(...await Promise.allSettled([tx.query(`insert into ${table} select 1 from pg_sleep(0.5)`), tx.query(`insert into ${table} values (2)`)]))
    })
    await Promise.all([transaction, fail(sleep(100))])
  })
  t.match(await sync.runOnce(), failed)
  await until(() => ends.length)
  t.match(ends, [{ status: 'fulfilled' }, { reason: { code: 'FST_HOURLY_SYNC_RUN_ENDED' } }])
  t.strictSame(await stored(), [])
})

t.test('an upsert in a transaction that waits in its generator does not hold up the end', async t => {
  const waits = gate()
  async function * rows (): AsyncGenerator<object> {
    yield { id: 1 }
    waits.open()
    await new Promise(() => {})
  }
  const { sync, stored } = await scene(t, async (run, table) => {
    await Promise.all([run.transaction(async tx => await tx.upsert(table, rows(), { ...key, batch: 1 })), fail(waits.passed)])
  })
  t.match(await sync.runOnce(), failed)
  t.strictSame(await stored(), [])
})

t.test('the error of the sync stands, though its time is up before a statement in flight has ended', async t => {
  const { sync, log } = await scene(t, async (run) => { await Promise.all([run.query('select pg_sleep(1.5)'), fail(sleep(100))]) }, { timeout: 500, abandonAfter: '10s' })
  t.match(await sync.runOnce(), failed)
  t.strictSame(log.said('sync timed-out'), [])
})

t.test('nor does it matter that the session is then taken away', async t => {
  const { sync, stage } = await scene(t, async (run) => { await Promise.all([run.query('select pg_sleep(60)'), fail(sleep(100))]) }, { timeout: 300, abandonAfter: 300 })
  t.match(await sync.runOnce(), failed)
  await until(async () => await stage.holders() === 0)
})

t.test('nor that the app closes', async t => {
  const begun = gate()
  const { app, sync } = await scene(t, async (run) => { begun.open(); await Promise.all([run.query('select pg_sleep(60)'), fail(sleep(50))]) }, { closeTimeout: '1s' })
  const answer = await sync.trigger()
  await begun.passed
  await until(async () => (await sync.status()).aborted === 'failed')
  await app.close()
  t.match(answer.started && await answer.finished, { state: 'failed', error: { message: 'the cause' } })
})

t.test('with nothing under way the signal does not abort', async t => {
  let signal: AbortSignal | undefined
  const { sync, table } = await scene(t, async (run, table) => {
    signal = run.signal
    await run.upsert(table, [{ id: 1 }], key)
    await run.query(`insert into ${table} values (1)`)
  })
  t.match(await sync.runOnce(), { outcome: 'failed', run: { error: { code: '23505' } } }, table)
  t.equal(signal!.aborted, false)
})

t.test('a sync that resolves is waited for, however slow its generator', async t => {
  let signal: AbortSignal | undefined
  async function * rows (): AsyncGenerator<object> {
    for (let id = 1; id <= 3; id++) {
      await sleep(50)
      yield { id }
    }
  }
  const { sync, stored } = await scene(t, (run, table) => {
    signal = run.signal
    run.upsert(table, rows(), key)
  })
  t.match(await sync.runOnce(), { outcome: 'succeeded' })
  t.strictSame(await stored(), [1, 2, 3])
  t.equal(signal!.aborted, false)
})

t.test('a failure is told to the host with its own error, once', async t => {
  const told: any[] = []
  const { sync } = await scene(t, async (run, table) => {
    await Promise.all([run.upsert(table, (async function * () { yield { id: 1 }; await new Promise(() => {}) })(), key), run.upsert(table, [{ id: 'x' }], key)])
  }, { onError: error => { told.push(error) }, retry: false })
  t.match(await sync.runOnce(), { outcome: 'failed', run: { error: { code: 'FST_HOURLY_SYNC_UPSERT_INVALID_VALUE' } } })
  t.match(told, [{ code: 'FST_HOURLY_SYNC_UPSERT_INVALID_VALUE' }])
  t.equal(told.length, 1)
})

t.test('in all of this no rejection was unhandled', async t => {
  await new Promise(resolve => setImmediate(resolve))
  t.strictSame(unhandled, [])
})
