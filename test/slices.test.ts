import { deepStrictEqual } from 'node:assert/strict'
import fc from 'fast-check'
import pg from 'pg'
import t, { type Test } from 'tap'
import type { SyncRun } from '../lib/types.js'
import { handClock } from './helpers/hand-clock.js'
import { type Host, setStage, type Stage } from './helpers/host.js'
import { startPostgres } from './helpers/postgres.js'
import { gate, until } from './helpers/until.js'

const cluster = await startPostgres(t)
const HOUR = 3_600_000

/** Hour and minute of a window's ends, and which slice it is. */
const told = (run: SyncRun): string => `${run.slice.index}/${run.slice.of} ${clockOf(run.since)}-${clockOf(run.until)}`
const clockOf = (date: Date | null): string => date === null ? 'null' : date.toISOString().slice(11, 16)

/** Stops who updates the row of the sync so that `when` holds, until the hurdle is lifted. */
async function setHurdle (t: Test, { schema, query }: Stage, when: string): Promise<{ met: () => Promise<unknown>, lift: () => Promise<unknown> }> {
  const client = new pg.Client({ connectionString: cluster.url() })
  await client.connect()
  t.teardown(async () => await client.end())
  const { rows: [{ pid }] } = await client.query('select pg_backend_pid() as pid, pg_advisory_lock(4, oid::int) from pg_namespace where nspname = $1', [schema])
  await query(`create function ${schema}.hurdle () returns trigger language plpgsql as $$ begin
      perform pg_advisory_xact_lock(4, '${schema}'::regnamespace::oid::int); return new; end $$;
    create trigger hurdle before update on ${schema}.sync for each row when (${when}) execute function ${schema}.hurdle()`)
  return {
    met: async () => await until(async () => (await query('select from pg_stat_activity where $1 = any (pg_blocking_pids(pid))', [pid])).rowCount! > 0),
    lift: async () => await client.query('select pg_advisory_unlock_all()')
  }
}

t.test('a gap longer than maxWindow is served in slices that partition it, the overlap taken off each start only', async t => {
  const stage = await setStage(t, cluster)
  const windows: string[] = []
  const { sync } = await stage.host({ maxWindow: '1h', overlap: '10m', sync: async run => { windows.push(told(run)) } })
  await stage.clock.at('2025-03-10T10:00:00Z')
  await sync.runOnce()
  await stage.clock.at('2025-03-10T13:30:00Z')
  t.match(await sync.runOnce(), { outcome: 'succeeded', run: { slice: 4, slices: 4 } })
  t.strictSame(windows, ['1/1 null-10:00', '1/4 09:50-11:00', '2/4 10:50-12:00', '3/4 11:50-13:00', '4/4 12:50-13:30'])
  const rows = (await stage.history()).slice(1)
  t.strictSame(rows.map(row => [row.slice, row.slices, row.state, row.trigger]), [1, 2, 3, 4].map(slice => [slice, 4, 'succeeded', 'catch-up']))
  t.strictSame(new Set(rows.map(row => row.slot.toISOString())), new Set(['2025-03-10T13:00:00.000Z']), 'all of one slot')
  t.equal(new Set(rows.map(row => row.id)).size, 4, 'each a run of its own')
  t.equal(await stage.holders(), 0)
})

t.test('an overlap longer than maxWindow does not keep slices from advancing', async t => {
  const stage = await setStage(t, cluster)
  const windows: string[] = []
  const { sync } = await stage.host({ maxWindow: '30m', overlap: '2h', sync: async run => { windows.push(told(run)) } })
  await stage.clock.at('2025-03-10T10:00:00Z')
  await sync.runOnce()
  await stage.clock.at('2025-03-10T11:15:00Z')
  await sync.runOnce()
  t.strictSame(windows.slice(1), ['1/3 08:00-10:30', '2/3 08:30-11:00', '3/3 09:00-11:15'])
})

t.test('a first run without a start is never sliced, one with a start is', async t => {
  const stage = await setStage(t, cluster)
  const windows: string[] = []
  const sync = async (run: SyncRun): Promise<void> => { windows.push(told(run)) }
  await stage.clock.at('2025-03-10T10:00:00Z')
  await (await stage.host({ maxWindow: '1h', sync })).sync.runOnce()
  await (await stage.host({ name: 'with a start', maxWindow: '1h', initialSince: '150m', sync })).sync.runOnce()
  t.strictSame(windows, ['1/1 null-10:00', '1/3 07:30-08:30', '2/3 08:20-09:30', '3/3 09:20-10:00'])
})

t.test('a failure in the middle resumes at the slice that failed, and the slot counts as served with the last', async t => {
  const stage = await setStage(t, cluster)
  const windows: string[] = []
  let failAt = 3
  const { sync } = await stage.host({
    maxWindow: '1h',
    overlap: 0,
    retry: { delay: 0 },
    sync: async run => {
      windows.push(told(run))
      if (run.slice.index === failAt) throw new Error('no')
    }
  })
  await stage.clock.at('2025-03-10T10:00:00Z')
  await sync.runOnce()
  await stage.clock.at('2025-03-10T15:00:00Z')
  t.match(await sync.runOnce(), { outcome: 'failed', run: { slice: 3, slices: 5 } })
  t.strictSame((await stage.state()).watermark, new Date('2025-03-10T12:00:00Z'))
  t.strictSame((await stage.state()).last_slot, new Date('2025-03-10T10:00:00Z'), 'the slot is not served')
  failAt = 0
  t.match(await sync.runOnce(), { outcome: 'succeeded', run: { trigger: 'retry', attempt: 2 } })
  t.strictSame(windows.slice(4), ['1/3 12:00-13:00', '2/3 13:00-14:00', '3/3 14:00-15:00'], 'counted anew')
  t.strictSame((await stage.state()).last_slot, new Date('2025-03-10T15:00:00Z'))
})

t.test('a slice that keeps the watermark is the last of its run, and serves its slot', async t => {
  const stage = await setStage(t, cluster)
  let runs = 0
  const { sync } = await stage.host({ maxWindow: '1h', sync: async () => { runs++; return { advance: false } }, initialSince: '5h' })
  t.match(await sync.runOnce(), { outcome: 'succeeded', run: { slice: 1 } })
  t.equal(runs, 1)
  t.match(await stage.state(), { watermark: null, last_slot: new Date('2025-03-10T10:00:00Z'), succeeded_at: Date })
  t.match(await sync.runOnce(), { outcome: 'not-due', reason: 'served' })
})

t.test('timeout is per slice', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({
    maxWindow: '1h',
    initialSince: '4h',
    timeout: '3s',
    sync: async run => {
      await run.sleep(1_000) // four of them are longer than the timeout of one
    }
  })
  t.match(await sync.runOnce(), { outcome: 'succeeded', run: { slice: 4 } })
})

t.test('what a run was given of the session ends with its slice', async t => {
  const stage = await setStage(t, cluster)
  let first: SyncRun | undefined
  const { sync } = await stage.host({
    maxWindow: '1h',
    initialSince: '2h',
    sync: async run => {
      first ??= run
      if (run.slice.index === 2) {
        await t.rejects(first.query('select 1'), { code: 'FST_HOURLY_SYNC_RUN_ENDED' })
        t.match(await run.query('select 1 as one'), { rows: [{ one: 1 }] })
      }
    }
  })
  t.match(await sync.runOnce(), { outcome: 'succeeded', run: { slice: 2 } })
})

t.test('the lock is held from the first slice to the last', async t => {
  const stage = await setStage(t, cluster)
  const other = await stage.host()
  const seen: unknown[] = []
  const { sync } = await stage.host({ maxWindow: '1h', initialSince: '3h', sync: async () => { seen.push((await other.sync.runOnce({ force: true })).outcome) } })
  await sync.runOnce()
  t.strictSame(seen, ['running', 'running', 'running'])
})

t.test('a close between slices begins no further one', async t => {
  const stage = await setStage(t, cluster)
  const started = gate()
  const host = await stage.host({ maxWindow: '1h', initialSince: '3h', sync: async run => { started.open(); await run.sleep(60_000) } })
  const answer = await host.sync.trigger()
  await started.passed
  await host.app.close()
  t.match(answer.started && await answer.finished, { state: 'interrupted', slice: 1 })
  t.equal((await stage.history()).length, 1)
})

t.test('a close is not held up by a slice that cannot begin', async t => {
  const stage = await setStage(t, cluster)
  const { app, sync } = await stage.host({ maxWindow: '1h', initialSince: '3h', closeTimeout: '1s' })
  await stage.host({ name: 'other' }).then(async other => await other.sync.runOnce()) // makes the tables
  const hurdle = await setHurdle(t, stage, "new.started->>'slice' = '2'")
  const answer = await sync.trigger()
  await hurdle.met()
  await app.close() // the pool waits for its last client
  t.match(answer.started && await answer.finished, { state: 'succeeded', slice: 1 })
  await hurdle.lift()
})

t.test('a slice that cannot begin is given up after ten seconds', async t => {
  const stage = await setStage(t, cluster)
  const hands = handClock()
  await stage.host({ name: 'other' }).then(async other => await other.sync.runOnce()) // makes the tables
  const { sync, log } = stage.bare({ maxWindow: '1h', initialSince: '3h' }, hands)
  const hurdle = await setHurdle(t, stage, "new.started->>'slice' = '2'")
  const ended = sync.runOnce()
  await hurdle.met()
  await hands.advance(10_000)
  t.match(await ended, { outcome: 'succeeded', run: { slice: 1, slices: 3 } })
  t.match(log.said('the next slice could not begin'), [{ err: { code: 'FST_HOURLY_SYNC_UNAVAILABLE' } }])
  await hurdle.lift()
  await until(async () => await stage.holders() === 0)
})

t.test('a session lost as a further slice begins leaves the slot due, and no lock', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({ maxWindow: '1h', initialSince: '3h' })
  await stage.clock.at('2025-03-10T10:00:00Z')
  t.equal((await sync.runOnce()).outcome, 'succeeded')
  await stage.query(`create function ${stage.schema}.die () returns trigger language plpgsql as 'begin perform pg_terminate_backend(pg_backend_pid()); return null; end';
    create trigger die after update on ${stage.schema}.sync for each row when ((new.started->>'slice')::int = 2) execute function ${stage.schema}.die()`)
  await stage.clock.at('2025-03-10T13:00:00Z')
  t.match(await sync.runOnce(), { outcome: 'succeeded', run: { slice: 1, slices: 3 } }, 'what was recorded stands')
  await stage.query(`drop function ${stage.schema}.die () cascade`)
  await until(async () => await stage.holders() === 0, 'the server has let go of the lock')
  t.match(await sync.runOnce(), { outcome: 'succeeded', run: { slice: 2, slices: 2 } }, 'the next look goes on')
})

t.test('all slices go through one session', async t => {
  const stage = await setStage(t, cluster)
  const backends = new Set<number>()
  const { sync } = await stage.host({ maxWindow: '1h', initialSince: '3h', sync: async run => { backends.add((await run.query('select pg_backend_pid() as pid')).rows[0].pid) } })
  t.match(await sync.runOnce(), { outcome: 'succeeded', run: { slice: 3 } })
  t.equal(backends.size, 1)
})

t.test('a slice is given the cursor that the one before returned or committed', async t => {
  const stage = await setStage(t, cluster)
  const cursors: unknown[] = []
  const { sync } = await stage.host({
    maxWindow: '1h',
    initialSince: '4h',
    sync: async run => {
      cursors.push(run.cursor)
      if (run.slice.index === 1) return { cursor: 'returned' }
      if (run.slice.index === 2) await run.checkpoint({ cursor: 'committed' })
    }
  })
  t.match(await sync.runOnce(), { outcome: 'succeeded', run: { slice: 4 } })
  t.strictSame(cursors, [null, 'returned', 'committed', 'committed'])
})

t.test('a lock lost in the middle resumes at the slice that was under way', async t => {
  const stage = await setStage(t, cluster)
  const windows: string[] = []
  const settled = gate()
  let dies = true
  const { sync } = await stage.host({
    maxWindow: '1h',
    overlap: '10m',
    sync: async run => {
      windows.push(told(run))
      if (run.slice.index !== 2 || !dies) return
      const aborted = new Promise(resolve => run.signal.addEventListener('abort', resolve))
      await cluster.query('select pg_terminate_backend($1)', [(await run.query('select pg_backend_pid() as pid')).rows[0].pid])
      await aborted
      settled.open()
    }
  })
  await stage.clock.at('2025-03-10T10:00:00Z')
  await sync.runOnce()
  await stage.clock.at('2025-03-10T13:00:00Z')
  t.match(await sync.runOnce(), { outcome: 'lock-lost', run: { slice: 2, slices: 3 } })
  dies = false
  await settled.passed // until then this process takes no other
  await until(async () => await stage.holders() === 0, 'the server has let go of the lock')
  t.match(await sync.runOnce(), { outcome: 'succeeded' })
  t.strictSame(windows.slice(2), ['2/3 10:50-12:00', '1/2 10:50-12:00', '2/2 11:50-13:00'])
})

t.test('whatever gap, maxWindow and overlap are, slices partition the time since the watermark', async t => {
  const stage = await setStage(t, cluster)
  const minutes = fc.integer({ min: 1, max: 300 })
  let windows: Array<[number | null, number]> = []
  let turn = 0
  await fc.assert(fc.asyncProperty(minutes, minutes.map(length => length + 20), fc.integer({ min: 0, max: 300 }), async (gap, length, overlap) => {
    const MINUTE = 60_000
    const start = Date.UTC(2025, 2, 10, 10)
    const { sync, app } = await stage.host({
      name: `partition ${++turn}`, maxWindow: `${length}m`, overlap: overlap * MINUTE, initialSince: new Date(start), sync: async run => { windows.push([run.since!.getTime(), run.until.getTime()]) }
    })
    windows = []
    await stage.clock.at(new Date(start).toISOString())
    await sync.runOnce({ force: true })
    windows = []
    await stage.clock.at(new Date(start + gap * MINUTE).toISOString())
    await sync.runOnce({ force: true })
    await app.close()
    const ends = windows.map(([, until]) => until)
    const expected = Array.from({ length: Math.ceil(gap / length) }, (_, i) => start + Math.min(gap, (i + 1) * length) * MINUTE)
    deepStrictEqual(ends, expected)
    deepStrictEqual(windows.map(([since]) => since), [start, ...expected.slice(0, -1)].map(at => at - overlap * MINUTE))
  }), { numRuns: process.env.SOAK === 'true' ? 200 : 15 })
})

t.test('checkpoint', async t => {
  t.test('keeps what a run has done before it fails', async t => {
    const stage = await setStage(t, cluster)
    const windows: unknown[] = []
    const cursors: unknown[] = []
    let fails = true
    const { sync } = await stage.host({
      overlap: '10m',
      retry: { delay: 0 },
      sync: async run => {
        windows.push(told(run))
        cursors.push(run.cursor)
        if (run.since === null) return
        await run.checkpoint({ until: new Date('2025-03-10T11:30:00Z'), cursor: { page: 3 } })
        if (fails) throw new Error('no')
      }
    })
    await stage.clock.at('2025-03-10T10:00:00Z')
    await sync.runOnce()
    await stage.clock.at('2025-03-10T12:00:00Z')
    t.match(await sync.runOnce(), { outcome: 'failed' })
    fails = false
    t.match(await sync.runOnce(), { outcome: 'succeeded' })
    t.strictSame(windows, ['1/1 null-10:00', '1/1 09:50-12:00', '1/1 11:20-12:00'])
    t.strictSame(cursors, [null, null, { page: 3 }])
  })

  t.test('can keep the cursor alone', async t => {
    const stage = await setStage(t, cluster)
    const { sync } = await stage.host({ sync: async run => { await run.checkpoint({ cursor: 7 }); throw new Error('no') } })
    await sync.runOnce()
    t.match(await stage.state(), { cursor: 7, watermark: null })
  })

  t.test('of a first run, which has no start, may be anywhere before its end', async t => {
    const stage = await setStage(t, cluster)
    await stage.clock.at('2025-03-10T12:00:00Z')
    const reached = new Date('2020-01-01T00:00:00Z')
    const { sync } = await stage.host({ sync: async run => { await run.checkpoint({ until: reached }); throw new Error('no') } })
    t.equal((await sync.runOnce()).outcome, 'failed')
    t.strictSame((await stage.state()).watermark, reached)
  })

  t.test('never moves the watermark back', async t => {
    const stage = await setStage(t, cluster)
    const { sync } = await stage.host({
      overlap: '1h',
      sync: async run => {
        if (run.since === null) return
        await run.checkpoint({ until: run.since })
        throw new Error('no')
      }
    })
    await stage.clock.at('2025-03-10T10:00:00Z')
    await sync.runOnce()
    await stage.clock.at('2025-03-10T11:00:00Z')
    await sync.runOnce()
    t.strictSame((await stage.state()).watermark, new Date('2025-03-10T10:00:00Z'))
  })

  for (const [what, until] of [['after the window', new Date('2025-03-10T12:00:01Z')], ['before it', new Date('2025-03-10T09:00:00Z')], ['no date', 'tomorrow'], ['an invalid date', new Date(NaN)]] as const) {
    t.test(`refuses ${what}`, async t => {
      const stage = await setStage(t, cluster)
      await stage.clock.at('2025-03-10T12:00:00Z')
      const { sync } = await stage.host({ initialSince: '1h', sync: async run => { await run.checkpoint({ until: until as Date }) } })
      t.match(await sync.runOnce(), { outcome: 'failed', run: { error: { code: 'FST_HOURLY_SYNC_INVALID_OPTION' } } })
    })
  }

  t.test('refuses a cursor that cannot be stored', async t => {
    const stage = await setStage(t, cluster)
    const { sync } = await stage.host({ sync: async run => { await run.checkpoint({ cursor: 'a\0b' }) } })
    t.match(await sync.runOnce(), { outcome: 'failed', run: { error: { code: 'FST_HOURLY_SYNC_INVALID_RESULT' } } })
  })

  t.test('inside a transaction that was begun by hand is refused, and the transaction goes on', async t => {
    const stage = await setStage(t, cluster)
    const { sync } = await stage.host({
      sync: async run => {
        await run.query('begin')
        await run.query(`create table ${stage.schema}.made ()`)
        await t.rejects(run.checkpoint({ cursor: 1 }), { code: 'FST_HOURLY_SYNC_OPEN_TRANSACTION', message: /before run\.checkpoint/ })
        await run.query('commit')
        await run.checkpoint({ cursor: 2 })
        await run.query('begin')
        await run.query('rollback')
        throw new Error('no')
      }
    })
    t.match(await sync.runOnce(), { outcome: 'failed', reason: 'no' })
    t.equal((await stage.state()).cursor, 2)
    await t.resolves(stage.query(`select from ${stage.schema}.made`))
  })

  t.test('inside run.transaction is refused, and the transaction goes on', async t => {
    const stage = await setStage(t, cluster)
    const { sync } = await stage.host({
      sync: async run => {
        await run.transaction(async tx => {
          await tx.query(`create table ${stage.schema}.made ()`)
          await t.rejects(run.checkpoint({ cursor: 1 }), { code: 'FST_HOURLY_SYNC_NESTED', message: /run\.checkpoint/ })
        })
      }
    })
    t.match(await sync.runOnce(), { outcome: 'succeeded' })
    t.equal((await stage.state()).cursor, null)
    await t.resolves(stage.query(`select from ${stage.schema}.made`))
  })

  t.test('of a run whose lock is gone is the end of it', async t => {
    const stage = await setStage(t, cluster)
    const { sync } = await stage.host({ sync: async run => { await run.query('select pg_advisory_unlock_all()'); await run.checkpoint({ cursor: 1 }) } })
    t.match(await sync.runOnce(), { outcome: 'lock-lost' })
    t.equal((await stage.state()).cursor, null)
  })
})

t.test('backfill', async t => {
  const since = new Date('2025-01-01T00:00:00Z')
  const upTo = new Date(since.getTime() + 5 * HOUR)

  t.test('fetches its window in slices, and moves neither watermark nor cursor nor last slot', async t => {
    const stage = await setStage(t, cluster)
    const windows: string[] = []
    const { sync } = await stage.host({
      maxWindow: '2h',
      sync: async run => {
        if (run.trigger === 'backfill') windows.push(`${told(run)} ${run.slot} ${run.cursor} ${run.missedSlots}`)
        return { cursor: run.trigger, stats: { rows: 1 } }
      }
    })
    await sync.runOnce()
    const before = await stage.state()
    const answer = await sync.backfill({ since, until: upTo })
    t.match(answer.started && await answer.finished, { state: 'succeeded', trigger: 'backfill', slot: null, slice: 3, slices: 3, stats: { rows: 1 } })
    t.strictSame(windows, ['1/3 00:00-02:00 null null 0', '2/3 02:00-04:00 null null 0', '3/3 04:00-05:00 null null 0'])
    const after = await stage.state()
    for (const column of ['watermark', 'cursor', 'last_slot', 'succeeded_at', 'attempts', 'backfill']) t.strictSame(after[column], before[column], column)
    t.equal(await stage.holders(), 0)
  })

  t.test('without maxWindow is one run', async t => {
    const stage = await setStage(t, cluster)
    const { sync } = await stage.host()
    const answer = await sync.backfill({ since, until: upTo })
    t.match(answer.started && await answer.finished, { slice: 1, slices: 1, since, until: upTo })
  })

  t.test('goes on where a failure left it, with the same window or with none', async t => {
    const stage = await setStage(t, cluster)
    const windows: string[] = []
    let failAt = '02:00'
    const { sync } = await stage.host({
      maxWindow: '1h',
      sync: async run => {
        windows.push(told(run))
        if (clockOf(run.since) === failAt) throw new Error('no')
      }
    })
    await sync.runOnce()
    windows.length = 0
    const first = await sync.backfill({ since, until: upTo })
    t.match(first.started && await first.finished, { state: 'failed', slice: 3 })
    t.match(await sync.status(), { backfill: { since, until: upTo, position: new Date(since.getTime() + 2 * HOUR) } })
    failAt = '03:00'
    const second = await sync.backfill({ since, until: upTo })
    t.match(second.started && await second.finished, { state: 'failed' })
    failAt = ''
    const third = await sync.backfill()
    t.match(third.started && await third.finished, { state: 'succeeded' })
    t.strictSame(windows, ['1/5 00:00-01:00', '2/5 01:00-02:00', '3/5 02:00-03:00', '1/3 02:00-03:00', '2/3 03:00-04:00', '1/2 03:00-04:00', '2/2 04:00-05:00'])
    t.match(await sync.status(), { backfill: null })
    t.equal((await stage.state()).attempts, 0, 'its failures use no attempt up')
  })

  t.test('goes on where a process died', async t => {
    const stage = await setStage(t, cluster)
    const { sync } = await stage.host({ maxWindow: '1h' })
    await sync.runOnce()
    const left = { since: since.getTime(), until: upTo.getTime(), position: since.getTime() + 4 * HOUR }
    await stage.query(`update ${stage.schema}.sync set backfill = $1, started = $2`, [left, {
      id: '7f3f1f0e-1c39-4d0e-9d54-6a1b0c1f0a01', slot: null, trigger: 'backfill', slice: 5, slices: 5, attempt: 1, since: left.position, until: left.until, host: 'gone', pid: 1, at: Date.UTC(2025, 2, 10, 9)
    }])
    const answer = await sync.backfill()
    t.match(answer.started && await answer.finished, { state: 'succeeded', slice: 1, slices: 1, since: new Date(left.position) })
    t.match((await stage.history()).find(row => row.state === 'vanished'), { trigger: 'backfill', slot: null, slice: 5, worker: 'gone:1' })
  })

  t.test('serves a slot that becomes due between its slices, on the same session', async t => {
    const stage = await setStage(t, cluster)
    await stage.clock.at('2025-03-10T10:00:00Z')
    const order: string[] = []
    const backends = new Set<number>()
    const { sync } = await stage.host({
      maxWindow: '1h',
      sync: async run => {
        order.push(run.trigger)
        backends.add((await run.query('select pg_backend_pid() as pid')).rows[0].pid)
        if (order.length === 2) await stage.clock.at('2025-03-10T11:00:00Z') // of the backfill the first slice
        if (run.trigger === 'schedule' && order.length > 1) throw new Error('a failed slot does not end the backfill')
      }
    })
    await sync.runOnce()
    backends.clear()
    const answer = await sync.backfill({ since, until: new Date(since.getTime() + 3 * HOUR) })
    t.match(answer.started && await answer.finished, { state: 'succeeded', trigger: 'backfill', slice: 3 })
    t.strictSame(order, ['schedule', 'backfill', 'schedule', 'backfill', 'backfill'])
    t.equal(backends.size, 1)
  })

  /** A backfill during which a slot becomes due, and what that one does is deaf to its timeout. */
  async function backfillBeside (t: Test, dueSlot: (run: SyncRun) => Promise<void>): Promise<Host> {
    const stage = await setStage(t, cluster)
    await stage.clock.at('2025-03-10T10:00:00Z')
    const order: string[] = []
    const host = await stage.host({
      maxWindow: '1h',
      timeout: 2_000,
      abandonAfter: 100,
      sync: async run => {
        order.push(run.trigger)
        if (run.trigger === 'backfill') await stage.clock.at('2025-03-10T11:00:00Z')
        else if (order.length > 1) await dueSlot(run)
      }
    })
    await host.sync.runOnce()
    const answer = await host.sync.backfill({ since, until: upTo })
    t.match(answer.started && await answer.finished, { state: 'succeeded', trigger: 'backfill', slice: 1 })
    t.strictSame(order, ['schedule', 'backfill', 'schedule'])
    return host
  }

  t.test('begins no further slice beside a due slot that ignores its timeout', async t => {
    const on = gate()
    const { sync } = await backfillBeside(t, async () => await on.passed)
    t.match(await sync.trigger(), { started: false, reason: 'running' }, 'this process takes no other run before it settles')
    t.match(await sync.status(), { backfill: { position: new Date(since.getTime() + HOUR) } }, 'and the backfill can be resumed')
    on.open()
    await until(async () => (await sync.trigger()).started)
  })

  t.test('begins no further slice on a session that was taken from a due slot', async t => {
    const { log } = await backfillBeside(t, async run => await run.transaction(async tx => { for (;;) await tx.query('select pg_sleep(0.01)') }))
    t.strictSame(log.said('the next slice could not begin'), [])
  })

  t.test('ends with its signal, and can be resumed', async t => {
    const stage = await setStage(t, cluster)
    const started = gate()
    const stop = new AbortController()
    const { sync } = await stage.host({ maxWindow: '1h', sync: async run => { if (run.slice.index === 2) { started.open(); await run.sleep(60_000) } } })
    const answer = await sync.backfill({ since, until: upTo, signal: stop.signal })
    await started.passed
    stop.abort(new Error('enough'))
    t.match(answer.started && await answer.finished, { state: 'interrupted', slice: 2, error: { message: 'enough' } })
    t.match(await sync.status(), { backfill: { position: new Date(since.getTime() + HOUR) } })
    t.strictSame(await sync.backfill({ signal: stop.signal }), { started: false, reason: 'stopped' })
    t.match(await sync.status(), { backfill: { position: new Date(since.getTime() + HOUR) } }, 'which has changed nothing')
  })

  t.test('is interrupted by a close, and goes on in another process', async t => {
    const stage = await setStage(t, cluster)
    const started = gate()
    const one = await stage.host({ maxWindow: '1h', sync: async run => { if (run.slice.index === 3) { started.open(); await run.sleep(60_000) } } })
    const answer = await one.sync.backfill({ since, until: upTo })
    await started.passed
    await one.app.close()
    t.match(answer.started && await answer.finished, { state: 'interrupted', trigger: 'backfill', slice: 3 })
    const windows: string[] = []
    const two = await stage.host({ maxWindow: '1h', sync: async run => { windows.push(told(run)) } })
    const rest = await two.sync.backfill()
    t.match(rest.started && await rest.finished, { state: 'succeeded' })
    t.strictSame(windows, ['1/3 02:00-03:00', '2/3 03:00-04:00', '3/3 04:00-05:00'])
  })

  t.test('of another window begins with that one', async t => {
    const stage = await setStage(t, cluster)
    let fails = true
    const windows: string[] = []
    const { sync } = await stage.host({ maxWindow: '1h', sync: async run => { windows.push(told(run)); if (fails && run.slice.index === 2) throw new Error('no') } })
    await sync.runOnce()
    windows.length = 0
    const first = await sync.backfill({ since, until: upTo })
    t.match(first.started && await first.finished, { state: 'failed' })
    fails = false
    const other = await sync.backfill({ since, until: new Date(since.getTime() + 2 * HOUR) })
    t.match(other.started && await other.finished, { state: 'succeeded', slice: 2, slices: 2 })
    t.strictSame(windows.slice(2), ['1/2 00:00-01:00', '2/2 01:00-02:00'])
    t.match(await sync.status(), { backfill: null })
  })

  t.test('reports its progress', async t => {
    const stage = await setStage(t, cluster)
    const started = gate()
    const end = gate()
    const { sync } = await stage.host({ maxWindow: '1h', sync: async run => { if (run.slice.index === 2) { run.progress(3, 9); started.open(); await end.passed } } })
    const answer = await sync.backfill({ since, until: upTo })
    await started.passed
    t.match(await sync.status(), { syncing: true, progress: { done: 3, total: 9 }, backfill: { position: new Date(since.getTime() + HOUR) } })
    end.open()
    t.match(answer.started && await answer.finished, { state: 'succeeded' })
  })

  t.test('whose signal aborts while it begins ends with its first slice', async t => {
    const stage = await setStage(t, cluster)
    const { sync } = await stage.host({ maxWindow: '1h', sync: async run => { await run.sleep(60_000) } })
    await stage.host().then(async other => await other.sync.runOnce()) // makes the tables
    const stop = new AbortController()
    const hurdle = await setHurdle(t, stage, "new.started->>'trigger' = 'backfill'")
    const answering = sync.backfill({ since, until: upTo, signal: stop.signal })
    await hurdle.met()
    stop.abort(new Error('enough'))
    await hurdle.lift()
    const answer = await answering
    t.match(answer.started && await answer.finished, { state: 'interrupted', slice: 1, error: { message: 'enough' } })
  })

  t.test('whose signal aborts while it waits for a connection does not start', async t => {
    const stage = await setStage(t, cluster)
    const { sync, pool } = await stage.host({}, { max: 1 })
    const taken = await pool.connect()
    const stop = new AbortController()
    const answering = sync.backfill({ since, until: upTo, signal: stop.signal })
    await until(() => pool.waitingCount === 1)
    stop.abort(new Error('enough'))
    t.match(await answering, { started: false, reason: 'stopped' })
    taken.release()
  })

  t.test('that is ended while a due slot is served in between begins no further slice', async t => {
    const stage = await setStage(t, cluster)
    await stage.clock.at('2025-03-10T10:00:00Z')
    const stop = new AbortController()
    const order: string[] = []
    const { sync } = await stage.host({
      maxWindow: '1h',
      sync: async run => {
        order.push(run.trigger)
        if (run.trigger === 'backfill') await stage.clock.at('2025-03-10T11:00:00Z')
        else if (order.length > 1) stop.abort(new Error('enough'))
      }
    })
    await sync.runOnce()
    const answer = await sync.backfill({ since, until: upTo, signal: stop.signal })
    t.match(answer.started && await answer.finished, { state: 'succeeded', trigger: 'backfill', slice: 1 })
    t.strictSame(order, ['schedule', 'backfill', 'schedule'], 'the slot was served to its end')
    t.match(await sync.status(), { backfill: { position: new Date(since.getTime() + HOUR) } })
  })

  for (const [what, end] of [['its signal', 'signal'], ['a close', 'close']] as const) {
    t.test(`that meets ${what} while a further slice begins ends with that slice`, async t => {
      const stage = await setStage(t, cluster)
      const stop = new AbortController()
      const { app, sync } = await stage.host({ maxWindow: '1h', sync: async run => { if (run.slice.index === 2) await run.sleep(60_000) } })
      await sync.runOnce()
      const hurdle = await setHurdle(t, stage, "new.started->>'slice' = '2'")
      const answer = await sync.backfill({ since, until: upTo, signal: stop.signal })
      await hurdle.met()
      const closed = end === 'close' ? app.close() : stop.abort(new Error('enough'))
      await hurdle.lift()
      t.match(answer.started && await answer.finished, { state: 'interrupted', slice: 2 })
      await closed
    })
  }

  t.test('checkpoints its own position', async t => {
    const stage = await setStage(t, cluster)
    const at = new Date(since.getTime() + HOUR)
    const { sync } = await stage.host({ sync: async run => { await run.checkpoint({ until: at, cursor: 1 }); throw new Error('no') } })
    const answer = await sync.backfill({ since, until: upTo })
    t.match(answer.started && await answer.finished, { state: 'failed' })
    t.match(await stage.state(), { watermark: null, cursor: null, backfill: { position: at.getTime() } })
  })

  t.test('says honestly that a run is under way', async t => {
    const stage = await setStage(t, cluster)
    const started = gate()
    const end = gate()
    const { sync } = await stage.host({ sync: async () => { started.open(); await end.passed } })
    await sync.trigger()
    await started.passed
    t.match(await sync.backfill({ since, until: upTo }), { started: false, reason: 'running' })
    end.open()
  })

  for (const [what, options] of [
    ['a window that is none', { since: upTo, until: since }],
    ['half a window', { since }],
    ['what is no date', { since: 'yesterday', until: upTo }],
    ['nothing to resume', {}]
  ] as const) {
    t.test(`refuses ${what}`, async t => {
      const stage = await setStage(t, cluster)
      const { sync } = await stage.host()
      await sync.runOnce()
      await t.rejects(sync.backfill(options as object), { code: 'FST_HOURLY_SYNC_INVALID_OPTION' })
    })
  }
})
