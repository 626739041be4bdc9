import { createError } from '@fastify/error'

/** An option of upsert has a value it cannot use: option, what was expected, what came. */
export const FST_HOURLY_SYNC_UPSERT_INVALID_OPTION = createError<[string, string, string]>(
  'FST_HOURLY_SYNC_UPSERT_INVALID_OPTION', "upsert option '%s' should be %s, instead got %s", 500, TypeError)

/** `rows` is nothing that rows can be taken from. */
export const FST_HOURLY_SYNC_UPSERT_INVALID_ROWS = createError<[string]>(
  'FST_HOURLY_SYNC_UPSERT_INVALID_ROWS', 'rows should be an array or an (async) iterable of objects, instead got %s', 500, TypeError)

/** One of the rows is no object: row number, what came. */
export const FST_HOURLY_SYNC_UPSERT_INVALID_ROW = createError<[number, string]>(
  'FST_HOURLY_SYNC_UPSERT_INVALID_ROW', 'row %d should be an object, instead got %s', 500, TypeError)

/** The table is not there, is not on the search path, or is something else: name as given, what was found. */
export const FST_HOURLY_SYNC_UPSERT_UNKNOWN_TABLE = createError<[string, string]>(
  'FST_HOURLY_SYNC_UPSERT_UNKNOWN_TABLE', "'%s' should be the exact name of a table, instead found %s", 500, TypeError)

/** A column is not in the table: column, table, the columns there are. */
export const FST_HOURLY_SYNC_UPSERT_UNKNOWN_COLUMN = createError<[string, string, string]>(
  'FST_HOURLY_SYNC_UPSERT_UNKNOWN_COLUMN', "column '%s' should be one of the columns of '%s' (%s)", 500, TypeError)

/** A column whose values the database makes itself: column, table, `generated` or `generated always as identity`. */
export const FST_HOURLY_SYNC_UPSERT_GENERATED_COLUMN = createError<[string, string, string]>(
  'FST_HOURLY_SYNC_UPSERT_GENERATED_COLUMN', "column '%s' of '%s' should be left out of the rows, it is %s", 500, TypeError)

/** A column that `key` or `newerBy` needs is not among those to write: option, column, the columns to write. */
export const FST_HOURLY_SYNC_UPSERT_MISSING_COLUMN = createError<[string, string, string]>(
  'FST_HOURLY_SYNC_UPSERT_MISSING_COLUMN', "%s column '%s' should be one of the columns to write, instead got %s", 500, TypeError)

/** No unique index can find the rows by the key: table, what was expected, what there is. */
export const FST_HOURLY_SYNC_UPSERT_NO_INDEX = createError<[string, string, string]>(
  'FST_HOURLY_SYNC_UPSERT_NO_INDEX', "table '%s' should have %s, instead found %s", 500, TypeError)

/** A row has a NULL in its key, which never conflicts: row number, column. */
export const FST_HOURLY_SYNC_UPSERT_NULL_KEY = createError<[number, string]>(
  'FST_HOURLY_SYNC_UPSERT_NULL_KEY', "row %d, key column '%s' should have a value, instead got null", 500, TypeError)

/** A value is `undefined`: row number, column. */
export const FST_HOURLY_SYNC_UPSERT_UNDEFINED_VALUE = createError<[number, string]>(
  'FST_HOURLY_SYNC_UPSERT_UNDEFINED_VALUE', "row %d, column '%s' should have a value or null, instead got undefined", 500, TypeError)

/** A row has other columns than the first: row number, what was expected, what came. */
export const FST_HOURLY_SYNC_UPSERT_MIXED_ROWS = createError<[number, string, string]>(
  'FST_HOURLY_SYNC_UPSERT_MIXED_ROWS', 'row %d should have %s, instead got %s', 500, TypeError)

/** A value does not fit its column: row number, column, table, what was expected, the type of what came. */
export const FST_HOURLY_SYNC_UPSERT_INVALID_VALUE = createError<[number, string, string, string, string, { cause: unknown }?]>(
  'FST_HOURLY_SYNC_UPSERT_INVALID_VALUE', "row %d, column '%s' of '%s' should be %s, instead got %s", 500, TypeError)

/** The database refuses a row as a whole: row number, table, what it should satisfy, SQLSTATE. */
export const FST_HOURLY_SYNC_UPSERT_REFUSED_ROW = createError<[number, string, string, string, { cause: unknown }?]>(
  'FST_HOURLY_SYNC_UPSERT_REFUSED_ROW', "row %d of '%s' should satisfy %s, instead got SQLSTATE %s", 500, Error)

/** A row is outside of the partial unique index, so the same row again would be inserted again: row number, table, index, predicate. */
export const FST_HOURLY_SYNC_UPSERT_OUTSIDE_INDEX = createError<[string, string, string, string]>(
  'FST_HOURLY_SYNC_UPSERT_OUTSIDE_INDEX', "row %s of '%s' should be inside of index '%s' (where %s), instead got one outside", 500, TypeError)
