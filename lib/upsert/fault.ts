import {
  FST_HOURLY_SYNC_UPSERT_INVALID_VALUE, FST_HOURLY_SYNC_UPSERT_OUTSIDE_INDEX, FST_HOURLY_SYNC_UPSERT_REFUSED_ROW
} from './errors.js'
import { placed } from './place.js'
import { castStatement, checkConstraints } from './sql.js'
import { nameOf } from './values.js'
import type { Batch } from './batch.js'
import type { Statements, UpsertContext } from './context.js'

interface DatabaseError extends Error { code?: string, severity?: string, column?: string, constraint?: string }

const outside = 'FST_HOURLY_SYNC_UPSERT_OUTSIDE_INDEX'
/** not_null_violation, cardinality_violation */
const missing = '23502'
const twice = '21000'

/** Thrown to take back what a probe has written. */
const undo = new Error('undo')

/**
 * SQLSTATEs that are no row's doing: the connection, the state of the transaction, another writer, what the server has run out of, its operator,
 * and a statement that does not fit the schema. Of the last class a policy for rows has the code of a missing right, and so have both.
 *
 * @see https://www.postgresql.org/docs/current/errcodes-appendix.html
 */
const elsewhere = /^(?:08|25|26|3[DF]|40|42(?!501)|53|55P03|57|58)/

/** Whether a row may be to blame: anything the server says but that, for a trigger may raise what it likes, and our own check of the partial index. */
export function isFault (error: unknown): error is DatabaseError {
  const { code, severity } = error as DatabaseError
  return code === outside || (severity !== undefined && !elsewhere.test(String(code)))
}

/**
 * The error of a batch with the number of the row and the column at fault.
 *
 * PostgreSQL names neither, so the batch is tried again in halves, each try taken back:
 * a dozen statements for 1,000 rows, and only after a failure.
 *
 * @param table - as the caller wrote it
 * @param send - the batch's statement with its first `count` rows
 * @returns `error` itself where no row can be found: it has to do with another writer, or comes without any row as well
 */
export async function explain (
  error: DatabaseError, batch: Batch, table: string, context: UpsertContext, send: (tx: Statements, count: number) => Promise<unknown>
): Promise<Error> {
  const attempt = async (fn: (tx: Statements) => Promise<unknown>): Promise<DatabaseError | undefined> => {
    if (context.signal?.aborted === true) throw error
    return await context.transaction(async tx => {
      await fn(tx)
      throw undo
    }).catch((error: unknown) => {
      if (error === undo) return undefined
      if (isFault(error)) return error
      throw error
    })
  }
  let waits = false
  const rowsFail = async (count: number): Promise<DatabaseError | undefined> => await attempt(async tx => {
    await send(tx, count)
    if (waits) await tx.query(checkConstraints)
  })

  const { plan: { columns, index }, rows: { length }, texts, numbers } = batch
  let whole = await rowsFail(length)
  if (whole === undefined && context.nested !== true) {
    waits = true // what fails is what waits for the commit; in a transaction of the host's that is its own
    whole = await rowsFail(length)
  }
  if (whole === undefined || await rowsFail(0) !== undefined) return error

  const { count, why: cause } = await fewest(length, whole, rowsFail)
  const at = count - 1
  const number = numbers[at] as number
  if (cause.code === outside) return placed(new FST_HOURLY_SYNC_UPSERT_OUTSIDE_INDEX(String(number), table, index.name, String(index.predicate)), number)

  const casts = columns.map((column, position) => column.cast(`u.v${position}`))
  const values = texts.map(column => column[at] as string | null)
  const columnsFail = async (count: number): Promise<DatabaseError | undefined> =>
    await attempt(tx => tx.query(castStatement(casts.slice(0, count)), values.slice(0, count)))
  const misfit = await columnsFail(columns.length)
  const column = misfit !== undefined
    ? columns[(await fewest(columns.length, misfit, columnsFail)).count - 1]
    : columns.find(({ name }, position) => cause.code === missing && name === cause.column && values[position] === null)
  if (column !== undefined) {
    const value = (batch.rows[at] as Record<string, unknown>)[column.name]
    return placed(
      new FST_HOURLY_SYNC_UPSERT_INVALID_VALUE(number, column.name, table, `a value of type ${column.type}`, nameOf(value), { cause: withoutValue(cause) }),
      number, column.name)
  }
  return placed(new FST_HOURLY_SYNC_UPSERT_REFUSED_ROW(number, table, demandOf(cause), String(cause.code), { cause }), number, cause.column)
}

/** The smallest count that fails, where none passes and `all` fails, and why it does. */
async function fewest (
  all: number, error: DatabaseError, failure: (count: number) => Promise<DatabaseError | undefined>
): Promise<{ count: number, why: DatabaseError }> {
  let passes = 0
  let count = all
  let why = error
  while (count - passes > 1) {
    const middle = (passes + count) >> 1
    const found = await failure(middle)
    if (found === undefined) {
      passes = middle
    } else {
      count = middle
      why = found
    }
  }
  return { count, why }
}

function demandOf ({ code, constraint, column }: DatabaseError): string {
  if (constraint !== undefined) return `constraint '${constraint}'`
  if (code === missing && column !== undefined) return `not null in column '${column}'`
  return code === twice ? 'every unique index on its key beside the rows before it' : 'the table'
}

/** What the database says of a value quotes it; hosts log the causes of an error with it. */
function withoutValue ({ code, constraint }: DatabaseError): Error {
  return Object.assign(new Error(`SQLSTATE ${code}`), { code, ...(constraint !== undefined && { constraint }) })
}
