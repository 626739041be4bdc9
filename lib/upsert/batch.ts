import {
  FST_HOURLY_SYNC_UPSERT_INVALID_ROW, FST_HOURLY_SYNC_UPSERT_INVALID_VALUE, FST_HOURLY_SYNC_UPSERT_MIXED_ROWS,
  FST_HOURLY_SYNC_UPSERT_NULL_KEY, FST_HOURLY_SYNC_UPSERT_UNDEFINED_VALUE
} from './errors.js'
import { placed } from './place.js'
import { nameOf } from './values.js'
import type { Column } from './catalog.js'
import type { Plan } from './plan.js'

/** A batch also ends when its texts are this long together, so that rows with large documents stay bounded as well. */
const maxLength = 4 * 1024 * 1024

/** Rows on their way into one statement. */
export interface Batch {
  plan: Plan
  rows: object[]
  /** of the rows in the call, from 1 */
  numbers: number[]
  /** by column */
  texts: Array<Array<string | null>>
  /** whether a key may be in it twice */
  repeats: boolean
  full: boolean
  /** of the texts, in UTF-16 units */
  length: number
  keysSeen: Set<string>
}

export interface RowsShape {
  table: string
  /** whether a row may have only the columns to write */
  exact: boolean
  /** rows in a batch */
  size: number
}

export function createBatch (plan: Plan): Batch {
  return { plan, rows: [], numbers: [], texts: plan.columns.map(() => []), repeats: plan.alike, full: false, length: 0, keysSeen: new Set() }
}

/** An object to take rows from. @throws when it is none */
export function checkRow (row: unknown, number: number): asserts row is Record<string, unknown> {
  if (typeof row !== 'object' || row === null || Array.isArray(row)) throw placed(new FST_HOURLY_SYNC_UPSERT_INVALID_ROW(number, nameOf(row)), number)
}

/**
 * Adds a row, its values as text.
 *
 * @throws when it has other columns than the plan, an `undefined`, a null in its key, or a value its column cannot take
 */
export function addRow (batch: Batch, row: unknown, number: number, { table, exact, size }: RowsShape): void {
  const { plan: { columns, keys, alike, common }, texts, rows, keysSeen } = batch
  checkRow(row, number)
  if (exact && Object.keys(row).length !== columns.length) throw mixed(number, columns, row)
  for (const name of common) if (!Object.hasOwn(row, name)) throw mixed(number, columns, row)
  let length = 0
  for (let position = 0; position < columns.length; position++) {
    const column = columns[position] as Column
    const value = row[column.name]
    let text: string | null | undefined = null
    if (value === undefined) {
      throw column.name in row
        ? placed(new FST_HOURLY_SYNC_UPSERT_UNDEFINED_VALUE(number, column.name), number, column.name)
        : mixed(number, columns, row)
    } else if (value === null) {
      if (keys.includes(position)) throw placed(new FST_HOURLY_SYNC_UPSERT_NULL_KEY(number, column.name), number, column.name)
    } else {
      text = column.encoder.encode(value)
      if (text === undefined) {
        throw placed(
          new FST_HOURLY_SYNC_UPSERT_INVALID_VALUE(number, column.name, table, `${column.encoder.expected} for ${column.type}`, nameOf(value)),
          number, column.name)
      }
      length += text.length
    }
    (texts[position] as Array<string | null>).push(text)
  }
  if (!alike && !batch.repeats) {
    const key = keyAt(batch, rows.length)
    if (keysSeen.has(key)) batch.repeats = true
    keysSeen.add(key)
  }
  rows.push(row)
  batch.numbers.push(number)
  batch.length += length
  batch.full = rows.length >= size || batch.length >= maxLength
}

/** Whether a row still has the values that it was added with: a generator may fill one object again and again. */
export function isAsAdded ({ plan: { columns }, rows, texts }: Batch, at: number): boolean {
  const row = rows[at] as Record<string, unknown>
  return columns.every(({ name, encoder }, position) => {
    const value = row[name] ?? null
    return (value === null ? null : encoder.encode(value)) === texts[position]?.[at]
  })
}

/** The key of a row of the batch, as text; two that differ may still be equal to the database. */
export function keyAt ({ plan: { keys }, texts }: Batch, at: number): string {
  return keys.length === 1
    ? texts[keys[0] as number]?.[at] as string
    : JSON.stringify(keys.map(position => texts[position]?.[at]))
}

function mixed (number: number, columns: Column[], row: object): Error {
  return placed(new FST_HOURLY_SYNC_UPSERT_MIXED_ROWS(
    number, `the columns ${columns.map(({ name }) => name).join(', ')}`, Object.keys(row).join(', ') || 'none'), number)
}
