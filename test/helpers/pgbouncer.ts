import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Cluster, freePort } from './postgres.js'

interface Scope { teardown: (fn: () => unknown) => void }

export interface Pooler {
  port: number
  url: (database?: string) => string
}

/** Why tests with PgBouncer cannot run here, or `false`. */
export const noPgBouncer = spawnSync('pgbouncer', ['--version']).status === 0 ? false : 'PgBouncer is not installed (Debian: apt-get install pgbouncer)'

/** A PgBouncer of this test, in front of every database of a cluster. */
export async function startPgBouncer (t: Scope, cluster: Cluster, mode: 'session' | 'transaction', size: number): Promise<Pooler> {
  const folder = mkdtempSync(join(tmpdir(), 'hourly-sync-bouncer-'))
  chmodSync(folder, 0o755) // as root it runs as another user
  const port = await freePort()
  const config = join(folder, 'pgbouncer.ini')
  writeFileSync(config, `[databases]
* = host=127.0.0.1 port=${cluster.port} user=postgres password=postgres

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = any
pool_mode = ${mode}
default_pool_size = ${size}
max_client_conn = 200
server_login_retry = 1
ignore_startup_parameters = extra_float_digits,options
logfile =
`)
  chmodSync(config, 0o644)
  const asRoot = process.getuid?.() === 0
  const child: ChildProcess = spawn('pgbouncer', [...(asRoot ? ['-u', 'postgres'] : []), config], { stdio: ['ignore', 'ignore', 'pipe'] })
  t.teardown(async () => {
    if (child.exitCode === null && child.signalCode === null) {
      const exit = once(child, 'exit')
      child.kill('SIGKILL')
      await exit
    }
    rmSync(folder, { recursive: true, force: true })
  })
  let said = ''
  await new Promise<void>((resolve, reject) => {
    child.stderr!.on('data', data => {
      said += data
      if (said.includes('process up')) resolve()
    })
    child.once('exit', () => reject(new Error(`pgbouncer ended: ${said}`)))
  })
  return { port, url: (database = 'postgres') => `postgres://postgres:postgres@127.0.0.1:${port}/${database}` }
}
