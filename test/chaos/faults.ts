import { setTimeout as delay } from 'node:timers/promises'
import type { Database } from './database.js'
import type { Fleet, Server } from './fleet.js'
import type { Proxy } from './proxy.js'
import type { Kind, Planned } from './schedule.js'
import type { Scope } from './scope.js'

/** A fault that was injected. Epoch milliseconds. */
export interface Fault {
  kind: Kind
  at: number
  /** When it was over. */
  until: number
  seat: number | null
  pid: number | null
  /** Whether its victim held the lock then. */
  holder: boolean
  what: string
}

export interface Faults {
  /** What was done, in order. */
  log: Fault[]
  /** What could not be done: the victim was away. */
  missed: Planned[]
  /** Does it, and resolves when it is over. Never rejects. */
  inject: (planned: Planned) => Promise<void>
}

interface Parts {
  database: Database
  fleet: Fleet
  /** By seat; `undefined` where a seat has none. */
  proxies: Array<Proxy | undefined>
  say: (line: string) => void
  /** Ends what lasts. */
  over: AbortSignal
  scope: Scope
}

const lockSession = `select pid from pg_locks where locktype = 'advisory' and objsubid = 1 and granted
  and database = (select oid from pg_database where datname = current_database())`

const client = (state: string): string => `select pid from pg_stat_activity where datname = current_database() and backend_type = 'client backend'
  and application_name like 'host-%' and state ${state} and pid not in (${lockSession}) order by random() limit 1`

const terminate = (which: string): string => `select pid, pg_terminate_backend(pid) as done from (${which}) as victims`
const cancel = (which: string): string => `select pid, pg_cancel_backend(pid) as done from (${which}) as victims`

/** Tries until the database is there. */
export async function insist (work: () => Promise<unknown>, signal?: AbortSignal): Promise<void> {
  while (signal?.aborted !== true) {
    const done = await work().then(() => true, () => false)
    if (done) return
    await delay(100)
  }
}

/** One stillness at a time, or the second would end with the first and be reckoned too long. */
const isStill = ({ still }: Server): boolean => still.some(({ to }) => to > Date.now())

export function createFaults ({ database, fleet, proxies, say, over, scope }: Parts): Faults {
  const log: Fault[] = []
  const missed: Planned[] = []
  const frozen = new Set<number>()
  let restart: Promise<void> | undefined
  scope.teardown(async () => await restart) // a server that is just starting cannot be stopped
  let bent = 0

  async function holderPid (): Promise<number | undefined> {
    const [row] = await database.ask<{ pid: string | null }>(`select started->>'pid' as pid from hourly_sync.sync where exists (${lockSession})`).catch(() => [])
    return row?.pid == null ? undefined : Number(row.pid)
  }

  const last = async (ms: number): Promise<void> => { await delay(ms, undefined, { signal: over }).catch(() => {}) }

  /** What is done to one server, and what undoes it. */
  const toServer: Partial<Record<Kind, (server: Server, planned: Planned) => Promise<boolean>>> = {
    async kill (server, { ms }) {
      fleet.signal(server, 'SIGKILL')
      await last(ms)
      if (fleet.at(server.seat) === undefined) await fleet.start(server.seat).listens
      return true
    },
    async stop (server, { ms }) {
      const from = Date.now()
      if (isStill(server) || !fleet.signal(server, 'SIGSTOP')) return false
      const still = { from, to: Infinity }
      server.still.push(still)
      await last(ms)
      still.to = Date.now()
      fleet.signal(server, 'SIGCONT')
      return true
    },
    async block (server, { ms }) {
      if (isStill(server)) return false
      const still = { from: Date.now(), to: Date.now() + ms }
      server.still.push(still)
      const unblocked = new Promise<void>(resolve => {
        server.child.on('message', ({ unblocked }: { unblocked?: number }) => {
          if (unblocked === undefined) return
          still.to = Math.max(still.to, unblocked)
          resolve()
        })
        server.child.once('exit', () => resolve())
      })
      if (!fleet.tell(server, { order: 'block', ms })) return false
      await unblocked
      return true
    },
    async deploy (server) {
      await fleet.start(server.seat).listens // the new one is up before the old one is told
      fleet.signal(server, 'SIGTERM')
      await Promise.race([server.exited, last(20_000)])
      return true
    },
    async 'process clock' (server, { shift }) { return fleet.tell(server, { order: 'clock', ms: shift }) },
    async cut ({ seat }, { ms }) {
      if (frozen.has(seat)) return false
      proxies[seat]!.cut(ms)
      await last(ms)
      return true
    },
    async freeze ({ seat }, { ms, late }) {
      if (frozen.has(seat)) return false
      frozen.add(seat)
      proxies[seat]!.freeze()
      await last(ms)
      frozen.delete(seat)
      proxies[seat]!.thaw(late)
      return true
    }
  }

  const hit = async (text: string): Promise<boolean> => (await database.ask(text)).length > 0

  async function restarted (signal: 'SIGINT' | 'SIGQUIT', ms: number): Promise<boolean> {
    if (restart !== undefined) return false
    restart = (async () => {
      await database.cluster.stop(signal)
      await last(ms)
      await database.cluster.start()
      restart = undefined
    })()
    await restart
    return true
  }

  const toDatabase: Partial<Record<Kind, (planned: Planned) => Promise<boolean>>> = {
    'lock session': async () => await hit(terminate(lockSession)),
    'idle client': async () => await hit(terminate(client("= 'idle'"))),
    'busy client': async () => await hit(terminate(client("<> 'idle'"))),
    cancel: async () => await hit(cancel(lockSession)),
    'restart fast': async ({ ms }) => await restarted('SIGINT', ms),
    'restart immediate': async ({ ms }) => await restarted('SIGQUIT', ms),
    async 'server clock' ({ shift, ms }) {
      if (bent !== 0) return false
      bent = shift
      await database.bend(shift)
      await last(ms)
      await insist(async () => await database.bend(0))
      bent = 0
      return true
    }
  }

  /** Whom it meets: who holds the lock or sits at the seat, for a network fault only where there is one of ours. */
  async function victim ({ kind, seat }: Planned): Promise<Server | undefined> {
    const holder = seat === null ? await holderPid() : undefined
    const server = holder === undefined ? fleet.at(seat ?? Math.floor(log.length % proxies.length)) : fleet.of(holder)
    if (server === undefined || (kind !== 'cut' && kind !== 'freeze') || proxies[server.seat] !== undefined) return server
    const wired = proxies.flatMap((proxy, place) => proxy === undefined ? [] : [place])
    return fleet.at(wired[log.length % wired.length]!)
  }

  return {
    log,
    missed,
    async inject (planned) {
      const { kind } = planned
      const fault: Fault = { kind, at: Date.now(), until: Infinity, seat: null, pid: null, holder: kind === 'lock session' || kind === 'cancel', what: '' }
      log.push(fault)
      try {
        const act = toServer[kind]
        let done: boolean
        if (act === undefined) {
          fault.what = kind === 'server clock' ? `${planned.shift} ms for ${planned.ms} ms` : `${planned.ms} ms`
          say(`${kind} ${fault.what}`)
          done = await toDatabase[kind]!(planned)
        } else {
          const server = await victim(planned)
          fault.at = Date.now()
          if (server !== undefined) {
            Object.assign(fault, { seat: server.seat, pid: server.pid, holder: await holderPid() === server.pid })
            fault.what = `${kind === 'process clock' ? planned.shift : planned.ms} ms${kind === 'freeze' ? planned.late ? ', delivered late' : ', then lost' : ''}`
            say(`${kind} seat ${server.seat} (pid ${server.pid}${fault.holder ? ', the holder' : ''}) ${fault.what}`)
          }
          done = server !== undefined && server.url !== undefined && await act(server, planned)
        }
        if (!done) throw new Error('nobody there')
      } catch (error) {
        log.splice(log.indexOf(fault), 1)
        missed.push(planned)
        say(`${kind} met nobody (${(error as Error).message})`)
      }
      fault.until = Date.now()
    }
  }
}
