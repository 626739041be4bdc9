import type { FastifyBaseLogger } from 'fastify'
import { asError, messageOf } from './failure.js'

const levels = new Set<string | symbol>(['fatal', 'error', 'warn', 'info', 'debug', 'trace'])

/**
 * The same logger, and its children, that never throws: a serializer of the host's that expects another kind of error, or a full disk, must end
 * neither a run nor the loop nor the process. A line that could not be written is tried once more with its message alone.
 */
export function guarded (log: FastifyBaseLogger): FastifyBaseLogger {
  return new Proxy(log, {
    get (target, name) {
      const found: unknown = Reflect.get(target, name)
      if (levels.has(name)) return (...line: unknown[]) => { write(target, name as 'error', line) }
      return name === 'child' ? (...wanted: Parameters<typeof log.child>) => child(target, wanted) : found
    }
  })
}

function write (log: FastifyBaseLogger, level: 'error', line: unknown[]): void {
  try {
    (log[level] as (...line: unknown[]) => void)(...line)
  } catch (thrown) {
    try {
      log[level]({ unlogged: messageOf(asError(thrown)) }, line.find(part => typeof part === 'string') as string | undefined)
    } catch {} // then there is no log
  }
}

/** Without its own fields where it cannot have them. */
function child (log: FastifyBaseLogger, wanted: Parameters<FastifyBaseLogger['child']>): FastifyBaseLogger {
  try {
    return guarded(log.child(...wanted))
  } catch {
    return guarded(log)
  }
}
