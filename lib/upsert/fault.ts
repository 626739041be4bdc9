import {
  FST_HOURLY_SYNC_UPSERT_INVALID_VALUE, FST_HOURLY_SYNC_UPSERT_OUTSIDE_INDEX, FST_HOURLY_SYNC_UPSERT_REFUSED_ROW
} from './errors.js'
import { placed } from './place.js'
import { castStatement } from './sql.js'
import { nameOf } from './values.js'
import type { Batch } from './batch.js'
import type { Column } from './catalog.js'
import type { Statements, UpsertContext } from './context.js'

interface DatabaseError extends Error { code?: string, column?: string, constraint?: string }

/** Thrown to take back what a probe has written. */
const undo = new Error('undo')

/** Whether a row is to blame: data exceptions, constraints, and our own check of the partial index. */
export function isFault (error: unknown): error is DatabaseError {
  return error instanceof Error && 'code' in error && /^(?:22|23|FST_HOURLY_SYNC_UPSERT_OUTSIDE_INDEX$)/.test(String(error.code))
}

/**
 * The error of a batch with the number of the row and the column at fault.
 *
 * PostgreSQL names neither, so the batch is tried again in halves, each try taken back:
 * ten statements for 1,000 rows, and only after a failure.
 *
 * @param table - as the caller wrote it
 * @param send - the batch's statement with its first `count` rows
 * @returns `error` itself where no row can be found, for example when it has to do with another writer
 */
export async function explain (
  error: DatabaseError, batch: Batch, table: string, context: UpsertContext, send: (tx: Statements, count: number) => Promise<unknown>
): Promise<Error> {
  const attempt = async (fn: (tx: Statements) => Promise<unknown>): Promise<DatabaseError | undefined> =>
    await context.transaction(async tx => {
      await fn(tx)
      throw undo
    }).catch((error: unknown) => {
      if (error === undo) return undefined
      if (isFault(error)) return error
      throw error
    })

  let fault: DatabaseError | undefined
  let passes = 0
  let fails = batch.rows.length
  while (fails - passes > 1) {
    const middle = (passes + fails) >> 1
    const found = await attempt(tx => send(tx, middle))
    if (found === undefined) {
      passes = middle
    } else {
      fails = middle
      fault = found
    }
  }
  fault ??= await attempt(tx => send(tx, fails))
  if (fault === undefined) return error

  const at = fails - 1
  const number = batch.numbers[at] as number
  const cause = fault
  const columnAtFault = async (): Promise<Column | undefined> => {
    for (const [position, column] of batch.plan.columns.entries()) {
      const text = batch.texts[position]?.[at]
      if (await attempt(tx => tx.query(castStatement(column.cast(`u.v${position}`), position), [text])) !== undefined) return column
    }
    return batch.plan.columns.find(({ name }) => name === cause.column)
  }
  const { index } = batch.plan
  if (cause.code === 'FST_HOURLY_SYNC_UPSERT_OUTSIDE_INDEX') {
    return placed(new FST_HOURLY_SYNC_UPSERT_OUTSIDE_INDEX(String(number), table, index.name, String(index.predicate)), number)
  }
  const column = await columnAtFault()
  if (column !== undefined) {
    const value = (batch.rows[at] as Record<string, unknown>)[column.name]
    return placed(
      new FST_HOURLY_SYNC_UPSERT_INVALID_VALUE(number, column.name, table, `a value of type ${column.type}`, nameOf(value), { cause }),
      number, column.name)
  }
  const demand = cause.constraint !== undefined ? `constraint '${cause.constraint}'` : cause.column !== undefined ? `not null in column '${cause.column}'` : 'the table'
  return placed(new FST_HOURLY_SYNC_UPSERT_REFUSED_ROW(number, table, demand, String(cause.code), { cause }), number, cause.column)
}
