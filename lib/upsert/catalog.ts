import { FST_HOURLY_SYNC_UPSERT_UNKNOWN_TABLE } from './errors.js'
import { readCatalog } from './sql-catalog.js'
import { arrayOf, encoderOf, isCanonical, type Encoder } from './values.js'
import type { Statements } from './context.js'

interface CatalogType {
  name: string
  schema: string
  kind: string
  category: string
  typmod: number
  base: string
  element: string
  delimiter: string
  ordered: boolean
  fitsTime: boolean
}

interface CatalogColumn {
  name: string
  type: string
  oid: string
  typmod: number
  generated: string
  identity: string
}

export interface UniqueIndex {
  name: string
  /** valid, immediate, btree: `on conflict` can use it */
  usable: boolean
  predicate: string | null
  /** `column` is null for an expression */
  keys: Array<{ column: string | null, operator: string, collation: string | null, deterministic: boolean }>
}

export interface Column {
  name: string
  /** as SQL writes it, with its modifier: `numeric(10,2)` */
  type: string
  encoder: Encoder
  /** whether equal values always have equal texts, but for a collation of the index */
  canonical: boolean
  /** whether one value can be greater than another */
  ordered: boolean
  /** whether it takes now() */
  fitsTime: boolean
  /** why the database alone writes it, or null */
  generated: string | null
  /** the SQL that turns the text `value` into the column's type, refusing what an assignment refuses */
  cast: (value: string) => string
}

export interface Catalog {
  oid: string
  /** another one once its columns are others */
  shape: string
  /** escaped */
  table: string
  partitioned: boolean
  columns: Map<string, Column>
  indexes: UniqueIndex[]
}

/**
 * What the database says about a table, in one statement.
 *
 * @param table - escaped
 * @param given - as the caller wrote it, for messages
 */
export async function loadCatalog (statements: Statements, table: string, given: string): Promise<Catalog> {
  const { rows } = await statements.query(readCatalog, [table])
  if (rows.length === 0) throw new FST_HOURLY_SYNC_UPSERT_UNKNOWN_TABLE(given, 'nothing of that name on the search path')
  const { oid, shape, kind, columns, types, indexes } = JSON.parse(rows[0].catalog) as
    { oid: string, shape: string, kind: string, columns: CatalogColumn[], types: Record<string, CatalogType>, indexes: UniqueIndex[] }
  if (kind !== 'r' && kind !== 'p') throw new FST_HOURLY_SYNC_UPSERT_UNKNOWN_TABLE(given, `a relation of kind '${kind}'`)
  return {
    oid,
    shape,
    table,
    partitioned: kind === 'p',
    columns: new Map(columns.map(column => [column.name, describe(column, types)])),
    indexes
  }
}

function describe (column: CatalogColumn, types: Record<string, CatalogType>): Column {
  const { encoder, base, typmod, ordered } = resolve(column.oid, column.typmod, types)
  return {
    name: column.name,
    type: column.type,
    encoder,
    canonical: isCanonical(base.name, base.schema, base.category) && typmod === -1,
    ordered,
    fitsTime: base.fitsTime,
    generated: column.generated !== '' ? 'generated' : column.identity === 'a' ? 'generated always as identity' : null,
    cast: base.category === 'A' ? withNulls(castOf(column, types)) : castOf(column, types)
  }
}

/** Through domains to the type below; an array has the encoder and the order of its elements. */
function resolve (oid: string, typmod: number, types: Record<string, CatalogType>): { encoder: Encoder, base: CatalogType, typmod: number, ordered: boolean } {
  const type = types[oid] as CatalogType
  if (type.kind === 'd') return resolve(type.base, type.typmod, types)
  if (type.category !== 'A') return { encoder: encoderOf(type.name, type.schema, type.category), base: type, typmod, ordered: type.ordered }
  const { encoder, ordered } = resolve(type.element, -1, types)
  return { encoder: arrayOf(encoder, (types[type.element] as CatalogType).delimiter), base: type, typmod, ordered }
}

/** Types for which an explicit cast does what an assignment does: it rounds, and refuses what is too large. */
const rounding = new Set(['numeric', 'timestamp', 'timestamptz', 'time', 'timetz', 'interval'])

/**
 * An explicit cast to `varchar(3)` cuts without a word, where an assignment refuses. So a length is applied by the
 * coercion function itself, told that the cast is implicit, and where none is at hand (arrays, domains, bit) through
 * `json_to_record`, which reads text as the type's input function does, the modifier included.
 */
function castOf ({ oid, type, typmod }: CatalogColumn, types: Record<string, CatalogType>): (value: string) => string {
  const { name, schema, kind } = types[oid] as CatalogType
  const limited = typmod !== -1 || (kind === 'd' && resolve(oid, typmod, types).typmod !== -1)
  if (!limited || (schema === 'pg_catalog' && rounding.has(name))) return value => `${value}::${type}`
  if (schema === 'pg_catalog' && (name === 'varchar' || name === 'bpchar')) {
    return value => `pg_catalog.${name}(${value}::pg_catalog.${name}, ${typmod}, false)`
  }
  return value => `(select v from pg_catalog.json_to_record(pg_catalog.json_build_object('v', ${value})) as r (v ${type}))`
}

/**
 * A session may have `array_nulls` off, which reads NULL in the text of an array as a word. It is then on for as long as the cast takes: set, cast
 * and set back in this order, since `offset 0` keeps the levels apart.
 */
function withNulls (cast: Column['cast']): Column['cast'] {
  const set = (state: string): string => `pg_catalog.set_config('array_nulls', '${state}', true) is not null`
  return value => `case when pg_catalog.current_setting('array_nulls') = 'on' then ${cast(value)} else (
    select b.v from (select ${cast('a.v')} as v from (select ${value} as v where ${set('on')} offset 0) as a offset 0) as b where ${set('off')}
  ) end`
}
