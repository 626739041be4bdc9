import t from 'tap'
import { instant, isRecorded, type Mark, markOf, parsed, toHolder, toRecord, unrecorded, worker } from '../lib/record.js'
import type { FinishRow, RunRow } from '../lib/sql.js'

const row: RunRow = {
  id: '3f0e8f0a-0d6e-4c1e-9d0f-5a4b8c2d1e00',
  name: 'orders',
  target: '',
  trigger: 'retry',
  state: 'failed',
  slot: '1710054000000',
  slice: 1,
  slices: 1,
  attempt: 2,
  window_start: '1710050400000',
  window_end: '1710054060001',
  started_at: '1710054060001',
  finished_at: '1710054061234',
  worker: 'web-1:42',
  stats: '{"orders":7}',
  error: '{"name":"Error","message":"no"}'
}

t.test('a row becomes a record with dates, a duration and parsed JSON', async t => {
  t.strictSame(toRecord(row), {
    id: row.id,
    name: 'orders',
    target: '',
    trigger: 'retry',
    state: 'failed',
    slot: new Date(1710054000000),
    slice: 1,
    slices: 1,
    attempt: 2,
    since: new Date(1710050400000),
    until: new Date(1710054060001),
    startedAt: new Date(1710054060001),
    finishedAt: new Date(1710054061234),
    duration: 1_233,
    worker: 'web-1:42',
    stats: { orders: 7 },
    error: { name: 'Error', message: 'no' }
  })
})

t.test('what a row leaves out is null in the record', async t => {
  t.match(toRecord({ ...row, slot: null, window_start: null, stats: null, error: null }), { slot: null, since: null, stats: null, error: null })
})

t.test('stats of null and no stats look the same', async t => {
  t.equal(toRecord({ ...row, stats: 'null' }).stats, null)
})

const begun = { id: row.id, slot: 1710054000000, trigger: 'schedule' as const, slice: 1, slices: 1, attempt: 1, since: 1710050400000, until: 1710054060001, at: 1710054060001 }

t.test('a run whose end the database did not take has the same shape', async t => {
  const record = unrecorded('orders', begun, 'lock-lost', 500, { name: 'Error', message: 'gone' })
  t.strictSame(Object.keys(record), Object.keys(toRecord(row)))
  t.match(record, { state: 'lock-lost', startedAt: new Date(begun.at), finishedAt: new Date(begun.at + 500), duration: 500, worker: `${worker.host}:${process.pid}`, error: { message: 'gone' } })
  t.strictSame(record.since, new Date(begun.since))
})

t.test('its first window is open at the start', async t => {
  t.equal(unrecorded('orders', { ...begun, since: null }, 'lock-lost', 500, null).since, null)
})

t.test('that of a backfill is for no slot', async t => {
  t.equal(unrecorded('orders', { ...begun, slot: null, trigger: 'backfill' }, 'lock-lost', 500, null).slot, null)
})

t.test('a holder is what the server shows and what the run noted', async t => {
  const shown = { backend: 77, connected: '1710054000.25', application_name: 'hourly-sync:orders@web-1:42', address: '10.0.0.1' }
  t.strictSame(toHolder(shown, { ...begun, host: 'web-1', pid: 42 }), {
    backend: 77,
    applicationName: 'hourly-sync:orders@web-1:42',
    address: '10.0.0.1',
    runId: begun.id,
    trigger: 'schedule',
    slot: new Date(begun.slot),
    startedAt: new Date(begun.at),
    host: 'web-1',
    pid: 42
  })
})

t.test('a holder without a note is something else of the same key', async t => {
  t.strictSame(toHolder({ backend: 77, connected: null, application_name: null, address: null }, null), {
    backend: 77, applicationName: null, address: null, runId: null, trigger: null, slot: null, startedAt: null, host: null, pid: null
  })
})

t.test('a mark is of who holds the lock when it names that very session', async t => {
  const mark: Mark = { ...begun, host: 'web-1', pid: 42, backend: 77, connected: '1710054000.25' }
  const { backend, connected, ...unnamed } = mark
  const holder = { backend: 77, connected: '1710054000.25', application_name: null, address: null }
  t.equal(markOf(holder, mark), mark)
  t.equal(markOf({ ...holder, backend: 78 }, mark), null, 'another process of the server')
  t.equal(markOf({ ...holder, connected: '1710054000.3' }, mark), null, 'another one that was given the same number')
  t.equal(markOf({ ...holder, connected: null }, mark), mark, 'this role is not shown when it began')
  t.equal(markOf(holder, unnamed), unnamed, 'of older code, which names none')
  t.equal(markOf(holder, null), null)
})

t.test('an instant is a date, down to the millisecond', async t => {
  t.strictSame(instant('1710054060001'), new Date(1710054060001))
  t.strictSame(instant('0'), new Date(0))
  t.equal(instant(null), null)
})

t.test('JSON of nothing is null', async t => {
  t.equal(parsed(null), null)
  t.strictSame(parsed('[0]'), [0])
})

t.test('an end is recorded only where the row says so', async t => {
  t.equal(isRecorded(undefined), false)
  t.equal(isRecorded({ recorded: false } as FinishRow), false)
  t.equal(isRecorded({ recorded: true } as FinishRow), true)
})
