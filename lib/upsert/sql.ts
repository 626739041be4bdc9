import { shapeOf } from './sql-catalog.js'

const collated = (value: string, collation: string | null): string => collation === null ? value : `${value} collate ${collation}`

/** One column of the statement; `cast` turns the text `u.v<n>` into the column's type. */
export interface StatementColumn {
  /** escaped */
  name: string
  cast: string
  /** whether a difference in it makes the row a changed one */
  compared: boolean
}

/** What the upsert of one batch is made of; every name is escaped. */
export interface StatementParts {
  table: string
  partitioned: boolean
  columns: StatementColumn[]
  /** positions in `columns`, in the order of the index, so that all upserts lock rows in the same order */
  keys: Array<{ position: number, operator: string, collation: string | null }>
  /** of the partial index, as the server wrote it */
  predicate: string | null
  touch: string[]
  /** position in `columns` */
  newerBy: number | undefined
  /** whether a key may come twice in a batch */
  repeats: boolean
  /** whether the rows are expected to be written anyway: then nothing is looked up before the insert */
  direct: boolean
}

/**
 * $1 to $n the columns as `text[]`, then the table's escaped name, and the oid and the shape it had when the catalog was read
 * -> { same, inserted, written, sent, stale, outside }, all text. Where the table is another one or has other columns by now, nothing
 * is written: the casts are for the types it had, and might cut a value without a word.
 *
 * Unchanged and stale rows are filtered out *before* the insert: a row that reaches the conflict clause is locked,
 * which costs WAL even if it is not updated. The conflict clause asks the same again, because another writer may have
 * been there in between. The lookup is a lateral subquery with `offset 0`, which stays on the unique index even
 * for a table that was never analyzed. Rows differ when their images do (`*<>`): that also sees what a type's `=`
 * takes for equal (`1.0` and `1.00`, `A` and `a` in citext) and works for types that have no `=` (json).
 * The names with a `$` are ours: a host's table may be called `incoming`, and would be hidden by it.
 * A `direct` one leaves all to the conflict clause, which is right as well, and quicker for rows that are new or changed.
 */
export function upsertStatement (parts: StatementParts): string {
  const { table, columns, keys, touch, newerBy, repeats, direct } = parts
  const count = columns.length
  const stored = parts.partitioned ? table : `only ${table}`
  const predicate = parts.predicate === null ? '' : ` and (${parts.predicate})`
  const key = keys.map(({ position, collation }) => collated(`s.v${position}`, collation))
  const compared = columns.flatMap((column, position) => column.compared ? [{ name: column.name, position }] : [])
  const differs = (incoming: (column: { name: string, position: number }) => string): string => compared.length === 0
    ? 'false'
    : `row(${compared.map(({ name }) => `t.${name}`).join(', ')})::record operator(pg_catalog.*<>) row(${compared.map(incoming).join(', ')})::record`
  const older = (version: string, than: string): string => `(${than} is not null and (${version} is null or ${than} > ${version}))`
  const version = newerBy === undefined ? '' : (columns[newerBy] as StatementColumn).name
  const written = [...columns.map(({ name }) => name), ...touch]
  const changes = [...compared.map(({ name }) => `${name} = excluded.${name}`), ...touch.map(name => `${name} = now()`)]
  const repeated = repeats ? `, row_number() over w as nth${newerBy === undefined ? '' : `, first_value(s.v${newerBy}) over w as newest`}` : ''
  const window = repeats
    ? ` window w as (partition by ${key.join(', ')} order by ${newerBy === undefined ? '' : `s.v${newerBy} desc nulls last, `}s.n desc)`
    : ''
  const stale = newerBy === undefined ? 'false' : `e.stale is true${repeats ? ` or (e.nth > 1 and ${older(`e.v${newerBy}`, 'e.newest')})` : ''}`

  const unlooked = 'select s.*, null::boolean as changed from incoming$ as s'
  const looked = `select s.*, t.changed${newerBy === undefined ? '' : ', t.stale'}
  from incoming$ as s left join lateral (
    select ${differs(({ position }) => `s.v${position}`)} as changed${newerBy === undefined ? '' : `, ${older(`s.v${newerBy}`, `t.${version}`)} as stale`}
    from ${stored} as t
    where ${keys.map(({ position, operator }, nth) => `t.${(columns[position] as StatementColumn).name} ${operator} ${key[nth] as string}`).join(' and ')}${predicate}
    offset 0
  ) t on ${repeats ? 's.nth = 1' : 'true'}`

  return `with same$ as materialized (
  select coalesce(pg_catalog.to_regclass($${count + 1}::text)::oid = $${count + 2}::oid and ${shapeOf(`$${count + 2}::oid`)} = $${count + 3}::bigint, false) as same
), incoming$ as (
  select s.*${repeated}
  from (
    select ${columns.map(({ cast }, position) => `${cast} as v${position}`).join(', ')}${repeats ? ', u.n' : ''}
    from unnest(${columns.map((_, position) => `$${position + 1}::text[]`).join(', ')})${repeats ? ' with ordinality' : ''}
      as u (${columns.map((_, position) => `v${position}`).join(', ')}${repeats ? ', n' : ''})
    where (select same from same$)
    offset 0
  ) s${window}
), judged$ as (
  ${direct ? unlooked : looked}
), written$ as (
  insert into ${table} as t (${written.join(', ')})
  select ${[...columns.map((_, position) => `s.v${position}`), ...touch.map(() => 'now()')].join(', ')}
  from judged$ as s
  where s.changed is not false${newerBy === undefined ? '' : ' and s.stale is not true'}${repeats ? ' and s.nth = 1' : ''}
  order by ${key.join(', ')}
  on conflict (${keys.map(({ position }) => (columns[position] as StatementColumn).name).join(', ')})${parts.predicate === null ? '' : ` where ${parts.predicate}`}
  ${compared.length === 0
    ? 'do nothing'
    : `do update set ${changes.join(', ')}
  where ${differs(({ name }) => `excluded.${name}`)}${newerBy === undefined ? '' : ` and not ${older(`excluded.${version}`, `t.${version}`)}`}`}
  returning ${parts.partitioned ? 'false' : 't.xmax = 0'} as inserted, ${parts.predicate === null ? 'true' : parts.predicate} as inside
)
select (select same from same$)::text as same,
  ${parts.partitioned ? `greatest(count(*) - (select count(*) from judged$ where changed${newerBy === undefined ? '' : ' and stale is not true'}), 0)` : 'count(*) filter (where inserted)'}::text as inserted,
  count(*)::text as written,
  ${newerBy === undefined ? '0' : `(select count(*) from judged$ where changed is not false and stale is not true${repeats ? ' and nth = 1' : ''})`}::text as sent,
  ${newerBy === undefined ? '0' : `(select count(*) from judged$ as e where ${stale})`}::text as stale,
  (count(*) filter (where inside is not true))::text as outside
from written$`
}

/**
 * $1 to $n the columns of the key, and of the version where there is one, as `text[]`
 * -> { replaced }: the positions, from 0, of rows that the database takes for equal to a later one, as JSON text.
 */
export function replacedStatement (identity: Array<{ cast: string, collation: string | null }>): string {
  const columns = (text: (position: number) => string): string => identity.map((_, position) => text(position)).join(', ')
  return `select coalesce(pg_catalog.json_agg(r.n - 1), '[]')::text as replaced
from (
  select s.n, pg_catalog.row_number() over (
    partition by ${identity.map(({ collation }, position) => collated(`s.v${position}`, collation)).join(', ')} order by s.n desc
  ) as nth
  from (
    select ${identity.map(({ cast }, position) => `${cast} as v${position}`).join(', ')}, u.n
    from unnest(${columns(position => `$${position + 1}::text[]`)}) with ordinality as u (${columns(position => `v${position}`)}, n)
    offset 0
  ) s
) r
where r.nth > 1`
}

/** Which indexes the server would find conflicts with, in a line of the plan. Nothing is inserted. */
export function arbitersStatement (table: string, key: string[], predicate: string): string {
  const columns = key.join(', ')
  return `explain (costs off) insert into ${table} (${columns}) values (${key.map(() => 'null').join(', ')}) on conflict (${columns}) where ${predicate} do nothing`
}

/**
 * $1 and on: the values of a row as text, one for each cast -> nothing of interest: it fails when one does not fit its column.
 *
 * @param casts - of `u.v0`, `u.v1` and on
 */
export function castStatement (casts: string[]): string {
  return `select ${casts.map(cast => `(${cast})::text is null`).join(', ')}
from (select ${casts.map((_, position) => `$${position + 1}::text as v${position}`).join(', ')}) as u`
}

/** What a transaction leaves to its commit is checked here and now. */
export const checkConstraints = 'set constraints all immediate'

export const savepoint = 'savepoint hourly_sync_upsert'
export const releaseSavepoint = 'release savepoint hourly_sync_upsert'
/** Also takes the savepoint away, so that a later one of the same name does not pile up on it. */
export const rollbackToSavepoint = 'rollback to savepoint hourly_sync_upsert; release savepoint hourly_sync_upsert'
