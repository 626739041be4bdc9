import type { Started } from './begin.js'
import { argument, date, invalid } from './checks.js'
import type { Context } from './context.js'
import { FST_HOURLY_SYNC_LOCK_LOST } from './errors.js'
import type { Lent } from './lend.js'
import { lockHalves } from './lock-key.js'
import { storable } from './result.js'
import type { Session } from './session.js'
import type { JsonInput } from './types.js'

interface Parts {
  context: Context
  session: Session
  lent: Lent
  started: Started
}

/**
 * Commits how far a run has got, if its session still holds the lock.
 *
 * @throws FST_HOURLY_SYNC_INVALID_OPTION, FST_HOURLY_SYNC_INVALID_RESULT, FST_HOURLY_SYNC_OPEN_TRANSACTION, FST_HOURLY_SYNC_LOCK_LOST
 */
export function checkpoint ({ context, session, lent, started }: Parts, reached: { until?: Date, cursor?: JsonInput }): Promise<void> {
  const { settings, statements, key } = context
  const { begun, backfill } = started
  const { classid, objid } = lockHalves(key)
  return lent.apart('checkpoint', async send => {
    const { until, cursor } = argument('checkpoint()', reached, ['until', 'cursor'])
    const at = until === undefined ? null : date('until', until)
    if (at !== null && (at > begun.until || at < (begun.since ?? at))) throw invalid('until', 'a Date in the window of the run', until)
    storable('cursor', cursor)
    const rows = await send(statements.checkpoint, [
      settings.name, '', classid, objid, at, cursor === undefined ? null : JSON.stringify(cursor), backfill !== null
    ])
    if (rows.length > 0) return
    const lost = new FST_HOURLY_SYNC_LOCK_LOST('the server says that this session does not hold it')
    session.lose(lost)
    throw lost
  })
}
