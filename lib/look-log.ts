import type { FastifyBaseLogger } from 'fastify'
import type { Attempt } from './attempt.js'
import { logged } from './failure.js'
import type { Settings } from './options.js'
import { isWedged } from './schedule.js'

/**
 * Says what a look came to: once per cause, not per look, so that a database that is away for an hour fills no log.
 * Losing is not failing: it is said at `debug`, once per slot.
 */
export function createLookLog (settings: Settings, log: FastifyBaseLogger): (attempt: Attempt) => void {
  let trouble: string | undefined
  let said: string | undefined
  let saidAhead: number | undefined

  return attempt => {
    if (!attempt.started && attempt.refusal !== null) {
      const { outcome, reason, error } = attempt.refusal
      const { code = reason } = error as { code?: string } // a reason may hold numbers that change
      if (trouble === code) return
      trouble = code
      log[outcome === 'refused' ? 'error' : 'warn']({ err: logged(error, settings.redact), outcome }, outcome === 'refused' ? 'sync refused' : 'database unavailable')
      return
    }
    if (trouble !== undefined && (attempt.started || attempt.look !== null)) {
      log.info('sync can work again')
      trouble = undefined
    }
    if (attempt.look?.ahead != null && saidAhead !== attempt.look.ahead) {
      saidAhead = attempt.look.ahead
      log.error({ lastSlot: new Date(attempt.look.ahead).toISOString(), slot: new Date(attempt.look.slot).toISOString() },
        'the last slot lies in the future: the clock of the database was set back, that slot is ignored')
    }
    if (attempt.started || attempt.look === null) return
    const { outcome, reason, look } = attempt
    const wedged = outcome === 'running' && isWedged(settings, look.mark, look.now)
    const cause = `${outcome} ${reason} ${look.slot} ${wedged}`
    if (said === cause) return
    said = cause
    const fields = { slot: new Date(look.slot).toISOString(), ...(look.mark !== null && { holder: `${look.mark.host}:${look.mark.pid}`, run: look.mark.id }) }
    if (wedged) {
      log.warn({ ...fields, since: new Date(look.mark!.at).toISOString() }, 'the holder of the lock is older than its timeout: its process may be stuck')
    } else if (outcome === 'running') log.debug(fields, 'sync running elsewhere')
    else log.debug({ ...fields, reason }, 'sync not due')
  }
}
