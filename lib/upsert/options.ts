import { FST_HOURLY_SYNC_UPSERT_INVALID_OPTION } from './errors.js'
import { nameOf } from './values.js'

export interface UpsertOptions {
  /** The conflict columns: those of a unique index without a predicate, or of `index`. */
  key: string[]
  /** The name of the unique index, needed where it is a partial one. */
  index?: string
  /** The columns to write, also those that a row inherits from its class; by default those of the first row, which all rows then must have. */
  columns?: string[]
  /** Columns set to `now()` in a row that is inserted or really changes. */
  touch?: string[]
  /** A column that tells versions apart: a row with an older one than the stored is not written. NULL is the oldest. */
  newerBy?: string
  /** Rows in one transaction, 1 to 10,000. */
  batch?: number
}

/** Throughput stops growing here, the event loop's longest delay and the memory do not: see `benchmark/upsert`. */
export const defaultBatch = 1000
const maxBatch = 10_000

const isName = (value: unknown): value is string => typeof value === 'string' && value !== ''
const isNames = (value: unknown): value is string[] => Array.isArray(value) && value.every(isName) && new Set(value).size === value.length

/** @throws FST_HOURLY_SYNC_UPSERT_INVALID_OPTION */
export function checkOptions (options: UpsertOptions): void {
  const given = options as unknown as Record<string, unknown> | null | undefined
  if (typeof given !== 'object' || given === null) throw new FST_HOURLY_SYNC_UPSERT_INVALID_OPTION('options', 'an object with a key', nameOf(given))
  const expect = (option: string, holds: boolean, expected: string): void => {
    if (!holds) throw new FST_HOURLY_SYNC_UPSERT_INVALID_OPTION(option, expected, nameOf(given[option]))
  }
  const { key, index, columns, touch, newerBy, batch } = given
  expect('key', isNames(key) && key.length > 0, 'an array of one or more different column names')
  expect('index', index === undefined || isName(index), 'the name of an index')
  expect('columns', columns === undefined || (isNames(columns) && columns.length > 0), 'an array of one or more different column names')
  expect('touch', touch === undefined || isNames(touch), 'an array of different column names')
  expect('newerBy', newerBy === undefined || isName(newerBy), 'a column name')
  expect('batch', batch === undefined || (Number.isInteger(batch) && batch as number >= 1 && batch as number <= maxBatch), `an integer from 1 to ${maxBatch}`)
  const known = ['key', 'index', 'columns', 'touch', 'newerBy', 'batch']
  for (const option of Object.keys(given)) expect(option, known.includes(option), `one of ${known.join(', ')}`)
}
