import { setImmediate } from 'node:timers/promises'
import { replacedStatement } from './sql.js'
import { textArrays } from './text-array.js'
import type { Column } from './catalog.js'
import type { UpsertContext } from './context.js'
import type { Plan } from './plan.js'

type Rows = readonly unknown[]

/** Rows looked at in one turn of the event loop: a millisecond, or five while the code is not compiled yet. */
const rowsPerTurn = 1000

/**
 * The positions of rows whose key comes again later in an array, in the same version where versions count.
 *
 * Within a batch the statement sees to that. Across batches an earlier row would be written and then overwritten, at
 * every call anew; so where all rows are known, those that do not last are left out. Of a stream this cannot be known.
 */
export async function replacedRows (rows: Rows, plan: Plan, context: UpsertContext): Promise<Set<number>> {
  const { columns, keys, newerBy, alike } = plan
  const key = keys.map(position => columns[position] as Column)
  const version = newerBy === undefined ? [] : [columns[newerBy] as Column]
  const asTexts = async (): Promise<Set<number>> => await repeated(rows, [...key, ...version])
  if (!alike && version.every(({ canonical }) => canonical)) return await asTexts()
  if (!alike && (await repeated(rows, key)).size === 0) return new Set()
  // which of them are equal the database alone can say; a value that it refuses is told of later, with its row
  return await equal(rows, [...key, ...version], plan, context).catch(asTexts)
}

async function repeated (rows: Rows, identity: Column[]): Promise<Set<number>> {
  const seen = new Set<string | null>()
  const replaced = new Set<number>()
  for (let at = rows.length - 1; at >= 0; at--) {
    const row = rows[at]
    const key = identity.length === 1 ? textOf(row, identity[0] as Column) : JSON.stringify(identity.map(column => textOf(row, column)))
    if (seen.has(key)) replaced.add(at)
    seen.add(key)
    if (at % rowsPerTurn === 0) await setImmediate()
  }
  return replaced
}

async function equal (rows: Rows, identity: Column[], { index }: Plan, context: UpsertContext): Promise<Set<number>> {
  const texts: Array<Array<string | null>> = identity.map(() => [])
  for (const [at, row] of rows.entries()) {
    for (const [nth, column] of identity.entries()) texts[nth]?.push(textOf(row, column))
    if (at % rowsPerTurn === 0) await setImmediate()
  }
  const statement = replacedStatement(identity.map(({ cast }, nth) => ({ cast: cast(`u.v${nth}`), collation: index.keys[nth]?.collation ?? null })))
  const { rows: [found] } = await context.transaction(async tx => await tx.query(statement, textArrays(texts)))
  return new Set(JSON.parse(found.replaced) as number[])
}

/** What cannot be taken as a text is refused later, with its row. */
function textOf (row: unknown, { name, encoder }: Column): string | null {
  const value = (row as Record<string, unknown> | null | undefined)?.[name] ?? null
  return value === null ? null : encoder.encode(value) ?? null
}
