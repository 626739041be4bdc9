import type { FastifyReply, FastifyRequest, RouteGenericInterface } from 'fastify'
import { FST_HOURLY_SYNC_INVALID_OPTION, FST_HOURLY_SYNC_UNANSWERED } from '../errors.js'
import { asError, messageOf, redact } from '../failure.js'
import type { Settings } from '../options.js'

type Handler<G extends RouteGenericInterface> = (request: FastifyRequest<G>, reply: FastifyReply<G>) => Promise<unknown>

/**
 * Makes of whatever fails an error that may be shown, and leaves its form to the host's error handler. The driver's own error goes no further: not to
 * the client, and not, where it could hold a secret, to the request's log.
 */
export function answering (settings: Settings): <G extends RouteGenericInterface>(handler: Handler<G>) => (request: FastifyRequest<G>, reply: FastifyReply<G>) => Promise<any> {
  return handler => async (request, reply) => {
    try {
      return await handler(request, reply)
    } catch (thrown) {
      const error = asError(thrown) as Error & { code?: unknown, statusCode?: number }
      if (error instanceof FST_HOURLY_SYNC_INVALID_OPTION) throw Object.assign(error, { statusCode: 400 })
      if (typeof error.code === 'string' && error.code.startsWith('FST_HOURLY_SYNC_') && error.statusCode !== 500) throw error
      throw new FST_HOURLY_SYNC_UNANSWERED(redact(messageOf(error), settings.redact))
    }
  }
}
