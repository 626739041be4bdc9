/** What SQL of this room is made of. */
import type { QueryConfig } from 'pg'

/** The longest timer there is. Our statements have limits of their own, which know a blocked event loop from a silent server. */
const NEVER = 2 ** 31 - 1

/** A statement of ours, with parsers and limits that no setting of the host can bend. */
export function ours (text: string, values: unknown[] = []): QueryConfig {
  return { ...plain(text, values), query_timeout: NEVER } as QueryConfig
}

/** A statement that we make for the host: with our parsers, and the host's limits. */
export function plain (text: string, values: unknown[] = [], name?: string): QueryConfig {
  return { text, values, name, types: { getTypeParser } } as QueryConfig
}

const BOOL = 16
const INT4 = 23

function getTypeParser (oid: number, format?: string): (value: any) => unknown {
  if (format === 'binary') {
    if (oid === BOOL) return (value: Buffer) => value[0] === 1
    if (oid === INT4) return (value: Buffer) => value.readInt32BE()
    return (value: Buffer) => value.toString()
  }
  if (oid === BOOL) return (value: string) => value === 't'
  if (oid === INT4) return Number
  return String
}

/** Quotes an identifier; the only thing ever spliced into SQL. */
export function identifier (name: string): string {
  return `"${name.replaceAll('"', '""')}"`
}

/** An instant column as whole epoch milliseconds. */
export const ms = (column: string): string => `floor(extract(epoch from ${column}) * 1000)::bigint`

/**
 * Where timestamps of PostgreSQL begin, 4713 BC, in epoch milliseconds. They end after the last Date there is.
 *
 * @see https://www.postgresql.org/docs/current/datatype-datetime.html
 */
export const EARLIEST = Date.UTC(-4712, 0, 1)
const LATEST = 8_640_000_000_000_000

/** How far an `integer` counts. */
export const MOST = 2_147_483_647

/**
 * The opposite: exact, for a double holds whole milliseconds beyond any year in use. What no timestamp holds is the nearest that one does, for
 * a run whose end cannot be recorded would be in the way of every later one.
 */
export const at = (expression: string): string =>
  `to_timestamp((case when ${expression} < ${EARLIEST} then ${EARLIEST} when ${expression} > ${LATEST} then ${LATEST} else ${expression} end)::double precision / 1000)`

/** A number of a JSON object, or null where it has none of that name. */
export const numberIn = (json: string, name: string): string => `case when jsonb_typeof(${json}->'${name}') = 'number' then (${json}->>'${name}')::numeric end`

export const clock = `clock as materialized (
    select ${ms('clock_timestamp()')} as now
  )`

/** Whether this very session holds the lock, as a query. */
export const ownLock = (classid: string, objid: string): string => `select 1
      from pg_locks
      where locktype = 'advisory'
        and pid = pg_backend_pid()
        and database = (select oid from pg_database where datname = current_database())
        and classid = ${classid}::oid
        and objid = ${objid}::oid
        and objsubid = 1
        and mode = 'ExclusiveLock'
        and granted`

/** When a session began, exact: with its process id, which the system gives away again, it tells one session from another. */
const connected = 'extract(epoch from backend_start)::text'

/** By what a mark names the session it was made on, as arguments of `jsonb_build_object`. */
export const ownSession = `'backend', pg_backend_pid(), 'connected', (select ${connected} from pg_stat_activity where pid = pg_backend_pid())`

/**
 * Who holds the lock, as a query of {@link HolderRow}, or none: the view lists the locks of all databases of the server, so the database is
 * named. A shared lock, which is none of ours, keeps every run out as well; of several the first is as good as any.
 */
export const holding = (classid: string, objid: string): string => `select l.pid as backend, ${connected} as connected, a.application_name, host(a.client_addr) as address
  from pg_locks l
  left join pg_stat_activity a on a.pid = l.pid
  where l.locktype = 'advisory'
    and l.database = (select oid from pg_database where datname = current_database())
    and l.classid = ${classid}::oid
    and l.objid = ${objid}::oid
    and l.objsubid = 1
    and l.granted
  order by l.mode <> 'ExclusiveLock', l.pid
  limit 1`

/** The columns of a run row, as text. */
export const runColumns = (table: string): string => `${table}.id::text as id,
    ${table}.name,
    ${table}.target,
    ${table}.trigger,
    ${table}.state,
    ${ms(`${table}.slot`)}::text as slot,
    ${table}.slice,
    ${table}.slices,
    ${table}.attempt,
    ${ms(`${table}.window_start`)}::text as window_start,
    ${ms(`${table}.window_end`)}::text as window_end,
    ${ms(`${table}.started_at`)}::text as started_at,
    ${ms(`${table}.finished_at`)}::text as finished_at,
    ${table}.worker,
    ${table}.stats::text as stats,
    ${table}.error::text as error`

/** A run row, as {@link runColumns} gives it. */
export interface RunRow {
  id: string
  name: string
  target: string
  trigger: string
  state: string
  slot: string | null
  slice: number
  slices: number
  attempt: number
  window_start: string | null
  window_end: string
  started_at: string
  finished_at: string
  worker: string
  stats: string | null
  error: string | null
}

/** A session that holds a lock. What the server does not show to a role without rights is null. */
export interface HolderRow {
  backend: number
  /** When the session began. */
  connected: string | null
  application_name: string | null
  address: string | null
}

/** The tables of one schema, quoted. */
export interface Tables { sync: string, run: string }

export function tables (schemaName: string): Tables {
  const schema = identifier(schemaName)
  return { sync: `${schema}.sync`, run: `${schema}.run` }
}
