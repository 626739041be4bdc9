import {
  FST_HOURLY_SYNC_OTHER_DATABASE, FST_HOURLY_SYNC_OUTDATED_PG, FST_HOURLY_SYNC_POOLED, FST_HOURLY_SYNC_READ_ONLY, FST_HOURLY_SYNC_RIGHTS,
  FST_HOURLY_SYNC_SCHEMA, FST_HOURLY_SYNC_SCHEMA_TAKEN
} from './errors.js'
import { asError, messageOf, redact } from './failure.js'
import { VERSION } from './migrations.js'

/** Why an attempt got nowhere with the database. */
export interface Refusal {
  /** `refused`: somebody has to do something. `unavailable`: it is expected to pass. */
  outcome: 'refused' | 'unavailable'
  /** Constant for one cause, so that a log can say it once. */
  reason: string
  error: Error
}

/**
 * SQLSTATEs that say the tables are not as this code needs them, for of its statements there is nothing else to be said: class 42 (no such table,
 * column or function, another type), and 3F000, no such schema.
 *
 * @see https://www.postgresql.org/docs/current/errcodes-appendix.html
 */
const unfit = /^(?:42|3F000$)/

const ours = [
  FST_HOURLY_SYNC_OTHER_DATABASE, FST_HOURLY_SYNC_OUTDATED_PG, FST_HOURLY_SYNC_POOLED, FST_HOURLY_SYNC_READ_ONLY, FST_HOURLY_SYNC_RIGHTS,
  FST_HOURLY_SYNC_SCHEMA, FST_HOURLY_SYNC_SCHEMA_TAKEN
]

/** Tells what an error of a look means. Everything that is not known as a refusal is expected to pass. */
export function refusal (thrown: unknown, schema: string, further: readonly RegExp[] = []): Refusal {
  const error = meaning(asError(thrown), schema)
  return {
    outcome: ours.some(kind => error instanceof kind) ? 'refused' : 'unavailable',
    reason: redact(messageOf(error), further),
    error
  }
}

function meaning (error: Error, schema: string): Error {
  const { code } = error as { code?: string }
  if (code === undefined) return error
  if (code === '42501') return new FST_HOURLY_SYNC_RIGHTS(schema, error.message, { cause: error })
  if (unfit.test(code)) return new FST_HOURLY_SYNC_SCHEMA(schema, `not what they should be (${error.message})`, VERSION, 'they are looked at again with the next look', { cause: error })
  // which of the two it is, is found by the next look
  if (code === '25006') return new FST_HOURLY_SYNC_READ_ONLY(`${error.message}, as on a replica or with default_transaction_read_only`, { cause: error })
  return error
}
