import type { QueryConfig } from 'pg'
import { FST_HOURLY_SYNC_READ_ONLY, FST_HOURLY_SYNC_SCHEMA } from './errors.js'
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
 * @throws FST_HOURLY_SYNC_SCHEMA when they are missing or old and may not, or cannot, be made
 * @throws FST_HOURLY_SYNC_READ_ONLY on a replica
 */
export async function migrate (connection: Connection, schemaName: string, allowed: boolean): Promise<void> {
  const { replica, version: found } = await inspect(connection, schemaName)
  let version = found
  if (replica) throw new FST_HOURLY_SYNC_READ_ONLY()
  if (version >= VERSION) return
  const state = version === 0 ? 'missing' : `of version ${version}`
  if (!allowed) throw new FST_HOURLY_SYNC_SCHEMA(schemaName, state, VERSION, "'migrate' is off")
  try {
    while (version < VERSION) version = await apply(connection, schemaName, version + 1)
  } catch (cause) {
    await connection.query('rollback').catch(() => {}) // a dead connection has
    if ((cause as { code?: string }).code !== '42501') throw cause
    throw new FST_HOURLY_SYNC_SCHEMA(schemaName, state, VERSION, 'this role may not create them', { cause })
  }
}

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

/** Reads the catalogs as tables: `to_regclass` and its like look in a cache that a wait for an advisory lock does not refresh. */
async function inspect (connection: Connection, schemaName: string): Promise<Inspection> {
  const { rows: [found] } = await connection.query(ours(
    `select exists (select from pg_namespace where nspname = $1::text) as schema,
      exists (
        select from pg_class c
        join pg_namespace n on n.oid = c.relnamespace
        where n.nspname = $1::text and c.relname = 'migration'
      ) as present,
      pg_is_in_recovery() as replica`, [schemaName]))
  if (!found.present) return { ...found, version: 0 }
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
