import t, { type Test } from 'tap'
import { startPostgres } from './helpers/postgres.js'
import { openSchema } from './helpers/upsert.js'
import { createUpsert, jsonNull, nestedContext } from '../lib/upsert.js'

t.setTimeout(180_000) // a server of its own, on a machine that may be busy
const cluster = await startPostgres(t)

const open = async (t: Test, ...statements: string[]): ReturnType<typeof openSchema> => await openSchema(t, cluster.url(), ...statements)
const orders = 'create table orders (id bigint primary key, status text, updated_at timestamptz)'
const counts = (inserted: number, updated: number, unchanged: number, stale = 0): object => ({ inserted, updated, unchanged, stale })
const noRows = { status: 'open' }

t.test('new, changed and unchanged rows are counted, and the counts add up', async t => {
  const { upsert, query } = await open(t, orders)
  const key = { key: ['id'] }
  t.same(await upsert('orders', [{ id: 1, status: 'open' }, { id: 2, status: null }], key), counts(2, 0, 0))
  t.same(await upsert('orders', [{ id: 1, status: 'paid' }, { id: 2, status: null }, { id: 3, status: 'open' }], key), counts(1, 1, 1))
  t.same((await query('select id, status from orders order by id')).rows,
    [{ id: '1', status: 'paid' }, { id: '2', status: null }, { id: '3', status: 'open' }])
})

t.test('unchanged rows are not written, nor locked', async t => {
  const { upsert, query } = await open(t, orders)
  const rows = Array.from({ length: 50 }, (_, id) => ({ id, status: `s${id % 3}` }))
  const versions = async (): Promise<unknown> => (await query('select xmin::text, xmax::text, ctid::text from orders order by id')).rows
  await upsert('orders', rows, { key: ['id'] })
  const before = await versions()
  t.same(await upsert('orders', rows, { key: ['id'], batch: 7 }), counts(0, 0, 50))
  t.same(await versions(), before)
})

t.test('after two batches of nothing but new or changed rows the next goes in without a look, and is right as well', async t => {
  const { upsert, query, sent } = await open(t, orders)
  const key = { key: ['id'] }
  const page = (from: number, status: string): Array<{ id: number, status: string }> => Array.from({ length: 10 }, (_, nth) => ({ id: from + nth, status }))
  const looks = (): boolean[] => sent.splice(0).filter(({ text }) => text.includes('insert into')).map(({ text }) => text.includes('lateral (\n    select'))
  for (const from of [0, 10, 20, 30]) t.same(await upsert('orders', page(from, 'a'), key), counts(10, 0, 0))
  t.same(looks(), [true, true, false, false], 'from one call to the next')

  const versions = async (): Promise<unknown> => (await query('select xmin::text, xmax::text, ctid::text from orders order by id')).rows
  const before = await versions()
  for (const from of [0, 10, 20, 30]) t.same(await upsert('orders', page(from, 'a'), key), counts(0, 0, 10))
  t.same(looks(), [true, true, true, true], 'a page that comes again is looked at')
  t.same(await versions(), before, 'and not locked')

  for (const from of [0, 10, 20]) t.same(await upsert('orders', page(from, 'b'), key), counts(0, 10, 0))
  t.same(await upsert('orders', [...page(30, 'a'), ...page(100, 'a')], { ...key, batch: 10 }), counts(10, 0, 10))
  t.same(looks(), [true, true, false, false, true], 'rows that turn out unchanged bring the look back')
})

t.test('of many batches of nothing but new rows the last thousand are remembered', async t => {
  const { upsert, sent } = await open(t, orders)
  const row = (id: number): object => ({ id, status: 'a' })
  t.same(await upsert('orders', Array.from({ length: 1_002 }, (_, id) => row(id)), { key: ['id'], batch: 1 }), counts(1_002, 0, 0))
  sent.length = 0
  for (const id of [0, 1_001]) t.same(await upsert('orders', [row(id)], { key: ['id'] }), counts(0, 0, 1))
  t.same(sent.map(({ text }) => text.includes('lateral (\n    select')), [false, true])
})

t.test('touch is set where a row is inserted or really changes', async t => {
  const { upsert, query } = await open(t, orders)
  const options = { key: ['id'], touch: ['updated_at'] }
  const touched = async (): Promise<string[]> =>
    (await query('select updated_at::text as at from orders order by id')).rows.map(({ at }) => at)
  await upsert('orders', [{ id: 1, status: 'a' }, { id: 2, status: 'a' }], options)
  const first = await touched()
  t.match(first, [String, String])
  await upsert('orders', [{ id: 1, status: 'a' }, { id: 2, status: 'b' }], options)
  const second = await touched()
  t.equal(second[0], first[0])
  t.not(second[1], first[1])
})

t.test('an older version never overwrites a newer one, in any order', async t => {
  const { upsert, query } = await open(t, orders)
  const options = { key: ['id'], newerBy: 'updated_at' }
  const at = (second: number): Date => new Date(1_700_000_000_000 + second * 1000)
  const stored = async (): Promise<unknown> => (await query('select status from orders order by id')).rows.map(({ status }) => status)
  t.same(await upsert('orders', [{ id: 1, status: 'b', updated_at: at(2) }], options), counts(1, 0, 0))
  t.same(await upsert('orders', [{ id: 1, status: 'a', updated_at: at(1) }], options), counts(0, 0, 0, 1))
  t.same(await upsert('orders', [{ id: 1, status: 'null', updated_at: null }], options), counts(0, 0, 0, 1), 'NULL is the oldest')
  t.same(await upsert('orders', [{ id: 1, status: 'same', updated_at: at(2) }], options), counts(0, 1, 0), 'of one version the last wins')
  t.same(await upsert('orders', [
    { id: 1, status: 'd', updated_at: at(4) }, { id: 1, status: 'c', updated_at: at(3) }, { id: 1, status: 'x', updated_at: null },
    { id: 2, status: 'z', updated_at: null }, { id: 2, status: 'y', updated_at: null }
  ], options), counts(1, 1, 1, 2))
  t.same(await stored(), ['d', 'y'])
  t.same(await upsert('orders', [{ id: 2, status: 'dated', updated_at: at(0) }], options), counts(0, 1, 0), 'anything is newer than NULL')
})

t.test('of a key that comes twice the last wins, within a batch and across batches', async t => {
  const { upsert, query, sent } = await open(t, orders)
  const rows = [{ id: 1, status: 'a' }, { id: '01', status: 'b' }, { id: 2, status: 'c' }, { id: 1n, status: 'd' }]
  for (const batch of [1, 2, 3, 100]) {
    await query('truncate orders')
    t.same(await upsert('orders', rows, { key: ['id'], batch }), counts(2, 0, 2))
    t.same((await query('select id, status from orders order by id')).rows, [{ id: '1', status: 'd' }, { id: '2', status: 'c' }])
    t.same(await upsert('orders', rows, { key: ['id'], batch }), counts(0, 0, 4), 'and again writes nothing')
  }
  await query('truncate orders')
  t.same(await upsert('orders', rows.values(), { key: ['id'], batch: 2 }), counts(2, 1, 1), 'a stream does not know what will come')
  t.same(await upsert('orders', [{ id: 5, status: 'x' }, { id: 1, status: 'd' }, { id: 1, status: 'd' }], { key: ['id'], batch: 2 }), counts(1, 0, 2))
  t.ok(sent.length > 0)
})

t.test('keys that are equal to the database but not as text are one key', async t => {
  const { upsert, query } = await open(t,
    "create collation ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
    'create table n (id numeric, at timestamptz, v int, primary key (at, id))',
    'create table i (word text collate ci primary key, v int)',
    'create table l (word text, v int)',
    'create unique index l_word on l (word collate ci)')
  t.same(await upsert('n', [{ id: '1.0', at: '2024-01-01T00:00:00Z', v: 1 }, { id: 1, at: '2024-01-01 02:00+02', v: 2 }], { key: ['id', 'at'] }), counts(1, 0, 1))
  t.same((await query('select id, v from n')).rows, [{ id: '1', v: 2 }])
  for (const table of ['i', 'l']) {
    t.same(await upsert(table, [{ word: 'Ä', v: 1 }, { word: 'ä', v: 2 }, { word: 'b', v: 1 }], { key: ['word'] }), counts(2, 0, 1))
    t.same((await query(`select word, v from ${table} order by v desc`)).rows, [{ word: 'ä', v: 2 }, { word: 'b', v: 1 }])
    t.same(await upsert(table, [{ word: 'B', v: 1 }], { key: ['word'] }), counts(0, 1, 0), 'the value that came last is stored')
  }
})

t.test('names are exact and may be anything', async t => {
  const { upsert, query } = await open(t,
    'create schema "we""ird.schema"',
    'create table "we""ird.schema"."Order" ("select" int, "we""ird" text, "Order" text, "a.b" int, primary key ("select", "we""ird"))',
    'create table "select" ("select" int primary key, "$1" int)',
    'create table "we""ird" ("we""ird" int primary key, t int, s int, excluded int, v0 int)',
    'create table incoming$ (s int primary key, incoming$ int)',
    'create table "a.b" (n int primary key)')
  const row = { select: 1, 'we"ird': "'", Order: '"', 'a.b': 2 }
  t.same(await upsert('"we""ird.schema".Order', [row], { key: ['we"ird', 'select'] }), counts(1, 0, 0))
  t.same(await upsert('"we""ird.schema"."Order"', [{ ...row, 'a.b': 3 }], { key: ['select', 'we"ird'] }), counts(0, 1, 0))
  t.same((await query('select * from "we""ird.schema"."Order"')).rows, [{ ...row, 'a.b': 3 }])
  t.same(await upsert('select', [{ select: 1, $1: 2 }], { key: ['select'] }), counts(1, 0, 0))
  t.same(await upsert('we"ird', [{ 'we"ird': 1, t: 2, s: 3, excluded: 4, v0: 5 }], { key: ['we"ird'] }), counts(1, 0, 0))
  t.same(await upsert('we"ird', [{ 'we"ird': 1, t: 2, s: 3, excluded: 4, v0: 6 }], { key: ['we"ird'] }), counts(0, 1, 0))
  t.same(await upsert('"a.b"', [{ n: 1 }], { key: ['n'] }), counts(1, 0, 0), 'a table of nothing but its key')
  t.same(await upsert('"a.b"', [{ n: 1 }], { key: ['n'] }), counts(0, 0, 1))
  await query('create table judged (s int primary key, changed int, stale int, n int, nth int)')
  const judged = { s: 1, changed: 1, stale: 1, n: 1, nth: 1 }
  t.same(await upsert('judged', [judged, judged, { ...judged, n: 2 }], { key: ['s'], newerBy: 'n' }), counts(1, 0, 0, 2))
})

t.test('a name without a schema follows the search path, also when it changes between calls', async t => {
  const { upsert, query } = await open(t, 'create schema a', 'create schema b',
    'create table a.orders (id int primary key, v text)', 'create table b.orders (other text, id text primary key, v int)')
  await query('set search_path = a')
  t.same(await upsert('orders', [{ id: 1, v: 1 }], { key: ['id'] }), counts(1, 0, 0))
  await query('set search_path = b')
  t.same(await upsert('orders', [{ id: 1, v: 1 }], { key: ['id'] }), counts(1, 0, 0))
  t.same(await upsert('a.orders', [{ id: 1, v: 1 }], { key: ['id'] }), counts(0, 0, 1))
  t.same((await query('select v from b.orders')).rows, [{ v: 1 }])
  await query('set search_path = nowhere')
  await t.rejects(upsert('orders', [{ id: 1, v: 1 }], { key: ['id'] }), { code: 'FST_HOURLY_SYNC_UPSERT_UNKNOWN_TABLE' })
})

t.test('a table of the same shape under another search path is not taken for the first', async t => {
  const { upsert, query } = await open(t, 'create schema c', 'create schema d',
    'create table c.orders (id int primary key, v text)', 'create table d.orders (id int primary key, v text)')
  for (const schema of ['c', 'd']) {
    await query(`set search_path = ${schema}`)
    t.same(await upsert('orders', [{ id: 1, v: schema }], { key: ['id'] }), counts(1, 0, 0))
  }
  t.same((await query('select c.v as c, d.v as d from c.orders c, d.orders d')).rows, [{ c: 'c', d: 'd' }])
})

t.test('the catalog is read once, and again after the table was altered', async t => {
  const { upsert, query, sent } = await open(t, orders)
  const catalogs = (): number => sent.filter(({ text }) => text.includes('pg_get_expr')).length
  for (let i = 0; i < 5; i++) await upsert('orders', [{ id: i, status: 'a' }], { key: ['id'] })
  t.equal(catalogs(), 1)
  t.equal(sent.length, 6, 'and a batch is one statement')
  await query('alter table orders alter column status type int using 0')
  t.same(await upsert('orders', [{ id: 1, status: 7 }], { key: ['id'] }), counts(0, 1, 0))
  t.equal(catalogs(), 2)
  await query('alter table orders rename column status to state')
  await t.rejects(upsert('orders', [{ id: 1, status: 7 }], { key: ['id'] }), { code: 'FST_HOURLY_SYNC_UPSERT_UNKNOWN_COLUMN' })
})

t.test('a statement that the host deallocated is prepared again', async t => {
  const { upsert, query } = await open(t, orders)
  await upsert('orders', [{ id: 1, status: 'a' }], { key: ['id'] })
  await query('deallocate all')
  t.same(await upsert('orders', [{ id: 1, status: 'b' }], { key: ['id'] }), counts(0, 1, 0))
})

t.test('a prepared plan is made anew as the table grows', async t => {
  const { upsert, sent } = await open(t, orders)
  await upsert('orders', Array.from({ length: 3000 }, (_, id) => ({ id, status: 'a' })), { key: ['id'], batch: 100 })
  const names = new Set(sent.map(({ name }) => name).filter(name => name !== undefined))
  t.equal(names.size, 3, 'the one with a look, the one without, and that again once the table has grown')
  t.ok([...names].every(name => name.length < 64))
})

t.test('database errors that concern no row come as they are', async t => {
  const { upsert, query, schema } = await open(t, orders, 'create role reader', 'grant select on orders to reader')
  await query(`grant usage on schema ${schema} to reader`)
  await query('set role reader')
  await t.rejects(upsert('orders', [{ id: 1, status: 'a' }], { key: ['id'] }), { code: '42501' })
  await query('reset role')
  await query('create function absent() returns trigger language plpgsql as $$ begin perform nothing_here(); return new; end $$')
  await query('create trigger absent before insert on orders for each row execute function absent()')
  await t.rejects(upsert('orders', [{ id: 1, status: 'a' }], { key: ['id'] }), { code: '42883' }, 'not even after a second look at the catalog')
})

t.test('arrays of a domain over arrays', async t => {
  const { upsert, query } = await open(t, 'create domain pair as int[] check (cardinality(value) = 2)', 'create domain pairs as pair[]', 'create table r (id int primary key, v pair[], w pairs)')
  const rows = [{ id: 1, v: [[1, 2], [3, null]], w: [['4', 5n]] }, { id: 2, v: [null], w: ['{6,7}'] }]
  t.same(await upsert('r', rows, { key: ['id'] }), counts(2, 0, 0))
  t.same(await upsert('r', rows, { key: ['id'] }), counts(0, 0, 2))
  t.strictSame((await query('select v::text as v, w::text as w from r order by id')).rows, [{ v: '{"{1,2}","{3,NULL}"}', w: '{"{4,5}"}' }, { v: '{NULL}', w: '{"{6,7}"}' }])
  await t.rejects(upsert('r', [{ id: 3, v: [1, 2], w: null }], { key: ['id'] }), {
    code: 'FST_HOURLY_SYNC_UPSERT_INVALID_VALUE', column: 'v', message: /an array, each element an array, each element an integer .* for pair\[\], instead got array/
  })
})

t.test('null in an array is null, also for a session that has array_nulls off, and stays so', async t => {
  const { upsert, query, client } = await open(t, 'create domain words as text[]',
    'create table r (id int primary key, a text[], b int[], c varchar(3)[], d words, e jsonb[])')
  const rows = [{ id: 1, a: ['NULL', null, 'x'], b: [[1, null]], c: [null], d: [null, 'null'], e: [null, jsonNull] }, { id: 2, a: null, b: [], c: null, d: null, e: ['x'] }]
  const stored = async (): Promise<unknown> => (await query('select to_jsonb(r) - $1 as row from r order by id', ['id'])).rows.map(({ row }) => row)
  const setting = async (): Promise<unknown> => (await query('show array_nulls')).rows[0].array_nulls
  await upsert('r', rows, { key: ['id'] })
  const usual = await stored()
  t.same((usual as any)[0].a, ['NULL', null, 'x'])
  await query('truncate r; set array_nulls = off')
  t.same(await upsert('r', rows, { key: ['id'] }), counts(2, 0, 0))
  t.same(await stored(), usual)
  t.same(await upsert('r', rows, { key: ['id'] }), counts(0, 0, 2))
  t.equal(await setting(), 'off')

  await query('begin; truncate r')
  const nested = createUpsert(nestedContext({ query: async (text, values, name) => await client.query({ text, values, name }) }))
  t.same(await nested('r', rows, { key: ['id'] }), counts(2, 0, 0))
  t.equal(await setting(), 'off', 'in the rest of a transaction too')
  await query('commit')
  t.same(await stored(), usual)
})

t.test('columns says what is written; more in a row is left alone', async t => {
  const { upsert, query } = await open(t, orders)
  t.same(await upsert('orders', [{ id: 1, status: 'a', more: {} }, { other: 1, status: 'b', id: 2 }], { key: ['id'], columns: ['id', 'status'] }), counts(2, 0, 0))
  await query("update orders set updated_at = 'epoch'")
  await upsert('orders', [{ id: 1, status: 'z', updated_at: null }], { key: ['id'], columns: ['id', 'status'] })
  t.same((await query('select count(*)::int as n from orders where updated_at is not null')).rows, [{ n: 2 }])
})

t.test('a partial unique index is used by its name, its columns and predicate taken from the catalog', async t => {
  const { upsert, query } = await open(t,
    'create table orders (id int generated always as identity, "External" text, deleted_at timestamptz, v int)',
    'create unique index orders_live_key on orders ("External") where deleted_at is null and "External" <> \'x\'')
  const options = { key: ['External'], index: 'orders_live_key' }
  t.same(await upsert('orders', [{ External: 'a', v: 1 }, { External: 'b', v: 1 }], options), counts(2, 0, 0))
  t.same(await upsert('orders', [{ External: 'a', v: 2 }, { External: 'b', v: 1 }], options), counts(0, 1, 1))
  await query("update orders set deleted_at = now() where \"External\" = 'a'")
  t.same(await upsert('orders', [{ External: 'a', v: 2 }], options), counts(1, 0, 0), 'a deleted row is not seen')
  t.same(await upsert('orders', [{ External: 'a', v: 2 }], options), counts(0, 0, 1))
  await t.rejects(upsert('orders', [{ External: 'a', v: 3 }, { External: 'c', v: 3 }, { External: 'x', v: 3 }], options), {
    code: 'FST_HOURLY_SYNC_UPSERT_OUTSIDE_INDEX', row: 3, message: /row 3 of 'orders' should be inside of index 'orders_live_key'/
  }, 'it would be inserted again and again')
  t.same((await query('select count(*)::int as n from orders where v = 3')).rows, [{ n: 0 }])
  await t.rejects(upsert('orders', [{ External: 'a' }], { key: ['External'] }), {
    code: 'FST_HOURLY_SYNC_UPSERT_NO_INDEX', message: /option 'index'.*'orders_live_key' on \(External\) where /
  })
})

t.test('an index must be usable, and on the columns of the key', async t => {
  const { upsert } = await open(t, orders, 'create table bare (id int)',
    'create unique index lower_status on orders (lower(status))',
    'alter table orders add constraint later unique (status) deferrable',
    'create unique index with_more on orders (updated_at, id) include (status)')
  const row = { id: 1, status: 'a', updated_at: null }
  const reject = async (options: object, message: RegExp): Promise<void> => {
    await t.rejects(upsert('orders', [row], options as any), { code: 'FST_HOURLY_SYNC_UPSERT_NO_INDEX', message })
  }
  await reject({ key: ['status'] }, /a unique index on \(status\).*'later' on \(status\) \(deferrable or invalid\)/)
  await reject({ key: ['status'], index: 'lower_status' }, /a unique index 'lower_status' on \(status\).*'lower_status' on \(an expression\)/)
  await reject({ key: ['id'], index: 'with_more' }, /'with_more' on \(updated_at, id\)/)
  await reject({ key: ['id'], index: 'nothing' }, /'nothing'/)
  await t.rejects(upsert('bare', [{ id: 1 }], { key: ['id'] }), { code: 'FST_HOURLY_SYNC_UPSERT_NO_INDEX', message: /no unique index at all/ })
  t.same(await upsert('orders', [{ ...row, updated_at: new Date() }], { key: ['id', 'updated_at'] }), counts(1, 0, 0), 'columns in another order')
  t.same(await upsert('orders', [{ ...row, updated_at: new Date() }], { key: ['id'], index: 'orders_pkey' }), counts(0, 1, 0), 'a full one by name')
})

t.test('partitioned tables', async t => {
  const { upsert, query } = await open(t, 'create table p (id int, at date, v text, primary key (id, at)) partition by range (at)',
    "create table p1 partition of p for values from ('2024-01-01') to ('2025-01-01')", "create table p2 partition of p for values from ('2025-01-01') to ('2026-01-01')")
  const row = (id: number, at: string, v: string): object => ({ id, at, v })
  const options = { key: ['id', 'at'] }
  t.same(await upsert('p', [row(1, '2024-05-01', 'a'), row(1, '2025-05-01', 'a')], options), counts(2, 0, 0))
  t.same(await upsert('p', [row(1, '2024-05-01', 'b'), row(1, '2025-05-01', 'a'), row(2, '2025-05-01', 'c')], options), counts(1, 1, 1))
  t.same(await upsert('p', [row(1, '2024-05-01', 'c'), row(1, '2025-05-01', 'a'), row(3, '2025-05-01', 'c')], { ...options, newerBy: 'v' }), counts(1, 1, 1))
  t.same(await upsert('p', [row(1, '2024-05-01', 'a')], { ...options, newerBy: 'v' }), counts(0, 0, 0, 1))
  t.equal((await query('select 1 from p')).rowCount, 4)
  await query('create table parent (id int primary key, v int)')
  await query('create table child (primary key (id)) inherits (parent)')
  await query('insert into child values (1, 1)')
  t.same(await upsert('parent', [{ id: 1, v: 1 }], { key: ['id'] }), counts(1, 0, 0), 'rows of a child are not rows of the parent')
})

t.test('nothing is sent for no rows', async t => {
  const { upsert, sent } = await open(t)
  for (const rows of [[], new Set<object>(), (async function * () {})()]) t.same(await upsert('anything', rows, { key: ['id'] }), counts(0, 0, 0))
  t.equal(sent.length, 0)
})

t.test('rows come from any iterable', async t => {
  const { upsert, query } = await open(t, orders)
  class Order { constructor (readonly id: number, readonly status: string) {} }
  const list = [1, 2, 3, 4, 5].map(id => new Order(id, 'a'))
  t.same(await upsert('orders', new Set(list), { key: ['id'], batch: 2 }), counts(5, 0, 0))
  t.same(await upsert('orders', new Map([[1, { id: 1, status: 'z' }]]).values(), { key: ['id'] }), counts(0, 1, 0))
  t.same(await upsert('orders', (async function * () { yield * list })(), { key: ['id'], batch: 2 }), counts(0, 1, 4))
  let left = 3
  const thenable = {
    [Symbol.asyncIterator]: () => ({
      next: () => ({ then: (resolve: (step: unknown) => void) => { resolve(left-- > 0 ? { done: false, value: { id: left, status: 't' } } : { done: true }) } })
    })
  } as unknown as AsyncIterable<object>
  t.same(await upsert('orders', thenable, { key: ['id'], batch: 2 }), counts(1, 2, 0))
  t.equal((await query('select 1 from orders')).rowCount, 6)
})

t.test('a wrong call is told before anything is sent', async t => {
  const { upsert, sent } = await open(t)
  const bad = async (table: unknown, rows: unknown, options: unknown, code: string, message: RegExp): Promise<void> => {
    await t.rejects(upsert(table as string, rows as object[], options as any), { code: `FST_HOURLY_SYNC_UPSERT_${code}`, message })
  }
  const rows = [{ id: 1 }]
  const key = { key: ['id'] }
  await bad('orders', rows, undefined, 'INVALID_OPTION', /'options' should be an object with a key, instead got undefined/)
  await bad('orders', rows, null, 'INVALID_OPTION', /instead got null/)
  await bad('orders', rows, {}, 'INVALID_OPTION', /'key' should be an array .* instead got undefined/)
  for (const wrong of [[], 'id', ['id', 'id'], [1], ['']]) await bad('orders', rows, { key: wrong }, 'INVALID_OPTION', /'key'/)
  await bad('orders', rows, { ...key, index: 1 }, 'INVALID_OPTION', /'index' should be the name of an index, instead got number/)
  await bad('orders', rows, { ...key, columns: [] }, 'INVALID_OPTION', /'columns'/)
  await bad('orders', rows, { ...key, touch: 'updated_at' }, 'INVALID_OPTION', /'touch'/)
  await bad('orders', rows, { ...key, newerBy: ['v'] }, 'INVALID_OPTION', /'newerBy'.*array/)
  for (const wrong of [0, -1, 1.5, 10_001, '10', NaN]) await bad('orders', rows, { ...key, batch: wrong }, 'INVALID_OPTION', /'batch' should be an integer from 1 to 10000/)
  await bad('orders', rows, { ...key, keys: ['id'] }, 'INVALID_OPTION', /'keys' should be one of key, index/)
  for (const wrong of ['', '.', 'a.', 'a.b.c', '"a', 'a\0', 5, undefined]) await bad(wrong, rows, key, 'INVALID_OPTION', /'table'/)
  for (const wrong of [undefined, null, 5, 'rows', { id: 1 }]) await bad('orders', wrong, key, 'INVALID_ROWS', /an \(async\) iterable of objects/)
  for (const wrong of [undefined, null, 5, 'row', [1]]) await bad('orders', [wrong], key, 'INVALID_ROW', /row 1 should be an object/)
  for (const how of [Symbol.iterator, Symbol.asyncIterator]) {
    for (const wrong of [undefined, 5, {}, { next: 5 }]) await bad('orders', { [how]: () => wrong }, key, 'INVALID_ROWS', /an \(async\) iterable of objects/)
    await bad('orders', { [how]: 5 }, key, 'INVALID_ROWS', /an \(async\) iterable of objects/)
    for (const step of [undefined, null, 5]) {
      await bad('orders', { [how]: () => ({ next: () => step }) }, key, 'INVALID_ROWS', /instead got an iterator whose next\(\) gives (undefined|null|number)/)
      await bad('orders', { [how]: () => ({ next: async () => step }) }, key, 'INVALID_ROWS', /instead got an iterator whose next\(\) gives (undefined|null|number)/)
    }
  }
  t.equal(sent.length, 0)
})

t.test('what does not fit the table is told before a row is sent', async t => {
  const { upsert, sent } = await open(t, orders, 'create view v as select * from orders',
    'create table made (id int primary key, g int generated always as (id + 1) stored, i int generated always as identity, d int generated by default as identity)')
  const bad = async (table: string, rows: unknown[], more: object, code: string, message: RegExp): Promise<void> => {
    await t.rejects(upsert(table, rows as object[], { key: ['id'], ...more }), { code: `FST_HOURLY_SYNC_UPSERT_${code}`, message })
  }
  const row = { id: 1, status: 'a' }
  await bad('nothing', [row], {}, 'UNKNOWN_TABLE', /'nothing'.*nothing of that name on the search path/)
  await bad('Orders', [row], {}, 'UNKNOWN_TABLE', /'Orders'/)
  await bad('v', [row], {}, 'UNKNOWN_TABLE', /a relation of kind 'v'/)
  await bad('orders', [{ id: 1, colour: 'red' }], {}, 'UNKNOWN_COLUMN', /column 'colour' should be one of the columns of 'orders' \(id, status, updated_at\)/)
  await bad('orders', [row], { touch: ['changed_at'] }, 'UNKNOWN_COLUMN', /'changed_at'/)
  await bad('orders', [row], { touch: ['status'] }, 'INVALID_OPTION', /'touch' should be columns that the rows do not have, instead got 'status'/)
  await bad('orders', [{ status: 'a' }], {}, 'MISSING_COLUMN', /key column 'id' should be one of the columns to write, instead got status/)
  await bad('orders', [row], { newerBy: 'updated_at' }, 'MISSING_COLUMN', /newerBy column 'updated_at'/)
  await bad('made', [{ id: 1, g: 2 }], {}, 'GENERATED_COLUMN', /column 'g' of 'made' should be left out of the rows, it is generated/)
  await bad('made', [{ id: 1, i: 2 }], {}, 'GENERATED_COLUMN', /generated always as identity/)
  await bad('orders', [row, { id: null, status: 'a' }], {}, 'NULL_KEY', /row 2, key column 'id'/)
  await bad('orders', [row, { id: 2, status: undefined }], {}, 'UNDEFINED_VALUE', /row 2, column 'status' should have a value or null, instead got undefined/)
  await bad('orders', [{ id: undefined, status: 'a' }], {}, 'UNDEFINED_VALUE', /row 1, column 'id'/)
  await bad('orders', [row, { id: 2 }], {}, 'MIXED_ROWS', /row 2 should have the columns id, status, instead got id/)
  await bad('orders', [row, { ...row, updated_at: null }], {}, 'MIXED_ROWS', /instead got id, status, updated_at/)
  await bad('orders', [row, { id: 2, updated_at: null }], {}, 'MIXED_ROWS', /instead got id, updated_at/)
  await bad('orders', [row, {}], { columns: ['id', 'status'] }, 'MIXED_ROWS', /instead got none/)
  await bad('orders', [row, null], {}, 'INVALID_ROW', /row 2 should be an object, instead got null/)
  await bad('orders', [row, { id: 'x', status: 'a' }], {}, 'INVALID_VALUE', /row 2, column 'id' of 'orders' should be an integer .* for bigint, instead got string/)
  t.equal(sent.filter(({ text }) => text.includes('insert')).length, 0)
  t.same(await upsert('made', [{ id: 1, d: 9 }], { key: ['id'] }), counts(1, 0, 0), 'an identity by default may be written')
})

t.test('newerBy needs a type with an order', async t => {
  const { upsert, query, sent } = await open(t, "create type mood as enum ('sad', 'ok')", 'create domain place as point', 'create domain moods as mood[]',
    'create domain amount as numeric(5,2)')
  let nth = 0
  const types = {
    ordered: ['int', 'text', 'varchar(9)', 'char(9)', 'timestamptz', 'date', 'uuid', 'boolean', 'bytea', 'jsonb', 'cidr', 'mood', 'moods', 'amount', 'amount[]', 'int4range', 'int4multirange', 'oid', 'regclass', 'bit(3)', '"char"'],
    unordered: ['json', 'point', 'place', 'json[]', 'place[]', 'xml', 'box', 'jsonpath']
  }
  for (const [kind, names] of Object.entries(types)) {
    for (const type of names) {
      await query(`create table r${++nth} (id int primary key, v ${type})`)
      sent.length = 0
      // twice the key, so that the batch is put in an order too
      const saved = upsert(`r${nth}`, [{ id: 1, v: null }, { id: 1, v: null }], { key: ['id'], newerBy: 'v' })
      if (kind === 'ordered') {
        await saved.then(result => t.match(result, { stale: 0 }, type), error => t.fail(type, error))
      } else {
        await t.rejects(saved, { code: 'FST_HOURLY_SYNC_UPSERT_INVALID_OPTION', message: /'newerBy' should be a column whose type has an order, instead got 'v' of type / }, type)
        t.notOk(sent.some(({ text }) => text.includes('insert into')), `of ${type} nothing is sent`)
      }
    }
  }
})

t.test('touch needs a type that a time fits', async t => {
  const { upsert, query, sent } = await open(t, 'create domain instant as timestamptz', 'create domain words as text',
    'create type stamp as (at timestamptz)', 'create function stamp(timestamptz) returns stamp language sql as $$ select row($1)::stamp $$', 'create cast (timestamptz as stamp) with function stamp as assignment')
  let nth = 0
  const types = {
    fitting: ['timestamptz', 'timestamptz(0)', 'timestamp', 'date', 'time', 'timetz', 'text', 'varchar(99)', 'instant', 'words', 'stamp'],
    other: ['int', 'bigint', 'json', 'jsonb', 'timestamptz[]', 'interval', 'boolean', 'tstzrange']
  }
  for (const [kind, names] of Object.entries(types)) {
    for (const type of names) {
      await query(`create table r${++nth} (id int primary key, v ${type})`)
      sent.length = 0
      const saved = upsert(`r${nth}`, [{ id: 1 }], { key: ['id'], touch: ['v'] })
      if (kind === 'fitting') {
        await saved.then(result => t.same(result, counts(1, 0, 0), type), error => t.fail(type, error))
      } else {
        await t.rejects(saved, { code: 'FST_HOURLY_SYNC_UPSERT_INVALID_OPTION', message: /'touch' should be columns that a time fits, instead got 'v' of type / }, type)
        t.notOk(sent.some(({ text }) => text.includes('insert into')), `for ${type} nothing is sent`)
      }
    }
  }
})

t.test('an error has the number of its row, and the column where one is known', async t => {
  const { upsert } = await open(t, orders)
  const good = { id: 1, status: 'a' }
  const places: Array<[code: string, rows: unknown[], place: object]> = [
    ['INVALID_ROW', [5], { row: 1 }],
    ['INVALID_ROW', [good, null], { row: 2 }],
    ['MIXED_ROWS', [good, { id: 2 }], { row: 2 }],
    ['MIXED_ROWS', [good, { ...good, more: 1 }], { row: 2 }],
    ['UNDEFINED_VALUE', [good, good, { id: 2, status: undefined }], { row: 3, column: 'status' }],
    ['NULL_KEY', [good, { id: null, status: 'a' }], { row: 2, column: 'id' }],
    ['INVALID_VALUE', [good, { id: 'x', status: 'a' }], { row: 2, column: 'id' }]
  ]
  for (const [code, rows, place] of places) {
    const { row, column, ...error } = await upsert('orders', rows as object[], { key: ['id'] }).then(() => t.fail(code), error => error)
    t.match(error, { code: `FST_HOURLY_SYNC_UPSERT_${code}` })
    t.strictSame({ row, ...(column !== undefined && { column }) }, place, code)
  }
})

t.test('a column named like something that every object has is taken from the row itself', async t => {
  const { upsert, query } = await open(t, 'create table r (id int primary key, "constructor" text, "toString" text, "__proto__" jsonb)')
  const key = { key: ['id'] }
  const own: object = JSON.parse('{ "id": 1, "constructor": "c", "toString": "t", "__proto__": { "a": 1 } }')
  t.same(await upsert('r', [own], key), counts(1, 0, 0))
  t.same(await upsert('r', [own], { ...key, columns: ['id', 'constructor', '__proto__'] }), counts(0, 0, 1))
  t.strictSame((await query('select "constructor" as c, "toString" as t, "__proto__"::text as p from r')).rows, [{ c: 'c', t: 't', p: '{"a": 1}' }])
  for (const name of ['constructor', 'toString', '__proto__']) {
    await t.rejects(upsert('r', [{ id: 2 }], { ...key, columns: ['id', name] }), { code: 'FST_HOURLY_SYNC_UPSERT_MIXED_ROWS', row: 1, message: /instead got id$/ }, name)
  }
  await t.rejects(upsert('r', [{ id: 2, constructor: 'c' }, { id: 3, other: 'o' }], key), { code: 'FST_HOURLY_SYNC_UPSERT_MIXED_ROWS', row: 2 })
  t.equal((await query('select 1 from r')).rowCount, 1)
})

t.test('with columns a row may inherit what its class gives it', async t => {
  const { upsert, query } = await open(t, orders)
  class Order {
    readonly #id: number
    constructor (id: number) { this.#id = id }
    get id (): number { return this.#id }
    get status (): string { return `s${this.#id}` }
  }
  t.same(await upsert('orders', [new Order(1), Object.assign(Object.create(null), { id: 2, status: 's2' })], { key: ['id'], columns: ['id', 'status'] }), counts(2, 0, 0))
  t.strictSame((await query('select id, status from orders order by id')).rows, [{ id: '1', status: 's1' }, { id: '2', status: 's2' }])
})

t.test('inside of a transaction a batch fails whole and the transaction goes on', async t => {
  const { client, query, upsert: outer } = await open(t, orders, 'alter table orders add check (id < 100)')
  await outer('orders', [{ id: 1, status: 'a' }], { key: ['id'] })
  await query('begin')
  const sent: string[] = []
  const upsert = createUpsert(nestedContext({
    query: async (text, values, name) => {
      sent.push(text)
      return await client.query({ text, values, name })
    }
  }))
  t.same(await upsert('orders', [{ id: 2, status: 'a' }, { id: 1, status: 'b' }], { key: ['id'] }), counts(1, 1, 0))
  await t.rejects(upsert('orders', [{ id: 3, status: 'a' }, { id: 4, status: 'a' }, { id: 5, status: 'a' }, { id: 100, status: 'a' }], { key: ['id'], batch: 2 }), {
    code: 'FST_HOURLY_SYNC_UPSERT_REFUSED_ROW', row: 4
  })
  await query('commit')
  t.same((await query('select id from orders order by id')).rows.map(({ id }) => id), ['1', '2', '3', '4'])
  t.ok(sent.includes('savepoint hourly_sync_upsert'))
})

t.test('a transaction that is lost on the way tells the first error', async t => {
  const upsert = createUpsert(nestedContext({
    query: async text => {
      if (text.startsWith('savepoint')) return { rows: [], rowCount: null }
      throw new Error(text.startsWith('rollback') ? 'second' : 'first')
    }
  }))
  await t.rejects(upsert('orders', [noRows], { key: ['id'] }), { message: 'first' })
})

t.test('parsers that the host has set in pg change nothing', async t => {
  const { upsert, client, query } = await open(t, orders)
  for (const type of [20, 23, 25, 16, 26, 114]) client.setTypeParser(type, type === 25 ? String : () => 'broken')
  t.same(await upsert('orders', [{ id: 1, status: 'a' }], { key: ['id'] }), counts(1, 0, 0))
  t.same(await upsert('orders', [{ id: 1, status: 'b' }], { key: ['id'] }), counts(0, 1, 0))
  t.equal((await query('select 1 from orders')).rowCount, 1)
})

t.test('the event loop turns while a batch is collected', async t => {
  const { upsert } = await open(t, orders)
  let turns = 0
  let turning = true
  const turn = (): void => {
    turns++
    if (turning) setImmediate(turn)
  }
  const rows = Array.from({ length: 1000 }, (_, id) => ({ id, status: 'a' }))
  function * watched (): Generator<object> {
    setImmediate(turn)
    yield * rows
    turning = false
  }
  t.same(await upsert('orders', watched(), { key: ['id'], batch: 2000 }), counts(1000, 0, 0))
  t.ok(turns >= 3, `${turns} turns before the batch was full`)
})

t.test('large rows end a batch early', async t => {
  const { upsert, sent } = await open(t, orders)
  const status = 'x'.repeat(1024 * 1024)
  t.same(await upsert('orders', Array.from({ length: 9 }, (_, id) => ({ id, status })), { key: ['id'] }), counts(9, 0, 0))
  t.equal(sent.filter(({ name }) => name !== undefined).length, 3)
})
