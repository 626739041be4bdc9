import { inspect } from 'node:util'
import t, { type Test } from 'tap'
import { startPostgres } from './helpers/postgres.js'
import { openSchema, openUpsert, type Bench } from './helpers/upsert.js'
import { createUpsert, nestedContext } from '../lib/upsert.js'

t.setTimeout(180_000)
const cluster = await startPostgres(t)

const open = async (t: Test, ...statements: string[]): ReturnType<typeof openSchema> => await openSchema(t, cluster.url(), ...statements)
const rows = (count: number, from = 0): Array<{ id: number, v: unknown }> => Array.from({ length: count }, (_, i) => ({ id: from + i, v: `v${i}` }))
const isBatch = (text: string): boolean => text.includes('incoming$')

t.test('a failure at any batch: it fails whole, those before stay, none after is sent, and again heals', async t => {
  const { upsert, query, before } = await open(t, 'create table r (id int primary key, v text)')
  const all = rows(23)
  for (let failing = 1; failing <= 5; failing++) {
    for (const stream of [false, true]) {
      await query('truncate r')
      let batches = 0
      before.hook = ({ text }) => {
        if (isBatch(text) && ++batches === failing) throw new Error('injected')
      }
      await t.rejects(upsert('r', stream ? all.values() : all, { key: ['id'], batch: 5 }), { message: 'injected' })
      t.equal(batches, failing)
      t.same((await query('select id from r order by id')).rows.map(({ id }) => id), all.slice(0, (failing - 1) * 5).map(({ id }) => id))
      before.hook = () => {}
      t.same(await upsert('r', all, { key: ['id'], batch: 5 }), { inserted: 23 - (failing - 1) * 5, updated: 0, unchanged: (failing - 1) * 5, stale: 0 })
    }
  }
})

t.test('a session that dies between the statement and the commit of a batch leaves nothing of it', async t => {
  const { upsert, query, client, context } = await open(t, 'create table r (id int, v text)', 'create unique index one on r (id) where id >= 0')
  const transaction = context.transaction
  let nth = 0
  context.transaction = async fn => await transaction(async tx => {
    const result = await fn(tx)
    // the first transaction is batch 1, the second dies
    if (++nth === 2) await cluster.query('select pg_terminate_backend($1)', [(client as unknown as { processID: number }).processID])
    return result
  })
  const { rows: [{ schema }] } = await query('select current_schema as schema')
  await t.rejects(upsert('r', rows(10), { key: ['id'], index: 'one', batch: 5 }))
  t.equal((await cluster.query(`select count(*)::int as n from ${schema}.r`)).rows[0].n, 5)
})

t.test('what came first is told first, and the generator is closed', async t => {
  const { upsert, before } = await open(t, 'create table r (id int primary key, v text)')
  let closed = 0
  async function * source (): AsyncGenerator<object> {
    try {
      yield * rows(7)
      yield { id: null, v: 'never sent' }
    } finally {
      closed++
      // eslint-disable-next-line no-unsafe-finally
      throw new Error('from finally')
    }
  }
  await t.rejects(upsert('r', source(), { key: ['id'], batch: 5 }), { code: 'FST_HOURLY_SYNC_UPSERT_NULL_KEY' })
  t.equal(closed, 1)
  before.hook = ({ text }) => { if (isBatch(text)) throw new Error('injected') }
  await t.rejects(upsert('r', source(), { key: ['id'], batch: 5 }), { message: 'injected' }, 'not the row that was collected meanwhile')
  t.equal(closed, 2)
})

t.test('an error of the generator ends the call after the batch under way', async t => {
  const { upsert, query } = await open(t, 'create table r (id int primary key, v text)')
  async function * source (): AsyncGenerator<object> {
    yield * rows(7)
    throw new Error('the API is away')
  }
  await t.rejects(upsert('r', source(), { key: ['id'], batch: 5 }), { message: 'the API is away' })
  t.equal((await query('select 1 from r')).rowCount, 5)
})

t.test('a bad value is told with its row, column and type, and without the value', async t => {
  const { upsert, query } = await open(t,
    "create type colour as enum ('red', 'green')",
    'create domain even as int check (value % 2 = 0)',
    'create domain short as varchar(3)',
    'create type pair as (a int, b int)',
    `create table r (id int primary key, v text, i2 smallint, i8 bigint, n numeric(5,2), f float8, b boolean, at timestamptz, d date, j jsonb, js json,
      u uuid, bytes bytea, c colour, e even, s short, vc varchar(3), ch char(3), texts text[], vcs varchar(3)[], bits bit(3), pair pair, ip inet)`)
  const good = rows(9)
  const secret = 'sëcret'
  const refused: Array<[string, unknown, string]> = [
    ['v', {}, 'object'], ['v', new Date(), 'Date'], ['v', '\0', 'string'], ['v', '\ud800', 'string'], ['v', 2 ** 60, 'number (an integer beyond 2^53'],
    ['v', [], 'array'], ['v', () => {}, 'function'], ['v', Symbol('v'), 'symbol'],
    ['i2', 1.5, 'number (a fraction)'], ['i2', 70000, 'number'], ['i2', true, 'boolean'], ['i2', '1.0', 'string'], ['i2', NaN, 'NaN'],
    ['i8', 2 ** 53, 'number (an integer beyond 2^53'], ['i8', 2n ** 63n, 'bigint'], ['i8', secret, 'string'],
    ['n', 1000, 'number'], ['n', secret, 'string'], ['n', true, 'boolean'], ['f', secret, 'string'], ['f', {}, 'object'],
    ['b', 1, 'number'], ['b', 'yes', 'string'],
    ['at', 5, 'number'], ['at', new Date(NaN), 'Date (invalid)'], ['at', secret, 'string'], ['d', new Date(NaN), 'Date (invalid)'], ['d', '2024-02-30', 'string'],
    ['j', { a: 1n }, 'object'], ['j', () => {}, 'function'], ['j', '\0', 'string'], ['j', { a: '\ud800' }, 'object'], ['js', Symbol('x'), 'symbol'],
    ['u', secret, 'string'], ['u', 5, 'number'], ['bytes', 5, 'number'], ['bytes', '\\xzz', 'string'], ['bytes', { type: 'Buffer', data: [1] }, 'object'],
    ['c', 'blue', 'string'], ['c', 1, 'number'], ['e', 3, 'number'], ['s', 'abcd', 'string'], ['vc', 'abcd', 'string'], ['ch', 'abcd', 'string'],
    ['texts', secret, 'string'], ['texts', [{}], 'array'], ['texts', [undefined], 'array'], ['texts', [['a'], ['b', 'c']], 'array'], ['vcs', ['abc', 'abcd'], 'array'],
    ['bits', '1', 'string'], ['pair', '(1)', 'string'], ['pair', {}, 'object'], ['ip', secret, 'string']
  ]
  for (const [column, value, type] of refused) {
    const error = await upsert('r', [...good.map(row => ({ id: row.id, [column]: null })), { id: 10, [column]: value }, { id: 11, [column]: null }], { key: ['id'] })
      .then(() => null, error => error)
    t.match(error, { code: 'FST_HOURLY_SYNC_UPSERT_INVALID_VALUE', row: 10, column, message: `row 10, column '${column}' of 'r' should be ` }, `${column} ${typeof value}`)
    t.match(error?.message, `instead got ${type}`, `${column} ${type}`)
    t.notMatch(error?.message, secret)
  }
  t.equal((await query('select 1 from r')).rowCount, 0, 'and nothing is written')
})

t.test('the row at fault is found in every place, over batches, and the cause comes along', async t => {
  const { upsert, query } = await open(t, 'create table r (id int primary key, v varchar(5))')
  for (let at = 0; at < 9; at++) {
    await query('truncate r')
    const all = rows(9).map((row, i) => i === at ? { ...row, v: 'too long' } : row)
    await t.rejects(upsert('r', all, { key: ['id'], batch: 4 }), { row: at + 1, column: 'v', cause: { code: '22001' } })
    t.equal((await query('select 1 from r')).rowCount, at - at % 4)
  }
})

t.test('a row that a constraint refuses is told', async t => {
  const { upsert } = await open(t, 'create table other (id int primary key)',
    `create table r (id int primary key, v text check (v <> 'bad'), mail text unique, need text not null, other int references other, g int generated always as (1 / (id - 5)) stored,
      constraint pair check (id <> 8 or need <> 'x'))`)
  const good = Array.from({ length: 4 }, (_, id) => ({ id, v: 'v', mail: `m${id}`, need: 'x', other: null }))
  const last = { id: 4, v: 'v', mail: 'm4', need: 'x', other: null }
  const bad = async (row: object, code: string, match: object): Promise<void> => {
    await t.rejects(upsert('r', [...good, { ...last, ...row }], { key: ['id'] }), { code: `FST_HOURLY_SYNC_UPSERT_${code}`, row: 5, ...match })
  }
  await bad({ v: 'bad' }, 'REFUSED_ROW', { message: /row 5 of 'r' should satisfy constraint 'r_v_check', instead got SQLSTATE 23514/ })
  await bad({ mail: 'm1' }, 'REFUSED_ROW', { message: /constraint 'r_mail_key'.*23505/ })
  await bad({ other: 1 }, 'REFUSED_ROW', { message: /constraint 'r_other_fkey'.*23503/ })
  await bad({ id: 8 }, 'REFUSED_ROW', { message: /constraint 'pair'/ })
  await bad({ id: 5 }, 'REFUSED_ROW', { message: /the table, instead got SQLSTATE 22012/ })
  await bad({ need: null }, 'INVALID_VALUE', { column: 'need', message: /should be a value of type text, instead got null/ })
  await t.rejects(upsert('r', [{ id: 1, v: 'v' }], { key: ['id'] }), { code: 'FST_HOURLY_SYNC_UPSERT_REFUSED_ROW', message: /not null in column 'need'/ })
})

const refusing = (what: string): string => `create function refuse() returns trigger language plpgsql as $$ begin if new.v = 'bad' then ${what}; end if; return new; end $$`
const refused = async (t: Test, bench: Bench, row: number, sqlstate: string, more: object = {}): Promise<any> => {
  const all = rows(12).map((good, i) => i + 1 === row ? { ...good, v: 'bad' } : good)
  bench.sent.length = 0
  const error = await bench.upsert('r', all, { key: ['id'] }).then(() => null, error => error)
  t.match(error, { code: 'FST_HOURLY_SYNC_UPSERT_REFUSED_ROW', row, cause: { code: sqlstate }, ...more }, `SQLSTATE ${sqlstate}`)
  t.equal((await bench.query('select 1 from r')).rowCount, 0)
  return error
}

t.test('a row that a trigger refuses is told, whatever it says', async t => {
  const says: Array<[what: string, sqlstate: string]> = [
    ["raise exception 'no'", 'P0001'], ["raise exception using errcode = 'AB123'", 'AB123'], ["raise exception 'no' using column = 'v', errcode = '55000'", '55000'],
    ["assert false, 'no'", 'P0004'], ['select 1 / 0 into new.v', '22012'], ["raise exception using errcode = '23502'", '23502']
  ]
  for (const [what, sqlstate] of says) {
    for (const when of ['before', 'after']) {
      const bench = await open(t, 'create table r (id int primary key, v text)', refusing(what), `create trigger refuse ${when} insert on r for each row execute function refuse()`)
      for (const row of [1, 7, 12]) await refused(t, bench, row, sqlstate, { message: `row ${row} of 'r' should satisfy the table, instead got SQLSTATE ${sqlstate}` })
      t.ok(bench.sent.length <= 12, `in ${bench.sent.length} statements`)
    }
  }
})

t.test('a constraint or trigger that waits for the commit is asked at once', async t => {
  const waits: Array<[sqlstate: string, ...statements: string[]]> = [
    ['23503', 'create table other (v text primary key)', "insert into other select 'v' || i from generate_series(0, 20) i", 'alter table r add foreign key (v) references other deferrable initially deferred'],
    ['23505', 'alter table r add unique (v) deferrable initially deferred', "insert into r values (-1, 'bad')"],
    ['P0001', refusing("raise exception 'no'"), 'create constraint trigger refuse after insert on r deferrable initially deferred for each row execute function refuse()']
  ]
  for (const [sqlstate, ...statements] of waits) {
    for (const index of [undefined, 'whole']) {
      const bench = await open(t, 'create table r (id int, v text)', `create unique index whole on r (id) ${index === undefined ? '' : 'where id is not null'}`, ...statements)
      const all = rows(12).map((good, i) => i === 8 ? { ...good, v: 'bad' } : good)
      await t.rejects(bench.upsert('r', all, { key: ['id'], index }), { code: 'FST_HOURLY_SYNC_UPSERT_REFUSED_ROW', row: 9, cause: { code: sqlstate } })
      t.equal((await bench.query('select 1 from r where id >= 0')).rowCount, 0)
      t.ok(bench.sent.length < 20, `in ${bench.sent.length} statements`)
    }
  }
})

t.test("what waits for the commit of a host's transaction is left to it", async t => {
  const { client, query } = await open(t, 'create table r (id int primary key, v text check (v <> \'bad\'))', 'create table other (v text primary key)',
    'alter table r add foreign key (v) references other deferrable initially deferred')
  const sent: string[] = []
  const upsert = createUpsert(nestedContext({
    query: async (text, values, name) => {
      sent.push(text)
      return await client.query({ text, values, name })
    }
  }))
  await query('begin')
  await upsert('r', rows(3), { key: ['id'] })
  await t.rejects(upsert('r', [...rows(3), { id: 5, v: 'bad' }], { key: ['id'] }), { code: 'FST_HOURLY_SYNC_UPSERT_REFUSED_ROW', row: 4 })
  t.notOk(sent.some(text => text.includes('set constraints')))
  await query("insert into other values ('v0'), ('v1'), ('v2')")
  await query('commit')
  t.equal((await query('select 1 from r')).rowCount, 3)
})

t.test('a row that a policy or a limit refuses is told', async t => {
  const guarded = await open(t, 'create table r (id int primary key, v text)', 'alter table r enable row level security', "create policy good on r using (true) with check (v <> 'bad')",
    'create role writer', 'grant all on r to writer')
  await guarded.query(`grant usage on schema ${guarded.schema} to writer`)
  await guarded.query('set role writer')
  for (const row of [1, 12]) await refused(t, guarded, row, '42501')

  const { upsert } = await open(t, 'create table r (v text primary key)')
  const long = Array.from({ length: 9_000 }, (_, i) => i.toString(36)).join('')
  await t.rejects(upsert('r', [{ v: 'a' }, { v: long }, { v: 'b' }], { key: ['v'] }), { code: 'FST_HOURLY_SYNC_UPSERT_REFUSED_ROW', row: 2, cause: { code: '54000' } })
})

t.test('a row that is another one to one unique index and the same to a second is told', async t => {
  const { upsert } = await open(t, "create collation ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false)", 'create table r (v text, n int)',
    'create unique index one on r (v)', 'create unique index two on r (v collate ci)')
  await t.rejects(upsert('r', [{ v: 'b', n: 1 }, { v: 'A', n: 1 }, { v: 'a', n: 2 }], { key: ['v'] }), {
    code: 'FST_HOURLY_SYNC_UPSERT_REFUSED_ROW', row: 3, message: /every unique index on its key beside the rows before it, instead got SQLSTATE 21000/
  })
})

t.test('what fails without any row comes as it is', async t => {
  const { upsert, query, sent } = await open(t, 'create table r (id int primary key, v text)', refusing("raise exception 'not today'"))
  await query('create function never() returns trigger language plpgsql as $$ begin raise exception \'not today\'; end $$')
  await query('create trigger never before insert on r for each statement execute function never()')
  await t.rejects(upsert('r', rows(1000), { key: ['id'] }), { code: 'P0001', message: 'not today' })
  t.equal(sent.filter(({ text }) => isBatch(text)).length, 3, 'and is not searched for')
})

t.test('what another writer or an operator does is not searched for', async t => {
  const { upsert, query, client, sent, schema } = await open(t, 'create table r (id int primary key, v text)', "insert into r values (1, 'old')")
  await query(`set search_path = ${schema}`)
  for (const [setting, code] of [['lock_timeout', '55P03'], ['statement_timeout', '57014']] as const) {
    const other = await openUpsert(t, cluster.url())
    await other.query(`begin; update ${schema}.r set v = 'locked'`)
    await client.query(`set ${setting} = '50ms'`)
    sent.length = 0
    await t.rejects(upsert('r', rows(3), { key: ['id'] }), { code })
    t.equal(sent.filter(({ text }) => isBatch(text)).length, 1)
    await client.query(`reset ${setting}`)
    await other.query('rollback')
  }
})

t.test('the column at fault is found among many, and the first of several', async t => {
  const names = Array.from({ length: 40 }, (_, i) => `c${i}`)
  const { upsert, sent } = await open(t, `create table r (id int primary key, ${names.map(name => `${name} varchar(3)`).join(', ')})`)
  const row = { id: 1, ...Object.fromEntries(names.map(name => [name, 'abc'])) }
  for (const bad of [['c0'], ['c39'], ['c17', 'c18', 'c30']]) {
    sent.length = 0
    await t.rejects(upsert('r', [{ ...row, ...Object.fromEntries(bad.map(name => [name, 'abcd'])) }], { key: ['id'] }), { code: 'FST_HOURLY_SYNC_UPSERT_INVALID_VALUE', column: bad[0] })
    t.ok(sent.length < 14, `in ${sent.length} statements`)
  }
})

t.test('a column that a trigger leaves without a value is not said to have had none', async t => {
  const { upsert } = await open(t, 'create table r (id int primary key, v text not null)',
    'create function clear() returns trigger language plpgsql as $$ begin new.v = null; return new; end $$', 'create trigger clear before insert on r for each row execute function clear()')
  await t.rejects(upsert('r', rows(2), { key: ['id'] }), { code: 'FST_HOURLY_SYNC_UPSERT_REFUSED_ROW', row: 1, column: 'v', message: /not null in column 'v'/ })
})

t.test('the cause of an invalid value holds no value', async t => {
  const { upsert } = await open(t, 'create domain even as int check (value % 2 = 0)', 'create table r (id int primary key, d date, e even)')
  const causeOf = async (row: object): Promise<any> => (await upsert('r', [row], { key: ['id'] }).catch(error => error)).cause
  const cause = await causeOf({ id: 1, d: 'hunter2' })
  t.notMatch(inspect(cause, { depth: 9, showHidden: true }), 'hunter2')
  t.match(cause, { message: 'SQLSTATE 22007', code: '22007' })
  t.match(await causeOf({ id: 1, e: 3 }), { message: 'SQLSTATE 23514', code: '23514', constraint: 'even_check' })
})

t.test('an error that cannot be brought about again is told as it came', async t => {
  const { upsert, before, context } = await open(t, 'create table r (id int primary key, v text)')
  const injected = Object.assign(new Error('once'), { code: '22000', severity: 'ERROR' })
  let batches = 0
  before.hook = ({ text }) => { if (isBatch(text) && ++batches === 1) throw injected }
  await t.rejects(upsert('r', rows(3), { key: ['id'] }), injected)
  t.ok(batches > 1, 'it was tried')

  batches = 0
  before.hook = ({ text }) => {
    if (isBatch(text)) throw ++batches === 1 ? injected : new Error('connection lost meanwhile')
  }
  await t.rejects(upsert('r', rows(3), { key: ['id'] }), injected, 'also when the search itself fails')

  batches = 0
  before.hook = ({ text }) => { if (isBatch(text)) { batches++; throw injected } }
  const gone = new AbortController()
  gone.abort()
  context.signal = gone.signal
  await t.rejects(upsert('r', rows(3), { key: ['id'] }), injected)
  t.equal(batches, 1, 'and not looked for after an abort')

  batches = 0
  const going = new AbortController()
  context.signal = going.signal
  before.hook = ({ text }) => {
    if (!isBatch(text)) return
    if (++batches === 3) going.abort()
    if (batches !== 3) throw injected // the third is without rows
  }
  await t.rejects(upsert('r', rows(9), { key: ['id'] }), injected)
  t.equal(batches, 3, 'nor when the abort comes meanwhile')
})
