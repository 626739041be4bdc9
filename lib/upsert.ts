import { setImmediate } from 'node:timers/promises'
import { addRow, checkRow, createBatch, type Batch } from './upsert/batch.js'
import { FST_HOURLY_SYNC_UPSERT_INVALID_ROWS } from './upsert/errors.js'
import { escapeTable } from './upsert/identifiers.js'
import { checkOptions, defaultBatch, type UpsertOptions } from './upsert/options.js'
import { replacedRows } from './upsert/repeats.js'
import { createMemory, createSaver, type Memory, type Target, type UpsertResult } from './upsert/save.js'
import { nameOf } from './upsert/values.js'
import type { UpsertContext } from './upsert/context.js'

export { nestedContext, type Statements, type UpsertContext } from './upsert/context.js'
export { jsonNull } from './upsert/values.js'
export { createMemory, type Memory } from './upsert/save.js'
export type { UpsertOptions } from './upsert/options.js'
export type { UpsertError } from './upsert/place.js'
export type { UpsertResult } from './upsert/save.js'

/** Rows turned into text in one turn of the event loop: a millisecond, or five while the code is not compiled yet. */
const rowsPerTurn = 250

export type UpsertRows = Iterable<object> | AsyncIterable<object>

/**
 * Saves rows so that the same page received any number of times leaves the table as if received once,
 * and rows that did not change are not written at all.
 *
 * Each batch is one statement in a transaction of its own: it succeeds or fails whole, and those before it stay.
 * While one is under way the next is collected, so a generator is asked for rows ahead of what is saved.
 * The counts add up to the number of rows.
 *
 * @param table - an exact name, `orders` or `public.orders`; nothing is folded to lower case
 * @param rows - what holds them may be endless: no more than two batches are in memory
 * @throws the FST_HOURLY_SYNC_UPSERT_* errors, with `row` (from 1) and `column` where they are known; the database's own
 */
export type Upsert = (table: string, rows: UpsertRows, options: UpsertOptions) => Promise<UpsertResult>

/**
 * The upsert of a session or of a transaction.
 *
 * @param memory - what is known of the tables; of the session, not of the call
 */
export function createUpsert (context: UpsertContext, memory: Memory = createMemory()): Upsert {
  const { planOf, save, renew } = createSaver(context, memory)

  return async (table, rows, options) => {
    checkOptions(options)
    escapeTable(table)
    const iterator = iteratorOf(rows)
    const { columns, batch: size = defaultBatch } = options
    const total: UpsertResult = { inserted: 0, updated: 0, unchanged: 0, stale: 0 }
    let underway: Promise<void> = Promise.resolve()
    let target: Target | undefined
    let batch: Batch | undefined
    let replaced: Set<number> | undefined
    let next = 1
    const block = { bytes: memory.block.bytes }
    memory.block = {} // two calls at once have one each
    let open = false // whether the iterator has more to give

    const flush = async (full: Batch, target: Target): Promise<void> => {
      await underway
      underway = save(full, target).then(result => {
        for (const count of ['inserted', 'updated', 'unchanged', 'stale'] as const) total[count] += result[count]
      })
      underway.catch(() => {}) // told by whoever awaits it next
      if (context.nested === true) await underway
    }

    try {
      for (;;) {
        open = false
        let step: unknown = iterator.next()
        // no await for what is there already: it would cost a turn for each row
        if (isObject(step) && 'then' in step) step = await step
        if (!isObject(step)) throw new FST_HOURLY_SYNC_UPSERT_INVALID_ROWS(`an iterator whose next() gives ${nameOf(step)}`)
        const { done, value } = step as unknown as IteratorResult<object>
        if (done === true) break
        open = true
        if (target === undefined) {
          checkRow(value, next)
          target = { table, options, names: columns ?? Object.keys(value), exact: columns === undefined, size, block }
          if (isPlainArray(rows) && rows.length > size) replaced = await replacedRows(rows, await planOf(target), context)
        }
        const number = next++
        batch ??= createBatch(await planOf(target))
        const passedOver = replaced?.has(number - 1) === true
        try {
          add(batch, value, number, target, passedOver)
        } catch (error) {
          batch = await renew(batch, target, error)
          add(batch, value, number, target, passedOver)
        }
        if (passedOver) total.unchanged++
        if (batch.full) {
          await flush(batch, target)
          batch = undefined
        } else if (number % rowsPerTurn === 0) {
          await setImmediate()
        }
      }
      if (batch !== undefined && batch.rows.length > 0) await flush(batch, target as Target)
      await underway
      memory.block = block
      return total
    } catch (error) {
      if (open) await close(iterator)
      await underway // what came first is told first
      throw error
    }
  }
}

/** A row that a later one replaces is judged as any other, and then left out. */
function add (batch: Batch, row: unknown, number: number, target: Target, passedOver: boolean): void {
  addRow(passedOver ? createBatch(batch.plan) : batch, row, number, target)
}

/** Whether the rows come in the order of their positions. */
function isPlainArray (rows: UpsertRows): rows is object[] {
  return Array.isArray(rows) && rows[Symbol.iterator] === Array.prototype[Symbol.iterator] && !(Symbol.asyncIterator in rows)
}

/** Lets a generator run its `finally`; what it throws there is not what went wrong. */
async function close (iterator: Iterator<object> | AsyncIterator<object>): Promise<void> {
  try {
    await iterator.return?.()
  } catch {}
}

function iteratorOf (rows: UpsertRows): Iterator<object> | AsyncIterator<object> {
  const source = rows as Partial<Iterable<object> & AsyncIterable<object>> | null | undefined
  const method: unknown = isObject(source) ? source[Symbol.asyncIterator] ?? source[Symbol.iterator] : undefined
  const iterator: unknown = typeof method === 'function' ? method.call(source) : undefined
  if (!isObject(iterator) || typeof iterator.next !== 'function') throw new FST_HOURLY_SYNC_UPSERT_INVALID_ROWS(nameOf(rows))
  return iterator as unknown as Iterator<object> | AsyncIterator<object>
}

function isObject (value: unknown): value is Record<PropertyKey, unknown> {
  return typeof value === 'object' && value !== null
}
