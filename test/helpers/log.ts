import type { FastifyBaseLogger } from 'fastify'

export interface Line { level: string, message: string, [field: string]: any }

/** A logger that keeps its lines; those of its children too, with their fields. */
export function createLog (lines: Line[] = [], bound: object = {}): { log: FastifyBaseLogger, lines: Line[] } {
  const at = (level: string) => (fields: unknown, message?: string): void => {
    lines.push(typeof fields === 'string' ? { ...bound, level, message: fields } : { ...bound, ...fields as object, level, message: message ?? '' })
  }
  const log = {
    level: 'trace',
    child: (fields: object) => createLog(lines, { ...bound, ...fields }).log,
    ...Object.fromEntries(['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'].map(level => [level, at(level)]))
  }
  return { log: log as unknown as FastifyBaseLogger, lines }
}
