import t, { type Test } from 'tap'
import { startPostgres } from './helpers/postgres.js'
import { openSchema } from './helpers/upsert.js'

const cluster = await startPostgres(t)
const open = async (t: Test, ...statements: string[]): ReturnType<typeof openSchema> => await openSchema(t, cluster.url(), ...statements)
const key = { key: ['id'] }
const versions = 'select id::text, v, xmin::text, xmax::text from r order by id'

t.test('keys that the database takes for equal, in batches apart: the last wins, and a second call writes nothing', async t => {
  for (const [type, ...ids] of [
    ['numeric', '1.0', '1.00', 1],
    ['timestamptz', new Date('2024-05-05T05:05:05Z'), '2024-05-05T05:05:05Z', '2024-05-05 06:05:05+01'],
    ['char(5)', 'a', 'a  '],
    ['interval', '1 day', '24:00'],
    ['int[]', [1], '{1}', '[1:1]={1}'],
    ['jsonb', { a: 1, b: 2 }, { b: 2, a: 1 }],
    ['inet', '::1', '0:0::1']
  ] as const) {
    const { upsert, query } = await open(t, `create table r (id ${type} primary key, v int)`)
    const rows = ids.map((id, v) => ({ id, v }))
    t.same(await upsert('r', rows, { ...key, batch: 1 }), { inserted: 1, updated: 0, unchanged: ids.length - 1, stale: 0 }, type)
    const { rows: before } = await query(versions)
    t.match(before, [{ v: ids.length - 1 }])
    t.same(await upsert('r', rows, { ...key, batch: 1 }), { inserted: 0, updated: 0, unchanged: ids.length, stale: 0 })
    t.same((await query(versions)).rows, before)
  }
})

t.test('so it is under the collation of the index', async t => {
  const { upsert, query } = await open(t, "create collation anycase (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
    'create table r (id text collate anycase primary key, v int)')
  await upsert('r', [{ id: 'key', v: 1 }, { id: 'KEY', v: 2 }], { ...key, batch: 1 })
  const { rows: before } = await query(versions)
  t.same(await upsert('r', [{ id: 'key', v: 1 }, { id: 'KEY', v: 2 }], { ...key, batch: 1 }), { inserted: 0, updated: 0, unchanged: 2, stale: 0 })
  t.same((await query(versions)).rows, before)
})

t.test('versions that are equal to the database are one', async t => {
  const { upsert, query } = await open(t, 'create table r (id int primary key, v int, at timestamptz)')
  const rows = [
    { id: 1, v: 1, at: new Date('2024-05-05T05:05:05Z') }, { id: 2, v: 2, at: null }, { id: 1, v: 3, at: '2024-05-05T05:05:05Z' },
    { id: 1, v: 4, at: '2024-01-01Z' }, { id: 2, v: 5, at: null }
  ]
  const options = { ...key, newerBy: 'at', batch: 1 }
  t.same(await upsert('r', rows, options), { inserted: 2, updated: 0, unchanged: 2, stale: 1 })
  const { rows: before } = await query(versions)
  t.match(before, [{ id: '1', v: 3 }, { id: '2', v: 5 }])
  await upsert('r', rows, options)
  t.same((await query(versions)).rows, before)
})

t.test('nobody is asked where no key comes twice', async t => {
  const { upsert, sent } = await open(t, 'create table r (id int primary key, v int, at timestamptz)')
  await upsert('r', [{ id: 1, v: 1, at: null }, { id: 2, v: 1, at: null }], { ...key, newerBy: 'at', batch: 1 })
  t.equal(sent.length, 3)
})

t.test('inside of a transaction as well, and a key that the database refuses is told with its row', async t => {
  const { context, query } = await open(t, 'create table r (id date primary key, v int)')
  const { createUpsert, nestedContext } = await import('../lib/upsert.js')
  await context.transaction(async tx => {
    const upsert = createUpsert(nestedContext(tx))
    await t.rejects(upsert('r', [{ id: '2024-01-01', v: 1 }, { id: 'soon', v: 2 }, { id: '2024-1-1', v: 3 }], { ...key, batch: 1 }), { code: 'FST_HOURLY_SYNC_UPSERT_INVALID_VALUE', row: 2, column: 'id' })
    t.same(await upsert('r', [{ id: '2024-01-01', v: 1 }, { id: '2024-1-1', v: 3 }], { ...key, batch: 1 }), { inserted: 0, updated: 1, unchanged: 1, stale: 0 })
  })
  t.same((await query('select v from r')).rows, [{ v: 3 }])
})

t.test('a row that a later one replaces is judged as any other', async t => {
  const { upsert } = await open(t, 'create table r (id int primary key, v int)')
  const last = { id: 1, v: 1 }
  for (const [row, code] of [
    [null, 'INVALID_ROW'], [{ id: {}, v: 1 }, 'INVALID_VALUE'], [{ id: 1, v: undefined }, 'UNDEFINED_VALUE'], [{ id: 1, v: 1, more: 1 }, 'MIXED_ROWS'], [{ id: 1 }, 'MIXED_ROWS'], [{ id: 1, v: 'x' }, 'INVALID_VALUE']
  ] as const) {
    await t.rejects(upsert('r', [last, row, last] as object[], { ...key, batch: 1 }), { code: `FST_HOURLY_SYNC_UPSERT_${code}` })
  }
})

t.test('an array that gives its rows in another order than they lie in is taken as it gives them', async t => {
  const { upsert, query } = await open(t, 'create table r (id int primary key, v int)')
  class Reversed extends Array<object> {
    override * [Symbol.iterator] (): ArrayIterator<object> {
      for (let at = this.length - 1; at >= 0; at--) yield this[at]!
    }
  }
  const rows = Reversed.from(Array.from({ length: 12 }, (_, at) => ({ id: at % 8, v: at })))
  t.same(await upsert('r', rows, { ...key, batch: 3 }), { inserted: 8, updated: 4, unchanged: 0, stale: 0 })
  t.same((await query('select from r')).rowCount, 8)
  t.same((await query('select v from r where id = 0')).rows, [{ v: 0 }])
})

t.test('no row outside of a partial index is overwritten because another index on its columns has it', async t => {
  const { upsert, query } = await open(t, 'create table r (id int, kind int, gone date, v int)',
    'create unique index live on r (id) where gone is null',
    'create unique index "Live.1" on r (id) where gone is null and kind = 1',
    'create unique index live2 on r (id) where gone is null and kind = 2',
    "insert into r values (1, 2, null, 5), (2, 1, 'epoch', 5)")
  await t.rejects(upsert('r', [{ id: 1, kind: 1, v: 9 }], { ...key, index: 'Live.1' }), {
    code: 'FST_HOURLY_SYNC_UPSERT_NO_INDEX',
    message: /^table 'r' should have a unique index 'Live\.1' that alone finds a conflict, instead found (?:live, Live\.1|Live\.1, live): those /
  })
  t.same((await query('select v from r')).rows, [{ v: 5 }, { v: 5 }])
  await query('drop index live')
  t.same(await upsert('r', [{ id: 1, kind: 1, v: 9 }], { ...key, index: 'Live.1' }), { inserted: 1, updated: 0, unchanged: 0, stale: 0 }, 'one beside it that has other rows is none of its business')
  t.same(await upsert('r', [{ id: 1, kind: 1, v: 9 }], { ...key, index: 'Live.1' }), { inserted: 0, updated: 0, unchanged: 1, stale: 0 })
  await query('delete from r where kind = 1')
  await query('create unique index whole on r (id)')
  await t.rejects(upsert('r', [{ id: 1, kind: 2, v: 9 }], { ...key, index: 'live2' }), { code: 'FST_HOURLY_SYNC_UPSERT_NO_INDEX', message: /found (?:live2, whole|whole, live2): / })
})
