import { createHash } from 'node:crypto'
import { identifier } from '../sql.js'
import {
  FST_HOURLY_SYNC_UPSERT_GENERATED_COLUMN, FST_HOURLY_SYNC_UPSERT_INVALID_OPTION, FST_HOURLY_SYNC_UPSERT_MISSING_COLUMN,
  FST_HOURLY_SYNC_UPSERT_NO_INDEX, FST_HOURLY_SYNC_UPSERT_UNKNOWN_COLUMN
} from './errors.js'
import { arbitersStatement, upsertStatement } from './sql.js'
import type { Catalog, Column, UniqueIndex } from './catalog.js'
import type { UpsertOptions } from './options.js'

/** How rows of one shape go into one table. */
export interface Plan {
  catalog: Catalog
  columns: Column[]
  /** names that every object inherits something under: they count only where a row has them itself */
  common: string[]
  /** positions in `columns` */
  keys: number[]
  index: UniqueIndex
  /** position in `columns` */
  newerBy: number | undefined
  /** whether keys that are equal to the database may differ as texts */
  alike: boolean
  /** the statement, and the name it is prepared under */
  statement: (repeats: boolean, direct: boolean) => { text: string, name: string }
  /** whether a batch may do without the look: what it tells of stale rows, or of rows in a partition, is not asked for */
  canBeDirect: boolean
  /** asks whether conflicts would be found by the index alone; null where there is no other that could */
  arbiters: string | null
  /** of the last batches in a row of which every row was new or changed, the key that each began with */
  changes: Set<string>
}

/**
 * Checks the options and the columns against the catalog; nothing has been sent yet.
 *
 * @param given - the table as the caller wrote it
 * @throws when a column, or an index for the key, is not there
 */
export function planFor (catalog: Catalog, given: string, names: string[], options: UpsertOptions): Plan {
  const { key, touch = [], newerBy } = options
  const columnOf = (name: string): Column => {
    const column = catalog.columns.get(name)
    if (column === undefined) throw new FST_HOURLY_SYNC_UPSERT_UNKNOWN_COLUMN(name, given, [...catalog.columns.keys()].join(', '))
    if (column.generated !== null) throw new FST_HOURLY_SYNC_UPSERT_GENERATED_COLUMN(name, given, column.generated)
    return column
  }
  const columns = names.map(columnOf)
  const unfit = touch.map(columnOf).find(({ fitsTime }) => !fitsTime)
  if (unfit !== undefined) throw new FST_HOURLY_SYNC_UPSERT_INVALID_OPTION('touch', 'columns that a time fits', `'${unfit.name}' of type ${unfit.type}`)
  const both = touch.find(name => names.includes(name))
  if (both !== undefined) throw new FST_HOURLY_SYNC_UPSERT_INVALID_OPTION('touch', 'columns that the rows do not have', `'${both}'`)
  for (const [option, name] of [...key.map(name => ['key', name]), ...(newerBy === undefined ? [] : [['newerBy', newerBy]])] as Array<[string, string]>) {
    if (!names.includes(name)) throw new FST_HOURLY_SYNC_UPSERT_MISSING_COLUMN(option, name, names.join(', '))
  }
  const version = newerBy === undefined ? undefined : names.indexOf(newerBy)
  const versions = version === undefined ? undefined : columns[version]
  if (versions?.ordered === false) {
    throw new FST_HOURLY_SYNC_UPSERT_INVALID_OPTION('newerBy', 'a column whose type has an order', `'${versions.name}' of type ${versions.type}`)
  }

  const index = indexFor(catalog, given, options)
  const keys = index.keys.map(({ column }) => names.indexOf(column as string))
  const inexact = (position: number): boolean =>
    !(columns[position] as Column).canonical || index.keys[keys.indexOf(position)]?.deterministic === false
  const statements = new Map<string, { text: string, name: string }>()
  return {
    catalog,
    columns,
    common: names.filter(name => name in Object.prototype),
    keys,
    index,
    newerBy: version,
    alike: keys.some(inexact),
    canBeDirect: newerBy === undefined && !catalog.partitioned,
    arbiters: index.predicate !== null && catalog.indexes.some(other => other !== index && fits(other, key))
      ? arbitersStatement(catalog.table, key.map(identifier), index.predicate)
      : null,
    changes: new Set(),
    statement: (repeats, direct) => {
      const kind = `${repeats} ${direct}`
      let statement = statements.get(kind)
      if (statement === undefined) {
        const text = upsertStatement({
          table: catalog.table,
          partitioned: catalog.partitioned,
          columns: columns.map((column, position) => ({
            name: identifier(column.name),
            cast: column.cast(`u.v${position}`),
            // a key of a type with equal but different values (citext, numeric) is brought up to date like any column
            compared: !keys.includes(position) || inexact(position)
          })),
          keys: index.keys.map(({ operator, collation }, nth) => ({ position: keys[nth] as number, operator, collation })),
          predicate: index.predicate,
          touch: touch.map(identifier),
          newerBy: version,
          repeats,
          direct
        })
        // one name for one text: two upserts may share a session
        statement = { text, name: `hourly_sync_${createHash('sha256').update(text).digest('base64url').slice(0, 22)}` }
        statements.set(kind, statement)
      }
      return statement
    }
  }
}

function fits ({ usable, keys }: UniqueIndex, key: string[]): boolean {
  return usable && keys.length === key.length && keys.every(({ column }) => column !== null && key.includes(column))
}

function indexFor (catalog: Catalog, given: string, { key, index: name }: UpsertOptions): UniqueIndex {
  const index = catalog.indexes.find(index => fits(index, key) && (name === undefined ? index.predicate === null : index.name === name))
  if (index !== undefined) return index
  const columns = `(${key.join(', ')})`
  const expected = name === undefined
    ? `a unique index on ${columns} without a predicate (or name a partial one with the option 'index')`
    : `a unique index '${name}' on ${columns}`
  throw new FST_HOURLY_SYNC_UPSERT_NO_INDEX(given, expected, catalog.indexes.map(shown).join(', ') || 'no unique index at all')
}

/**
 * A conflict with a row outside of a partial index would overwrite that row: `on conflict` takes every index whose predicate follows from the one it is given.
 *
 * @param lines - of the plan that {@link Plan.arbiters} asked for
 * @throws when another index than the one that was named would be used as well
 */
export function checkArbiters ({ index }: Plan, given: string, lines: string[]): void {
  const used = /^ *Conflict Arbiter Indexes: (.*)$/m.exec(lines.join('\n'))?.[1]
  if (used === index.name) return
  throw new FST_HOURLY_SYNC_UPSERT_NO_INDEX(
    given, `a unique index '${index.name}' that alone finds a conflict`, `${String(used)}: those without a predicate, or with a wider one, on the same columns`)
}

function shown ({ name, usable, predicate, keys }: UniqueIndex): string {
  const where = predicate === null ? '' : ` where ${predicate}`
  return `'${name}' on (${keys.map(({ column }) => column ?? 'an expression').join(', ')})${where}${usable ? '' : ' (deferrable or invalid)'}`
}
