import pg from 'pg'
import { migrationSql } from '../../index.js'
import { type Cluster, startPostgres } from '../helpers/postgres.js'
import type { Scope } from './scope.js'

export const NAME = 'storm'

export interface Database {
  cluster: Cluster
  /** One statement of the harness, over a way of its own. */
  ask: <R extends pg.QueryResultRow = any>(text: string, values?: unknown[]) => Promise<R[]>
  /** Bends the clock that the syncs see. Milliseconds from the real one. */
  bend: (shift: number) => Promise<void>
}

/**
 * A cluster that remembers when each transaction was committed, with a clock that can be bent and tables for orders and for what the runs say of themselves.
 *
 * `chaos_end` is filled by a trigger, in the transaction that records the end of a run: so its commit is known even if the row is written again.
 */
export async function startDatabase (scope: Scope): Promise<Database> {
  const cluster = await startPostgres(scope, { track_commit_timestamp: 'on', max_connections: '120' })
  await cluster.database(NAME)
  const ask: Database['ask'] = async (text, values) => (await cluster.query(text, values, NAME)).rows
  await ask(`
    create schema shim;
    create table shim.clock (shift interval not null);
    insert into shim.clock values ('0');
    create function shim.clock_timestamp() returns timestamptz language sql volatile as
      'select pg_catalog.clock_timestamp() + (select shift from shim.clock)';
    alter database ${NAME} set search_path = shim, pg_catalog, public;
    create table public.orders (external_id text primary key, customer text, status text, total numeric(12, 2), currency text, item_count int, paid boolean, note text,
      tags jsonb, created_at timestamptz, updated_at timestamptz);
    create table public.chaos_log (id bigint generated always as identity primary key, run uuid not null, seq int not null, kind text not null, temper text,
      worker int, slot timestamptz, since timestamptz, until timestamptz, trigger text, backend int default pg_catalog.pg_backend_pid(),
      at timestamptz not null default pg_catalog.clock_timestamp());
    create table public.chaos_end (run uuid not null, state text not null)`)
  await ask(migrationSql())
  await ask(`
    create function public.note_end() returns trigger language plpgsql as
      'begin insert into public.chaos_end values (new.id, new.state); return null; end';
    create trigger note_end after insert on hourly_sync.run for each row execute function public.note_end()`)
  return { cluster, ask, bend: async shift => { await ask("update shim.clock set shift = $1 * interval '1 millisecond'", [shift]) } }
}
