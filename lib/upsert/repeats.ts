import { setImmediate } from 'node:timers/promises'
import type { Column } from './catalog.js'
import type { Plan } from './plan.js'

/** Rows looked at in one turn of the event loop: a millisecond, or five while the code is not compiled yet. */
const rowsPerTurn = 1000

/**
 * The positions of rows whose key comes again later in an array, in the same version where versions count.
 *
 * Within a batch the statement sees to that. Across batches an earlier row would be written and then overwritten, at
 * every call anew; so where all rows are known, those that do not last are left out. Of a stream this cannot be known.
 */
export async function replacedRows (rows: readonly object[], { columns, keys, newerBy }: Plan): Promise<Set<number>> {
  const identity = [...keys, ...newerBy === undefined ? [] : [newerBy]].map(position => columns[position] as Column)
  const seen = new Set<string | null | undefined>()
  const replaced = new Set<number>()
  for (let at = rows.length - 1; at >= 0; at--) {
    const row = rows[at] as Record<string, unknown> | null | undefined
    const key = identity.length === 1 ? textOf(row, identity[0] as Column) : JSON.stringify(identity.map(column => textOf(row, column)))
    if (seen.has(key)) replaced.add(at)
    seen.add(key)
    if (at % rowsPerTurn === 0) await setImmediate()
  }
  return replaced
}

/** What cannot be taken as a text is refused later, with its row. */
function textOf (row: Record<string, unknown> | null | undefined, { name, encoder }: Column): string | null | undefined {
  const value = row?.[name]
  return value === null || value === undefined ? null : encoder.encode(value)
}
