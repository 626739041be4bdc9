import t, { type Test } from 'tap'
import { startPostgres } from './helpers/postgres.js'
import { openSchema } from './helpers/upsert.js'

const cluster = await startPostgres(t)
const open = async (t: Test, ...statements: string[]): ReturnType<typeof openSchema> => await openSchema(t, cluster.url(), ...statements)
const key = { key: ['id'] }
const added = (inserted: number, updated = 0, unchanged = 0): object => ({ inserted, updated, unchanged, stale: 0 })

t.test('a column that is given a wider type between two calls takes values whole', async t => {
  for (const [from, to, value, stored] of [
    ['numeric(10,2)', 'numeric(10,4)', '1.2345', '1.2345'],
    ['date', 'timestamptz', new Date('2024-05-05T05:05:05Z'), '2024-05-05 05:05:05+00'],
    ['timestamp', 'timestamptz', '2024-01-01T12:00:00+05:00', '2024-01-01 07:00:00+00'],
    ['timestamp(0)', 'timestamp', '2024-01-01T12:00:00.75', '2024-01-01 12:00:00.75'],
    ['real', 'float8', 0.123456789012345, '0.123456789012345'],
    ['int', 'bigint', 2n ** 40n, '1099511627776'],
    ['int', 'numeric', '1.5', '1.5'],
    ['varchar(3)', 'varchar(10)', 'abcdef', 'abcdef'],
    ['int', 'text', 'abc', 'abc'],
    ['text', 'jsonb', { a: [1] }, '{"a": [1]}']
  ] as const) {
    for (const exists of [false, true]) {
      const { upsert, query } = await open(t, `create table r (id int primary key, v ${from})`, "set timezone = 'UTC'")
      await upsert('r', [{ id: 1, v: null }], key)
      await query(`alter table r alter v type ${to} using null`)
      if (exists) await query('insert into r values (2, $1)', [stored])
      t.same(await upsert('r', [{ id: 2, v: value }], key), exists ? added(0, 0, 1) : added(1), `${from} that is a ${to} now`)
      t.same((await query('select v::text from r where id = 2')).rows, [{ v: stored }])
    }
  }
})

t.test('a value that the column still does not take is refused as one of the type it has', async t => {
  const { upsert, query, sent } = await open(t, 'create table r (id int primary key, v int)')
  await upsert('r', [{ id: 1, v: 1 }], key)
  await query('alter table r alter v type boolean using true')
  await t.rejects(upsert('r', [{ id: 2, v: 'x' }], key), { message: "row 1, column 'v' of 'r' should be a boolean for boolean, instead got string" })
  const before = sent.length
  await t.rejects(upsert('r', [{ id: 2, v: 'x' }], key), { code: 'FST_HOURLY_SYNC_UPSERT_INVALID_VALUE' })
  t.equal(sent.length, before + 1, 'after one look at the catalog')
  await query('drop table r')
  await t.rejects(upsert('r', [{ id: 2, v: 'x' }], key), { code: 'FST_HOURLY_SYNC_UPSERT_INVALID_VALUE' }, 'also where there is none to look at')
})

t.test('a column that becomes a generated one is told', async t => {
  const { upsert, query } = await open(t, 'create table r (id int primary key, v int)')
  await upsert('r', [{ id: 1, v: 1 }], key)
  await query('alter table r drop v, add v int generated always as (id + 1) stored')
  await t.rejects(upsert('r', [{ id: 2, v: 3 }], key), { code: 'FST_HOURLY_SYNC_UPSERT_GENERATED_COLUMN' })
})

t.test('one object that a generator fills again and again is saved each time, or the call fails', async t => {
  const { upsert, query, before } = await open(t, 'create table r (id int primary key, v text)')
  function * same (): Generator<object> {
    const row: Record<string, unknown> = {}
    for (let id = 1; id <= 5; id++) yield Object.assign(row, { id, v: id === 3 ? null : `v${id}` })
  }
  t.same(await upsert('r', same(), key), added(5))
  t.same(await upsert('r', same(), { ...key, batch: 2 }), added(0, 0, 5))
  await query('create table s (like r including all)')
  before.hook = async ({ text }) => {
    if (!text.includes('incoming$')) return
    before.hook = () => {}
    await query('alter table r rename to old')
    await query('alter table s rename to r')
  }
  await t.rejects(upsert('r', same(), key), { code: 'FST_HOURLY_SYNC_UPSERT_INVALID_ROW', message: 'row 1 should be an object, instead got one that was changed before it was saved' })
  t.same((await query('select from r')).rowCount, 0)
  t.same(await upsert('r', same(), key), added(5))
})

t.test('a table that is replaced under way gets all rows', async t => {
  const { upsert, query, before } = await open(t, 'create table r (id int primary key, v text)', 'create table s (id bigint primary key, v varchar(5))')
  await upsert('r', [{ id: 0, v: null }], key)
  before.hook = async ({ text }) => {
    if (!text.includes('incoming$')) return
    before.hook = () => {}
    await query('alter table r rename to old')
    await query('alter table s rename to r')
  }
  t.same(await upsert('r', Array.from({ length: 5 }, (_, id) => ({ id, v: id === 3 ? null : `v${id}` })), { ...key, batch: 2 }), added(5))
})
