import pg from 'pg'
import t from 'tap'
import hourlySync, { jsonNull } from '../index.js'
import type { SyncRun, Transaction } from '../lib/types.js'
import { setStage, type Host, type Stage } from './helpers/host.js'
import { startPostgres } from './helpers/postgres.js'
import { gate } from './helpers/until.js'

t.setTimeout(180_000)
const cluster = await startPostgres(t, { log_statement: 'all' })

type Test = Parameters<typeof setStage>[0]
interface Ran extends Stage { host1: Host, table: string, outcome: () => Promise<any>, stored: () => Promise<unknown[]> }

const key = { key: ['id'] }
const open = { status: 'open' }
const two = [{ id: 1, ...open }, { id: 2, ...open }]

/** A host whose sync is `sync`, and a table of orders. */
async function ready (t: Test, sync: (run: SyncRun, table: string) => unknown, options: object = {}): Promise<Ran> {
  const stage = await setStage(t, cluster)
  const table = `orders_${stage.schema}`
  await stage.query(`create table ${table} (id int primary key, status text check (status <> 'bad'), backend int not null default pg_backend_pid())`)
  const host1 = await stage.host({ sync: async run => { await sync(run, table) }, ...options })
  return {
    ...stage,
    host1,
    table,
    outcome: async () => await host1.sync.runOnce({ force: true }),
    stored: async () => (await stage.query(`select id, status from ${table} order by id`)).rows
  }
}

/** Rows one by one, and between two of them whatever a generator may do. */
async function * slowly (between: (id: number) => unknown, count = 4): AsyncGenerator<object> {
  for (let id = 1; id <= count; id++) {
    yield { id, ...open }
    await between(id)
  }
}

t.test('saves through the session that holds the lock, and says what it did', async t => {
  let counts: unknown
  let backend: unknown
  const { outcome, stored, query, table } = await ready(t, async (run, table) => {
    backend = (await run.query('select pg_backend_pid() as pid')).rows[0].pid
    await run.upsert(table, two, key)
    counts = await run.upsert(table, [{ id: 1, status: 'paid' }, { id: 2, ...open }, { id: 3, ...open }], key)
  })
  t.match(await outcome(), { outcome: 'succeeded' })
  t.strictSame(counts, { inserted: 1, updated: 1, unchanged: 1, stale: 0 })
  t.strictSame(await stored(), [{ id: 1, status: 'paid' }, { id: 2, ...open }, { id: 3, ...open }])
  t.strictSame((await query(`select distinct backend from ${table}`)).rows, [{ backend }])
})

t.test('with a direct lock session it goes through that one', async t => {
  let session: unknown
  const { outcome, query, table } = await ready(t, async (run, table) => {
    session = (await run.query("select pg_backend_pid() as backend, current_setting('my.way', true) as way")).rows[0]
    await run.upsert(table, two, key)
  }, { lock: { connectionString: cluster.url(), options: '-c my.way=direct' } })
  t.match(await outcome(), { outcome: 'succeeded' })
  t.strictSame((await query(`select distinct backend, 'direct' as way from ${table}`)).rows, [session])
})

t.test('the catalog is read once for a session, over its slices and transactions', async t => {
  const { outcome, table, host1 } = await ready(t, async (run, table) => {
    await run.upsert(table, two, key)
    await run.transaction(async tx => { await tx.upsert(table, two, key) })
  }, { maxWindow: '1h', initialSince: '3h' })
  t.match(await outcome(), { outcome: 'succeeded', run: { slices: 3 } })
  await host1.app.close()
  t.equal(cluster.log().split(`Parameters: $1 = '"${table}"'\n`).length + cluster.log().split(`parameters: $1 = '"${table}"'\n`).length - 2, 1)
})

t.test('a column or an index made in the run is found', async t => {
  const { outcome, query, table } = await ready(t, async (run, table) => {
    await run.upsert(table, two, key)
    await run.query(`alter table ${table} add column more int unique`)
    await run.upsert(table, [{ id: 3, more: 5 }], key)
    await run.upsert(table, [{ more: 5, id: 4 }], { key: ['more'] })
  })
  t.match(await outcome(), { outcome: 'succeeded' })
  t.strictSame((await query(`select id from ${table} where more = 5`)).rows, [{ id: 4 }])
})

t.test('what makes the rows may use the session between them', async t => {
  const { outcome, stored, state } = await ready(t, async (run, table) => {
    const rows = slowly(async id => {
      await run.query(`insert into ${table} values ($1, 'by hand')`, [100 + id])
      await run.checkpoint({ cursor: id })
    }, 2)
    await run.upsert(table, rows, { ...key, batch: 1 })
  })
  t.match(await outcome(), { outcome: 'succeeded' })
  t.strictSame(await stored(), [...two, { id: 101, status: 'by hand' }, { id: 102, status: 'by hand' }])
  t.match(await state(), { cursor: 2 })
})

t.test('an error has its row, and ends the run as failed', async t => {
  const { outcome, stored } = await ready(t, async (run, table) => { await run.upsert(table, [...two, { id: 3, status: 'bad' }], { ...key, batch: 2 }) })
  t.match(await outcome(), { outcome: 'failed', run: { error: { code: 'FST_HOURLY_SYNC_UPSERT_REFUSED_ROW', message: /^row 3 of 'orders_/ } } })
  t.strictSame(await stored(), two, 'the batch before stays')
})

t.test('no value reaches the log, the history or the status', async t => {
  const secret = 'hunter2'
  for (const [type, code] of [['date', 'INVALID_VALUE'], ['text unique', 'REFUSED_ROW'], ["text check (v <> 'hunter2')", 'REFUSED_ROW'], ['text, w text not null', 'REFUSED_ROW']] as const) {
    for (const inside of [false, true]) {
      const { outcome, host1, history } = await ready(t, async (run, table) => {
        await run.query(`create table ${table}_v (id int primary key, v ${type})`)
        if (type === 'text unique') await run.query(`insert into ${table}_v values (9, '${secret}')`)
        const rows = [{ id: 1, v: secret }]
        await (inside ? run.transaction(async tx => await tx.upsert(`${table}_v`, rows, key)) : run.upsert(`${table}_v`, rows, key))
      })
      const ended = await outcome()
      t.match(ended, { outcome: 'failed', run: { error: { code: `FST_HOURLY_SYNC_UPSERT_${code}` } } }, type)
      const shown = JSON.stringify([ended, host1.log.lines, await history(), await host1.sync.status(), await host1.sync.runs()])
      t.match(shown, 'sync failed')
      t.notMatch(shown, secret, `${type} ${inside ? 'in a transaction' : ''}`)
    }
  }
})

t.test('a partial unique index', async t => {
  const { outcome, query, table } = await ready(t, async (run, table) => {
    await run.query(`create table public.live_${table} (id int, status text, deleted_at timestamptz)`)
    await run.query(`create unique index live_${table}_key on public.live_${table} (id) where deleted_at is null`)
    await run.upsert(`public.live_${table}`, two, { ...key, index: `live_${table}_key` })
    await run.transaction(async tx => { await tx.upsert(`public.live_${table}`, [{ id: 2, status: 'paid' }], { ...key, index: `live_${table}_key` }) })
  })
  t.match(await outcome(), { outcome: 'succeeded' })
  t.strictSame((await query(`select id, status from public.live_${table} order by id`)).rows, [{ id: 1, status: 'open' }, { id: 2, status: 'paid' }])
})

t.test('JSON null and SQL NULL are two things', async t => {
  t.equal(hourlySync.jsonNull, jsonNull)
  const { outcome, query, table } = await ready(t, async (run, table) => {
    await run.query(`alter table ${table} add column details jsonb`)
    await run.upsert(table, [{ id: 1, details: null }, { id: 2, details: jsonNull }], key)
  })
  t.match(await outcome(), { outcome: 'succeeded' })
  t.strictSame((await query(`select id, details::text as text from ${table} order by id`)).rows, [{ id: 1, text: null }, { id: 2, text: 'null' }])
})

t.test('tx.upsert', async t => {
  t.test('is committed with its transaction', async t => {
    const { outcome, stored } = await ready(t, async (run, table) => {
      await run.transaction(async tx => {
        t.strictSame(await tx.upsert(table, two, key), { inserted: 2, updated: 0, unchanged: 0, stale: 0 })
        await tx.query(`update ${table} set status = 'paid' where id = 1`)
      })
    })
    t.match(await outcome(), { outcome: 'succeeded' })
    t.strictSame(await stored(), [{ id: 1, status: 'paid' }, { id: 2, ...open }])
  })

  t.test('is rolled back with it', async t => {
    const { outcome, stored } = await ready(t, async (run, table) => {
      await run.transaction(async tx => {
        await tx.upsert(table, two, key)
        throw new Error('no')
      })
    })
    t.match(await outcome(), { outcome: 'failed', run: { error: { message: 'no' } } })
    t.strictSame(await stored(), [])
  })

  t.test('that fails leaves the transaction usable, and what was sent beside it untouched', async t => {
    const { outcome, stored } = await ready(t, async (run, table) => {
      await run.transaction(async tx => {
        const failing = tx.upsert(table, [{ id: 1, status: 'bad' }], key)
        const beside = [5, 6, 7].map(async id => await tx.query(`insert into ${table} values ($1, 'beside')`, [id]))
        await t.rejects(failing, { code: 'FST_HOURLY_SYNC_UPSERT_REFUSED_ROW', row: 1 })
        await Promise.all(beside)
        await tx.upsert(table, two, key)
      })
    })
    t.match(await outcome(), { outcome: 'succeeded' })
    t.strictSame(await stored(), [...two, ...[5, 6, 7].map(id => ({ id, status: 'beside' }))])
  })

  t.test('rejects after its transaction', async t => {
    const { outcome, stored } = await ready(t, async (run, table) => {
      let kept: Transaction | undefined
      await run.transaction(tx => { kept = tx })
      await t.rejects(kept!.upsert(table, two, key), { code: 'FST_HOURLY_SYNC_TRANSACTION_ENDED' })
    })
    t.match(await outcome(), { outcome: 'succeeded' })
    t.strictSame(await stored(), [])
  })

  t.test('that nobody awaited goes no further than its transaction, and fails the run', async t => {
    const { outcome, stored } = await ready(t, async (run, table) => {
      const first = gate()
      const over = gate()
      await run.transaction(async tx => {
        tx.upsert(table, slowly(async id => { if (id === 2) { first.open(); await over.passed } }), { ...key, batch: 1 })
        await first.passed
      })
      over.open()
    })
    t.match(await outcome(), { outcome: 'failed', run: { error: { code: 'FST_HOURLY_SYNC_UNOBSERVED' } } })
    t.strictSame(await stored(), two)
  })
})

t.test('inside of run.transaction it rejects at once', async t => {
  const { outcome } = await ready(t, async (run, table) => {
    await run.transaction(async () => {
      await t.rejects(run.upsert(table, two, key), { code: 'FST_HOURLY_SYNC_NESTED', message: /^run\.upsert / })
    })
  })
  t.match(await outcome(), { outcome: 'succeeded' })
})

t.test('with a transaction left open by hand it rejects', async t => {
  const { outcome, stored } = await ready(t, async (run, table) => {
    await run.query('begin')
    await t.rejects(run.upsert(table, two, key), { code: 'FST_HOURLY_SYNC_OPEN_TRANSACTION', message: /before run\.upsert/ })
    await run.query('rollback')
  })
  t.match(await outcome(), { outcome: 'succeeded' })
  t.strictSame(await stored(), [])
})

t.test('after the end of the run it rejects', async t => {
  let ended: SyncRun | undefined
  const { outcome, table, stored } = await ready(t, run => { ended = run })
  await outcome()
  await t.rejects(ended!.upsert(table, two, key), { code: 'FST_HOURLY_SYNC_RUN_ENDED' })
  t.strictSame(await stored(), [])
})

t.test('when the lock is lost between two batches, the next one rejects, and the generator is closed', async t => {
  let closed = false
  let error: any
  const { outcome, stored } = await ready(t, async (run, table) => {
    async function * rows (): AsyncGenerator<object> {
      try {
        yield * slowly(async id => {
          if (id !== 2) return
          const { pid } = (await run.query('select pg_backend_pid() as pid')).rows[0]
          const lost = new Promise(resolve => run.signal.addEventListener('abort', resolve))
          await cluster.query('select pg_terminate_backend($1)', [pid])
          await lost
        })
      } finally {
        closed = true
      }
    }
    error = await run.upsert(table, rows(), { ...key, batch: 1 }).catch(error => error)
    await t.rejects(run.upsert(table, two, key), { code: 'FST_HOURLY_SYNC_LOCK_LOST' })
  })
  t.match(await outcome(), { outcome: 'lock-lost' })
  t.match(error, { code: 'FST_HOURLY_SYNC_LOCK_LOST' })
  t.ok(closed)
  t.strictSame(await stored(), two)
})

t.test('one that nobody awaited is waited for', async t => {
  const { outcome, stored } = await ready(t, (run, table) => { run.upsert(table, slowly(async () => await new Promise(resolve => setImmediate(resolve)), 2), { ...key, batch: 1 }) })
  t.match(await outcome(), { outcome: 'succeeded' })
  t.strictSame(await stored(), two)
})

t.test('one that failed and nobody awaited fails the run', async t => {
  const { outcome } = await ready(t, (run, table) => { run.upsert(table, [{ id: 1, status: 'bad' }], key) })
  t.match(await outcome(), { outcome: 'failed', run: { error: { code: 'FST_HOURLY_SYNC_UNOBSERVED', message: /run\.upsert/ } } })
})

t.test('a page may still be saved after an abort', async t => {
  const started = gate()
  const { host1, stored } = await ready(t, async (run, table) => {
    const aborted = new Promise(resolve => run.signal.addEventListener('abort', resolve))
    started.open()
    await aborted
    await run.upsert(table, two, key)
  })
  const answer = await host1.sync.trigger()
  await started.passed
  await host1.app.close()
  t.match(answer.started && await answer.finished, { state: 'interrupted' })
  t.strictSame(await stored(), two)
})

t.test('one that outlives its run goes no further', async t => {
  const on = gate()
  const late = gate<any>()
  const { outcome, stored } = await ready(t, async (run, table) => {
    const rows = slowly(async id => { if (id === 2) await on.passed })
    await run.upsert(table, rows, { ...key, batch: 1 }).catch(late.open)
  }, { timeout: '1s', abandonAfter: 0 })
  t.match(await outcome(), { outcome: 'timed-out' })
  on.open()
  t.match(await late.passed, { code: 'FST_HOURLY_SYNC_RUN_ENDED' })
  t.strictSame(await stored(), two)
})

for (const [how, options, end] of [
  ['closeTimeout', { closeTimeout: '1s' }, async ({ host1 }: Ran) => await host1.app.close()],
  ['abandonAfter', { timeout: '1s', abandonAfter: 0 }, async () => {}]
] as const) {
  t.test(`one that waits for a row says that the run has ended when ${how} cuts it off`, async t => {
    const waits = gate()
    const rejected = gate<any>()
    const ran = await ready(t, async (run, table) => {
      const upserted = run.upsert(table, two, key)
      waits.open()
      await upserted.catch(error => {
        rejected.open(error)
        throw error
      })
    }, options)
    const blocker = new pg.Client({ connectionString: cluster.url() })
    await blocker.connect()
    t.teardown(async () => await blocker.end())
    await blocker.query(`begin; insert into ${ran.table} values (1, 'by hand')`)
    const answer = await ran.host1.sync.trigger()
    await waits.passed
    await end(ran)
    t.match(await rejected.passed, { code: 'FST_HOURLY_SYNC_RUN_ENDED' })
    t.match(answer.started && await answer.finished, { state: how === 'closeTimeout' ? 'interrupted' : 'timed-out' })
  })
}
