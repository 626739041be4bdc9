import { existsSync, realpathSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import type { FastifyInstance } from 'fastify'

/** Was this module started, and not imported? */
export function isMain (url: string): boolean {
  const [, script = ''] = process.argv
  return existsSync(script) && realpathSync(script) === fileURLToPath(url)
}

/**
 * Listens on the loopback interface until told to stop, then closes in order and lets the process end by itself.
 * Whoever sends the signal should wait longer than the plugin's `closeTimeout` before it kills.
 */
export async function serve (app: FastifyInstance, port: number): Promise<void> {
  const stop = async (): Promise<void> => await app.close() // twice is once; one that fails ends the process, too
  process.on('SIGTERM', stop)
  process.on('SIGINT', stop)
  process.once('disconnect', stop) // a parent that forked us and is gone cannot send a signal any more
  process.channel?.unref() // and one that is still there must not keep us
  await app.listen({ port, host: '127.0.0.1' })
}
