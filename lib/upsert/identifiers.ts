import { identifier } from '../sql.js'
import { FST_HOURLY_SYNC_UPSERT_INVALID_OPTION } from './errors.js'
import { nameOf } from './values.js'

/**
 * A table's name, escaped part by part.
 *
 * Names are exact: `Order` is the table `"Order"`, nothing is folded to lower case.
 * A dot separates the schema; a part that has a dot of its own is written in double quotes,
 * as in SQL: `public."my.table"`.
 *
 * @returns `"schema"."table"` or `"table"`
 */
export function escapeTable (table: string): string {
  const parts = typeof table === 'string' ? /^(?:("(?:[^"]|"")+"|[^".][^.]*)\.)?("(?:[^"]|"")+"|[^".][^.]*)$/s.exec(table) : null
  if (parts === null || table.includes('\0')) {
    throw new FST_HOURLY_SYNC_UPSERT_INVALID_OPTION('table', "a name such as 'orders', 'public.orders' or 'public.\"my.table\"'", nameOf(table))
  }
  return parts.slice(1).filter(part => part !== undefined)
    .map(part => part.startsWith('"') ? part : identifier(part)).join('.')
}
