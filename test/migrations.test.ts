import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import pg from 'pg'
import t from 'tap'
import { migrate, migrationSql, VERSION } from '../lib/migrations.js'
import { parseOptions } from '../lib/options.js'
import { createPoolGate } from '../lib/connections.js'
import { systemClock } from '../lib/clock.js'
import { createService, type Service } from '../lib/service.js'
import type { HourlySyncOptions } from '../lib/types.js'
import { createLog } from './helpers/log.js'
import { startPostgres } from './helpers/postgres.js'
import { gate, until } from './helpers/until.js'

type Test = typeof t

t.setTimeout(180_000) // for the slowest machine, not for this one
const server = await startPostgres(t)
/** For tests that need no more than a schema of their own. */
const shared = await server.database()

/** A client of its own, closed with the test. */
async function connect (t: Pick<Test, 'teardown' | 'name'>, database: string, user?: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: server.url(database, user) })
  await client.connect()
  t.teardown(async () => await client.end())
  return client
}

/** A service on a pool of its own, with both closed after the test. */
function serve (t: Pick<Test, 'teardown' | 'name'>, database: string, user: string, options: Partial<HourlySyncOptions> = {}): Service {
  const pool = new pg.Pool({ connectionString: server.url(database, user), max: 4 })
  const { log } = createLog()
  const service = createService(parseOptions({ name: t.name.slice(0, 100), sync: () => {}, ...options }), log)
  service.open(createPoolGate(pool, systemClock, log))
  t.teardown(async () => {
    await service.close()
    await pool.end()
  })
  return service
}

/** Everything that a schema is made of, as the catalogs tell it, without names of what it is in. */
async function catalog (client: pg.Client, schema: string): Promise<unknown> {
  const ask = async (text: string): Promise<unknown[]> => (await client.query({ text, values: [schema], rowMode: 'array' })).rows
  return {
    columns: await ask(`select table_name, column_name, ordinal_position, data_type, is_nullable, column_default,
        col_description((quote_ident(table_schema) || '.' || quote_ident(table_name))::regclass, ordinal_position::int)
      from information_schema.columns where table_schema = $1 order by 1, 3`),
    indexes: await ask("select tablename, replace(indexdef, quote_ident(schemaname) || '.', '') from pg_indexes where schemaname = $1 order by 1, 2"),
    constraints: await ask(`select conrelid::regclass::text = (quote_ident($1) || '.' || relname), relname, contype, pg_get_constraintdef(c.oid)
      from pg_constraint c join pg_class r on r.oid = conrelid where connamespace = (select oid from pg_namespace where nspname = $1) order by 2, 3, 4`),
    others: await ask('select relname, relkind from pg_class where relnamespace = (select oid from pg_namespace where nspname = $1) order by 1'),
    versions: (await client.query({ text: `select version from ${pg.escapeIdentifier(schema)}.migration order by 1`, rowMode: 'array' })).rows
  }
}

/** A role that can log in and nothing else. */
async function role (name: string, database: string): Promise<string> {
  await server.query(`create role ${name} login password 'postgres'`)
  await server.query('revoke create on schema public from public', [], database)
  return name
}

const grants = (schema: string, name: string): string =>
  `grant usage on schema ${schema} to ${name}; grant select, insert, update, delete on all tables in schema ${schema} to ${name}`

t.test('a fresh database gets its tables', async t => {
  const client = await connect(t, await server.database())
  await migrate(client, 'hourly_sync', true)
  const { rows } = await client.query("select relname from pg_class where relnamespace = 'hourly_sync'::regnamespace and relkind = 'r' order by 1")
  t.strictSame(rows.map(({ relname }) => relname), ['migration', 'run', 'sync'])
  const { rows: [newest] } = await client.query('select max(version) as version from hourly_sync.migration')
  t.equal(newest.version, VERSION)
})

t.test('the second time there is nothing to do, and nothing is begun', async t => {
  const client = await connect(t, shared)
  await migrate(client, 'second_time', true)
  const before = await catalog(client, 'second_time')
  const sent: string[] = []
  await migrate({ query: async statement => { sent.push(typeof statement === 'string' ? statement : statement.text); return await client.query(statement as string) } }, 'second_time', true)
  t.strictSame(await catalog(client, 'second_time'), before)
  t.notOk(sent.some(text => /begin|lock|create/i.test(text.replace(/is_in_recovery/, ''))), sent.join('\n'))
})

/** `npm run soak` takes more of them. */
const rounds = process.env.SOAK === 'true' ? 10 : 3

t.test(`sixteen at once on an empty database, ${rounds} rounds, without an error in any`, async t => {
  const database = await server.database()
  const clients = await Promise.all(Array.from({ length: 16 }, async () => await connect(t, database)))
  for (let round = 1; round <= rounds; round++) {
    const outcomes = await Promise.allSettled(clients.map(async client => await migrate(client, 'hourly_sync', true)))
    t.strictSame(outcomes.filter(({ status }) => status === 'rejected').map(outcome => String((outcome as PromiseRejectedResult).reason)), [], `round ${round}`)
    const { rows } = await clients[0]!.query('select version from hourly_sync.migration')
    t.equal(rows.length, VERSION)
    await clients[0]!.query('drop schema hourly_sync cascade')
  }
})

t.test('sixteen at once where transactions are repeatable read by default', async t => {
  const database = await server.database()
  await server.query(`alter database ${database} set default_transaction_isolation = 'repeatable read'`)
  const clients = await Promise.all(Array.from({ length: 16 }, async () => await connect(t, database)))
  for (let round = 1; round <= 3; round++) {
    const outcomes = await Promise.allSettled(clients.map(async client => await migrate(client, 'hourly_sync', true)))
    t.strictSame(outcomes.filter(({ status }) => status === 'rejected').map(outcome => String((outcome as PromiseRejectedResult).reason)), [], `round ${round}`)
    await clients[0]!.query('drop schema hourly_sync cascade')
  }
})

t.test('in a schema that exists already, tables are made in it', async t => {
  const client = await connect(t, shared)
  await client.query('create schema existing')
  await migrate(client, 'existing', true)
  t.equal((await client.query('select from existing.run')).rowCount, 0)
})

t.test('nothing of a migration that fails stays, and the session is in no transaction', async t => {
  const client = await connect(t, shared)
  await client.query('create schema failing')
  await client.query('create table failing.unrelated (x int); create index run_slot on failing.unrelated (x)')
  await t.rejects(migrate(client, 'failing', true), { code: 'FST_HOURLY_SYNC_SCHEMA_TAKEN', cause: { code: '42P07' } })
  t.equal(client.getTransactionStatus(), 'I')
  t.equal((await client.query("select to_regclass('failing.migration') as found")).rows[0].found, null)
})

t.test('who waits for another migration waits five seconds at most', async t => {
  const database = shared
  const [client, other] = [await connect(t, database), await connect(t, database)]
  await other.query('begin')
  let held: string | undefined
  await t.rejects(migrate({
    query: async statement => {
      const text = typeof statement === 'string' ? statement : statement.text
      // the other process has the lock when this one asks for it
      if (text.includes('pg_try_advisory_xact_lock')) await other.query(statement as pg.QueryConfig)
      if (text.includes('lock_timeout')) held = text
      return await client.query(statement as string)
    }
  }, 'waiting', true), { code: '55P03' })
  t.match(held, "set local lock_timeout = '5s'")
  await other.query('rollback')
  await migrate(client, 'waiting', true)
})

t.test('who waits for another migration does not wait for others that wait, however slow they are', async t => {
  const database = await server.database()
  const [maker, slow, waiter] = [await connect(t, database), await connect(t, database), await connect(t, database)]
  const turn = gate()
  const slowed = {
    query: async (statement: string | pg.QueryConfig) => {
      const answer = await slow.query(statement as string)
      if (String(statement).includes('pg_advisory_xact_lock_shared')) await turn.passed // its process has much to do
      return answer
    }
  }
  let [slowly, waiting]: Array<Promise<void>> = []
  let locked = false
  const making = migrate({
    query: async statement => {
      const answer = await maker.query(statement as string)
      if (!locked && JSON.stringify(answer.rows).includes('"locked":true')) {
        locked = true
        slowly = migrate(slowed, 'crowded', true)
        waiting = migrate(waiter, 'crowded', true)
        await until(async () => (await server.query("select from pg_locks where locktype = 'advisory' and not granted")).rowCount === 2)
      }
      return answer
    }
  }, 'crowded', true)
  await making
  await waiting
  turn.open()
  await slowly
  t.equal((await waiter.query('select from crowded.migration')).rowCount, VERSION)
})

for (const schema of ['we"ird', 'Order', 'with space', "it's", '주문', 'select', 'a.b', 's'.repeat(63)]) {
  t.test(`a schema named ${schema.slice(0, 20)} works`, async t => {
    const client = await connect(t, shared)
    await migrate(client, schema, true)
    await migrate(client, schema, true)
    t.equal((await client.query('select from pg_namespace where nspname = $1', [schema])).rowCount, 1)
    await client.query(`drop schema ${pg.escapeIdentifier(schema)} cascade`)
    await client.query(migrationSql(schema))
    await migrate(client, schema, false)
  })
}

t.test('two schemas in one database do not meet', async t => {
  const client = await connect(t, shared)
  await migrate(client, 'one', true)
  await migrate(client, 'two', true)
  t.strictSame(await catalog(client, 'one'), await catalog(client, 'two'))
})

t.test('a newer version of the schema works', async t => {
  const database = await server.database()
  const client = await connect(t, database)
  await migrate(client, 'hourly_sync', true)
  await client.query('insert into hourly_sync.migration (version) values ($1)', [VERSION + 7])
  await client.query('alter table hourly_sync.run add column of_the_future text, add column and_this int not null default 7')
  await client.query('alter table hourly_sync.sync add column of_the_future jsonb')
  await t.resolves(migrate(client, 'hourly_sync', false))
  t.match(await serve(t, database, 'postgres').runOnce(), { outcome: 'succeeded' })
})

t.test('missing tables with migrate: false are refused, and nothing is made', async t => {
  const client = await connect(t, shared)
  await t.rejects(migrate(client, 'absent', false), { code: 'FST_HOURLY_SYNC_SCHEMA', message: /'absent' are missing.*migrationSql\(\)/ })
  t.equal((await client.query("select to_regnamespace('absent') as found")).rows[0].found, null)
})

t.test('an older version with migrate: false is refused by its number', async t => {
  const client = await connect(t, shared)
  await migrate(client, 'older', true)
  await client.query('delete from older.migration where version > 1')
  await t.rejects(migrate(client, 'older', false), { code: 'FST_HOURLY_SYNC_SCHEMA', message: new RegExp(`of version 1, version ${VERSION} is needed`) })
})

t.test('a role without CREATE works on tables that exist', async t => {
  const database = await server.database()
  const admin = await connect(t, database)
  await migrate(admin, 'hourly_sync', true)
  const name = await role('dml_only', database)
  await admin.query(grants('hourly_sync', name))
  await t.resolves(migrate(await connect(t, database, name), 'hourly_sync', true))
})

t.test('a role without CREATE on an empty database is refused with the cure', async t => {
  const database = await server.database()
  const client = await connect(t, database, await role('no_create', database))
  await t.rejects(migrate(client, 'hourly_sync', true), { code: 'FST_HOURLY_SYNC_SCHEMA', message: /are missing.*this role may not create them.*migrationSql\(\)/, cause: { code: '42501' } })
  t.equal(client.getTransactionStatus(), 'I')
})

t.test('a role without USAGE on the schema is refused for its rights', async t => {
  const database = await server.database()
  await migrate(await connect(t, database), 'hourly_sync', true)
  t.match(await serve(t, database, await role('no_usage', database)).runOnce(), { outcome: 'refused', reason: /lacks rights on schema 'hourly_sync'/ })
})

t.test('after migrationSql() by an admin, a role with DML alone runs, records and prunes', async t => {
  const database = await server.database()
  const admin = await connect(t, database)
  await admin.query(migrationSql())
  const name = await role('dml_runner', database)
  await admin.query(grants('hourly_sync', name))
  const service = serve(t, database, name, { history: { keepFor: '1s' } })
  t.match(await service.runOnce({ force: true }), { outcome: 'succeeded' })
  t.match(await service.status(), { lastRun: { state: 'succeeded' }, unavailable: null })
  t.equal((await admin.query('select from hourly_sync.sync where pruned_at is not null')).rowCount, 1)
})

t.test('migrationSql() is what migrate() makes', async t => {
  const [made, printed] = [await connect(t, shared), await connect(t, await server.database())]
  for (const schema of ['hourly_sync', 'we"irder']) {
    await migrate(made, schema, true)
    await printed.query(migrationSql(schema))
    const catalogs = [await catalog(made, schema), await catalog(printed, schema)] as const
    t.ok((catalogs[0] as { columns: unknown[] }).columns.length > 30, 'there is something to compare')
    t.strictSame(catalogs[1], catalogs[0])
  }
})

t.test('migrationSql() is all or nothing', async t => {
  const client = await connect(t, shared)
  await client.query('create schema printed')
  await t.rejects(client.query(migrationSql('printed')), { code: '42P06' })
  await client.query('rollback')
  t.equal((await client.query("select to_regclass('printed.run') as found")).rows[0].found, null)
})

t.test('the outcome of a database without tables is one that a later look gets out of', async t => {
  const database = await server.database()
  const service = serve(t, database, 'postgres', { migrate: false })
  t.match(await service.runOnce(), { outcome: 'refused', reason: /are missing/ })
  await server.query(migrationSql(), [], database)
  t.match(await service.runOnce(), { outcome: 'succeeded' })
})

const others: Array<[what: string, sql: string, reason: RegExp]> = [
  ['migration', 'create table migration (version int, name text)', /schema 'public' has 'migration', which is not this plugin's/],
  ['migration, which has columns of ours and no rows', 'create table migration (version int primary key, applied_at timestamptz)', /are incomplete \(run does not exist, sync does not exist\)/],
  ['run', 'create table run (id uuid primary key, name text, state text)', /schema 'public' has 'run', which/],
  ['run and sync', 'create table run (x int); create view sync as select 1 as x', /schema 'public' has 'run', 'sync', which/],
  ['an index of a name of ours', 'create table mine (x int); create index run_slot on mine (x)', /schema 'public' has something \(relation "run_slot" already exists\), which/],
  ['a type of a name of ours', 'create type sync as enum (\'a\')', /schema 'public' has something \(type "sync" already exists\), which/]
]
for (const [what, sql, reason] of others) {
  t.test(`a schema in which something else has ${what} is refused, and left as it is`, async t => {
    const database = await server.database()
    const client = await connect(t, database)
    await client.query(sql)
    const contents = async (): Promise<unknown> => (await client.query("select relname, relkind, relfilenode from pg_class where relnamespace = 'public'::regnamespace order by 1")).rows
    const before = await contents()
    const service = serve(t, database, 'postgres', { schema: 'public' })
    for (let look = 0; look < 2; look++) t.match(await service.runOnce(), { outcome: 'refused', reason })
    t.strictSame(await contents(), before)
    if (what.startsWith('migration')) t.strictSame((await client.query('select * from migration')).rows, [])
  })
}

t.test('tables that cannot be made, for whatever reason the database has, are refused with it', async t => {
  const database = await server.database()
  const client = await connect(t, database)
  await client.query(`create function no() returns event_trigger language plpgsql as 'begin raise exception $a$ask the owner$a$; end';
    create event trigger no on ddl_command_start when tag in ('CREATE TABLE') execute function no()`)
  t.match(await serve(t, database, 'postgres').runOnce(), { outcome: 'refused', reason: /are missing, version \d+ is needed and they cannot be made \(ask the owner\)/ })
  t.equal((await client.query("select to_regnamespace('hourly_sync') as found")).rows[0].found, null)
})

t.test('a primary whose transactions are read-only by default is no replica', async t => {
  for (const made of [false, true]) {
    const database = await server.database()
    if (made) await server.query(migrationSql(), [], database)
    await server.query(`alter database ${database} set default_transaction_read_only to on`)
    t.match(await serve(t, database, 'postgres').runOnce(), { outcome: 'refused', reason: /takes no writes: its transactions are read-only by default \(default_transaction_read_only\)/ })
  }
})

t.test('a replica is refused, and works as soon as it is the primary', async t => { // the last: it is the server's own turn
  const database = await server.database()
  await server.query(migrationSql(), [], database)
  await server.stop('SIGINT')
  writeFileSync(join(server.directory, 'standby.signal'), '')
  await server.start(true)
  await t.rejects(migrate(await connect(t, database), 'hourly_sync', true), { code: 'FST_HOURLY_SYNC_READ_ONLY' })
  const service = serve(t, database, 'postgres')
  t.match(await service.runOnce(), { outcome: 'refused', reason: /read-only replica/ })
  await server.query('select pg_promote()')
  t.match(await service.runOnce(), { outcome: 'succeeded' })
})
