import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, mkdtempSync, openSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { sync } from './limits.js'
import type { Scope } from './scope.js'

/** One server process. */
export interface Server {
  seat: number
  pid: number
  child: ChildProcess
  output: string
  /** `undefined` until it listens. */
  url: string | undefined
  listens: Promise<boolean>
  exited: Promise<void>
  exit: { code: number | null, signal: string | null, at: number } | null
  /** How it was told to end. */
  told: 'SIGKILL' | 'SIGTERM' | null
  /** When it could not do anything: stopped, or its event loop blocked. Epoch milliseconds. */
  still: Array<{ from: number, to: number }>
}

/** How the server of a seat reaches its database. */
export interface Way {
  what: string
  pool: string
  lock?: string
  clockShift?: number
}

export interface Fleet {
  folder: string
  ways: Way[]
  all: Server[]
  /** Whoever serves at a seat now: the newest that has not ended. */
  at: (seat: number) => Server | undefined
  of: (pid: number) => Server | undefined
  start: (seat: number) => Server
  /** @returns whether it was alive to be told */
  tell: (server: Server, order: object) => boolean
  signal: (server: Server, signal: NodeJS.Signals) => boolean
  /** From now on every sync is quick, those of servers that start later as well. */
  calm: () => void
  forget: () => void
}

export function openFleet (scope: Scope, ways: Way[], common: { orders: string, key: string, seed: number }): Fleet {
  const folder = mkdtempSync(join(tmpdir(), 'hourly-sync-chaos-'))
  const all: Server[] = []
  let calm = false
  scope.teardown(async () => {
    const alive = all.filter(({ exit }) => exit === null)
    for (const { child } of alive) child.kill('SIGKILL')
    await Promise.all(alive.map(({ exited }) => exited))
  })

  function start (seat: number): Server {
    const way = ways[seat]!
    const output = join(folder, `server-${all.length + 1}-seat-${seat}.log`)
    const file = openSync(output, 'a')
    const child = fork(new URL('server.js', import.meta.url), {
      execArgv: [],
      detached: true, // what interrupts the harness is not for them
      stdio: ['ignore', file, file, 'ipc'],
      env: {
        ...process.env,
        CHAOS_SERVER: JSON.stringify({ ...common, ...way, clockShift: way.clockShift ?? 0, sync, tables: 'public', calm })
      }
    })
    closeSync(file)
    const server: Server = {
      seat, pid: child.pid!, child, output, url: undefined, listens: Promise.resolve(false), exited: Promise.resolve(), exit: null, told: null, still: []
    }
    server.exited = once(child, 'exit').then(([code, signal]) => { server.exit = { code, signal, at: Date.now() } })
    server.listens = new Promise(resolve => {
      child.on('message', ({ port }: { port?: number }) => {
        if (port === undefined) return
        server.url = `http://127.0.0.1:${port}`
        resolve(true)
      })
      child.once('exit', () => resolve(false))
    })
    child.on('error', () => {}) // a message to a process that has just ended
    all.push(server)
    return server
  }

  return {
    folder,
    ways,
    all,
    at: seat => all.findLast(server => server.seat === seat && server.exit === null && server.told === null),
    of: pid => all.find(server => server.pid === pid && server.exit === null),
    start,
    tell (server, order) {
      if (!server.child.connected) return false
      server.child.send(order, () => {})
      return true
    },
    signal (server, signal) {
      if (server.exit !== null) return false
      if (signal === 'SIGKILL' || signal === 'SIGTERM') server.told = signal
      return server.child.kill(signal)
    },
    calm () {
      calm = true
      for (const server of all) if (server.exit === null) this.tell(server, { order: 'calm' })
    },
    forget: () => rmSync(folder, { recursive: true, force: true })
  }
}
