import type { QueryConfig } from 'pg'
import { FST_HOURLY_SYNC_READ_ONLY, FST_HOURLY_SYNC_SCHEMA, FST_HOURLY_SYNC_SCHEMA_TAKEN } from './errors.js'
import { asError, messageOf } from './failure.js'
import { lockKey } from './lock-key.js'
import { identifier, ours } from './sql.js'

/** Apart from the key of any sync: names of syncs have no control characters. */
const MIGRATION_KEY = lockKey('fastify-hourly-sync\n').toString()

/** The steps that lead to the newest schema; within a major version they only add. Never change one that was released. */
const steps: Array<(schema: string) => string> = [
  schema => `create table ${schema}.sync (
  name text not null,
  target text not null default '',
  lock_key bigint not null,
  every bigint not null,
  "offset" bigint not null,
  watermark timestamptz,
  last_slot timestamptz,
  last_every bigint,
  succeeded_at timestamptz,
  cursor jsonb,
  started jsonb,
  deaths integer not null default 0,
  attempt_slot timestamptz,
  attempts integer not null default 0,
  not_before timestamptz,
  paused_until timestamptz,
  failed_at timestamptz,
  last_failure jsonb,
  pruned_at timestamptz,
  created_at timestamptz not null default clock_timestamp(),
  primary key (name, target)
);
create table ${schema}.run (
  id uuid primary key,
  name text not null,
  target text not null default '',
  trigger text not null,
  state text not null,
  slot timestamptz,
  slice integer not null default 1,
  slices integer not null default 1,
  attempt integer not null,
  window_start timestamptz,
  window_end timestamptz not null,
  started_at timestamptz not null,
  finished_at timestamptz not null,
  worker text not null,
  stats jsonb,
  error jsonb
);
create index run_started_at on ${schema}.run (name, target, started_at desc, id desc);
create index run_slot on ${schema}.run (name, target, slot);
comment on column ${schema}.sync.every is 'milliseconds';
comment on column ${schema}.sync."offset" is 'milliseconds';
comment on column ${schema}.sync.last_every is 'milliseconds: length of the last slot that succeeded';
comment on column ${schema}.sync.started is 'the run that noted its start and not yet its end';
comment on column ${schema}.sync.deaths is 'runs in a row that died with their process';
comment on column ${schema}.sync.attempts is 'failed runs in attempt_slot';`,

  schema => `alter table ${schema}.sync add column backfill jsonb;
comment on column ${schema}.sync.backfill is 'a backfill that is not done: since, until, position, in epoch milliseconds';`
]

/** The version this code needs. A newer one works as well. */
export const VERSION = steps.length

/** What a migration needs of a connection. */
interface Connection {
  query: (statement: string | QueryConfig) => Promise<{ rows: any[] }>
}

/**
 * Sees to it that the tables are there and new enough.
 *
 * Looks before it creates anything, so a role without CREATE works on tables that exist. Of processes that boot at once one works, under
 * a transaction-level lock, which a commit lets go of and a pooler cannot leak; the others wait until it is free, all at once and not one after
 * the other, and find the work done.
 *
 * @param allowed - whether tables may be made and upgraded
 * @throws FST_HOURLY_SYNC_SCHEMA when they are missing or old and may not, or cannot, be made, or are not all there
 * @throws FST_HOURLY_SYNC_SCHEMA_TAKEN when something else has a name that they need; it is left as it is
 * @throws FST_HOURLY_SYNC_READ_ONLY on a replica
 */
export async function migrate (connection: Connection, schemaName: string, allowed: boolean): Promise<void> {
  const { replica, version: found } = await inspect(connection, schemaName)
  let version = found
  if (replica) throw new FST_HOURLY_SYNC_READ_ONLY('it is a read-only replica, whose locks are its own: connect to the primary')
  if (version >= VERSION) return
  const state = version === 0 ? 'missing' : `of version ${version}`
  if (!allowed) throw new FST_HOURLY_SYNC_SCHEMA(schemaName, state, VERSION, "'migrate' is off")
  try {
    while (version < VERSION) version = await apply(connection, schemaName, version + 1)
  } catch (cause) {
    await connection.query('rollback').catch(() => {}) // a dead connection has
    const { code = '' } = cause as { code?: string }
    if (taken.has(code)) throw new FST_HOURLY_SYNC_SCHEMA_TAKEN(schemaName, `something (${messageOf(asError(cause))})`, { cause })
    if (!lasting.test(code)) throw cause
    const why = code === '42501' ? 'this role may not create them' : `they cannot be made (${messageOf(asError(cause))})`
    throw new FST_HOURLY_SYNC_SCHEMA(schemaName, state, VERSION, why, { cause })
  }
}

/**
 * SQLSTATEs of names that are in use, 42P07 by a relation and 42710 by a type; and those that do not pass by themselves: of class 42 (rules of access and
 * syntax), 0A (not supported) and P0 (raised by a trigger).
 */
const taken = new Set(['42P07', '42710'])
const lasting = /^(?:42|0A|P0)/

/** Takes one step, or waits for who is taking it. Returns the version that is there then. */
async function apply (connection: Connection, schemaName: string, version: number): Promise<number> {
  // under another level the snapshot is older than the lock
  await connection.query('begin isolation level read committed')
  await connection.query("set local lock_timeout = '5s'")
  const { rows: [{ locked }] } = await connection.query(ours('select pg_try_advisory_xact_lock($1::bigint) as locked', [MIGRATION_KEY]))
  if (!locked) {
    // in one message: no client has to have its turn before the next gets the lock
    await connection.query(`select pg_advisory_xact_lock_shared(${MIGRATION_KEY}); commit`)
    return (await inspect(connection, schemaName)).version
  }
  const found = await inspect(connection, schemaName)
  if (found.version < version) {
    // `if not exists` asks for the right to create even what exists
    if (!found.schema) await connection.query(createSchema(schemaName))
    if (!found.present) await connection.query(createVersions(schemaName))
    await connection.query(step(schemaName, version))
  }
  await connection.query('commit')
  return Math.max(found.version, version)
}

interface Inspection { schema: boolean, present: boolean, replica: boolean, version: number }

/** By what our tables are told from others of the same name: columns of the first version, and their types. */
const signs = `values ('migration', 'version', 'integer'), ('migration', 'applied_at', 'timestamp with time zone'),
      ('sync', 'deaths', 'integer'), ('sync', 'watermark', 'timestamp with time zone'),
      ('run', 'window_end', 'timestamp with time zone'), ('run', 'worker', 'text')`

/**
 * Reads the catalogs as tables: `to_regclass` and its like look in a cache that a wait for an advisory lock does not refresh.
 *
 * @throws FST_HOURLY_SYNC_SCHEMA_TAKEN when tables of these names are there that are not ours
 * @throws FST_HOURLY_SYNC_SCHEMA when not all of ours are there: they are made together
 */
async function inspect (connection: Connection, schemaName: string): Promise<Inspection> {
  const { rows: [{ foreign, missing, ...found }] } = await connection.query(ours(
    `with named as (
      select signs.name, bool_or(c.oid is not null) as present, bool_and(a.attname is not null) as ours
      from (${signs}) as signs (name, column_name, type)
      left join pg_namespace n on n.nspname = $1::text
      left join pg_class c on c.relnamespace = n.oid and c.relname = signs.name
      left join pg_attribute a on a.attrelid = c.oid and a.attname = signs.column_name and format_type(a.atttypid, null) = signs.type and not a.attisdropped
      group by signs.name
    )
    select exists (select from pg_namespace where nspname = $1::text) as schema,
      bool_or(present) as present,
      string_agg(quote_literal(name), ', ' order by name) filter (where present and not ours) as foreign,
      string_agg(name || ' does not exist', ', ' order by name) filter (where not present) as missing,
      pg_is_in_recovery() as replica
    from named`, [schemaName]))
  if (foreign !== null) throw new FST_HOURLY_SYNC_SCHEMA_TAKEN(schemaName, foreign)
  if (!found.present) return { ...found, version: 0 }
  if (missing !== null) throw new FST_HOURLY_SYNC_SCHEMA(schemaName, `incomplete (${missing})`, VERSION, "what is there is left as it is (if it is not this plugin's, give another name in the option 'schema')")
  const { rows: [newest] } = await connection.query(ours(`select coalesce(max(version), 0)::int as version from ${identifier(schemaName)}.migration`))
  return { ...found, version: newest.version }
}

const createSchema = (schemaName: string): string => `create schema ${identifier(schemaName)}`

const createVersions = (schemaName: string): string => `create table ${identifier(schemaName)}.migration (
  version integer primary key,
  applied_at timestamptz not null default clock_timestamp()
)`

const step = (schemaName: string, version: number): string => `${steps[version - 1]!(identifier(schemaName))}
insert into ${identifier(schemaName)}.migration (version) values (${version})`

/**
 * The whole schema as SQL, for a role that may create it; the plugin then needs no more than
 * `usage` on the schema and `select, insert, update, delete` on its tables.
 */
export function migrationSql (schemaName = 'hourly_sync'): string {
  const all = [createSchema(schemaName), createVersions(schemaName), ...steps.map((_, index) => step(schemaName, index + 1))]
  return ['begin;', ...all.map(text => `${text};`), 'commit;', ''].join('\n')
}
