import { randomUUID } from 'node:crypto'
import type { Lease } from './connections.js'
import type { Context } from './context.js'
import { FST_HOURLY_SYNC_CLOSING } from './errors.js'
import { lockHalves } from './lock-key.js'
import { createQueue } from './queue.js'
import { type Begun, type Mark, parsed, worker } from './record.js'
import { type Refusal, refusal } from './refusal.js'
import { conduct, type Conducted } from './run.js'
import { lateAfter, skipAfter } from './schedule.js'
import { createSession, type Session } from './session.js'
import { type BeginRow, type ClaimRow, ours } from './sql.js'
import type { Hold, NotStarted } from './types.js'

/** Deaths in a row after which a sync waits for its next slot: it may be what kills the processes. */
const DEATHS = 3

export interface Request {
  trigger: 'schedule' | 'manual'
  /** Whether to run even when the slot is not due. */
  force: boolean
  /** Whether this process has just booted: it tries once more where the retries are spent. */
  fresh: boolean
  /** Who is served first when several syncs wait for the pool: the smallest. */
  order: number
  /** Whether somebody waits for the answer. */
  hurry: boolean
  /** Calls the attempt off while it waits for a connection. */
  signal?: AbortSignal
}

/** What the server said at a look, epoch milliseconds on its clock. */
export interface Look {
  now: number
  slot: number
  notBefore: number | null
  hold: Hold | null
  /** The run that noted its start and not yet its end. */
  mark: Mark | null
  /** A last slot that lies further ahead than any can: the server's clock was set back. */
  ahead: number | null
}

interface Claim {
  seen: Look | null
  /** Null when the slot is not due, and the lock was not tried for. */
  locked: boolean | null
  backend: number
}

export type Attempt =
  | { started: false, outcome: NotStarted, reason: string | null, look: Look | null, refusal: Refusal | null }
  | { started: true, look: Look | null, run: Conducted }

export interface Runner {
  attempt: (request: Request) => Promise<Attempt>
  /** The run of this process, until its end is recorded and the host's function has settled. */
  readonly current: Conducted | undefined
  /** Starts nothing more, and tells what is under way to stop. Does not wait. */
  close: () => void
  /** Resolves when no attempt is under way, and the end of every run is recorded. */
  idle: () => Promise<void>
}

export function createRunner (context: Context): Runner {
  const { settings, key, statements, gate, source, log } = context
  const { classid, objid } = lockHalves(key)
  const claims = createQueue()
  const waiting = new Set<AbortController>()
  const underWay = new Set<Promise<unknown>>()
  let current: Conducted | undefined
  let closing = false

  /** Parameters `$1` to `$8`: what judges whether a slot is due. */
  const judging = (fresh: boolean): unknown[] => [
    settings.name, '', settings.every, settings.offset,
    settings.catchUp === 'skip' ? skipAfter(settings.every, settings.jitter) : null,
    settings.retry.limit, fresh, settings.firstRun === 'wait'
  ]

  /** What stands in the way without asking the database. */
  const barred = (): NotStarted | undefined => {
    if (settings.missing.length > 0) return 'not-configured'
    if (closing) return 'closing'
    if (current !== undefined) return 'running'
  }

  async function attempt (request: Request): Promise<Attempt> {
    const bar = barred()
    if (bar !== undefined) return notStarted(bar)
    const stop = new AbortController()
    const callOff = (): void => { stop.abort() }
    request.signal?.addEventListener('abort', callOff)
    waiting.add(stop)
    try {
      if (source !== gate && !request.force) {
        const seen = await look(request, stop.signal)
        if (seen.hold !== null) return notStarted('not-due', seen.hold, seen)
      }
      const lease = await source.checkout({ ...request, signal: stop.signal })
      waiting.delete(stop) // from here on it is told by `barred`
      return await claims.turn(async () => {
        const bar = barred()
        if (bar === undefined) return await claim(lease, request)
        lease.giveBack()
        return notStarted(bar)
      })
    } catch (error) {
      const bar = barred() ?? (request.signal?.aborted === true ? 'closing' : undefined)
      if (bar !== undefined) return notStarted(bar) // the wait was called off, or would have been
      const refused = refusal(error, settings.schema)
      if (refused.outcome === 'refused') context.forget()
      return { ...notStarted(refused.outcome, refused.reason), refusal: refused }
    } finally {
      waiting.delete(stop)
      request.signal?.removeEventListener('abort', callOff)
    }
  }

  /** One statement through the pool, where the lock session is a connection that only a due sync opens. */
  async function look (request: Request, signal: AbortSignal): Promise<Look> {
    const lease = await gate.checkout({ ...request, signal })
    return await asked(lease, async () => {
      await context.prepare(lease, false)
      const { rows: [row] } = await lease.client.query<ClaimRow>(ours(statements.look, judging(request.fresh)))
      const seen = toLook(row!)
      if (seen.hold === 'first-run') await install(lease, seen.slot)
      lease.giveBack()
      return seen
    })
  }

  async function claim (lease: Lease, request: Request): Promise<Attempt> {
    const { seen, locked, backend } = await asked(lease, async () => {
      await context.prepare(lease, true)
      return request.force ? await tryLock(lease) : await lookAndLock(lease, request.fresh)
    })
    if (locked !== true) {
      lease.giveBack()
      return locked === null ? notStarted('not-due', seen!.hold, seen) : notStarted('running', null, seen)
    }
    const session = createSession({
      lease,
      clock: context.clock,
      backend,
      proof: [statements.prove, [classid, objid]],
      unlock: [statements.unlock, [key.toString()]]
    })
    const id = randomUUID()
    const begun = await begin(session, lease, id, request)
    if (!begun.begun) {
      await session.release()
      return notStarted('not-due', begun.hold as Hold, seen)
    }
    const conducted = conduct({ context, session, begun: toBegun(id, begun), row: begun })
    if (closing) conducted.close(new FST_HOURLY_SYNC_CLOSING())
    hold(conducted)
    return { started: true, look: seen, run: conducted }
  }

  async function lookAndLock (lease: Lease, fresh: boolean): Promise<Claim> {
    const { rows: [row] } = await lease.client.query<ClaimRow>(ours(statements.claim, [...judging(fresh), key.toString()]))
    const seen = toLook(row!)
    if (seen.hold === 'first-run') await install(lease, seen.slot)
    return { seen, locked: row!.locked, backend: row!.backend }
  }

  async function tryLock (lease: Lease): Promise<Claim> {
    const { rows: [row] } = await lease.client.query<{ locked: boolean, backend: number }>(ours(statements.tryLock, [key.toString()]))
    return { seen: null, ...row! }
  }

  async function begin (session: Session, lease: Lease, id: string, { trigger, force, fresh }: Request): Promise<BeginRow> {
    const since = settings.initialSince
    const idle = `${3 * settings.heartbeat}ms`
    try {
      const [row] = await lease.limited(session.own<BeginRow>(statements.begin, [
        ...judging(fresh), key.toString(), force, trigger, id, worker.host, worker.pid, settings.overlap,
        since !== null && 'at' in since ? since.at : null, since !== null && 'back' in since ? since.back : null,
        lateAfter(settings.every, settings.jitter), DEATHS, trigger === 'schedule',
        applicationName(settings.name), idle
      ]))
      if (row!.vanished !== null) sayVanished(row!)
      return row!
    } catch (error) {
      session.destroy() // the statement may still be under way: with its session it ends, and so does the lock
      throw error
    }
  }

  function sayVanished (row: BeginRow): void {
    log.warn({ run: row.vanished, deaths: row.deaths }, 'the run before vanished with its process')
    if (row.hold === 'vanished') log.error({ deaths: row.deaths }, 'runs of this sync keep vanishing with their process: it waits for the next slot')
  }

  /** This process takes no other run until this one is recorded and its function has settled, however late. */
  function hold (run: Conducted): void {
    current = run
    for (const other of waiting) other.abort()
    Promise.all([run.finished, run.settled]).then(() => { current = undefined })
    track(run.finished)
  }

  async function track<T> (work: Promise<T>): Promise<T> {
    underWay.add(work)
    try {
      return await work
    } finally {
      underWay.delete(work)
    }
  }

  /** The first look of a sync that waits for its second slot: this one counts as served. */
  async function install (lease: Lease, slot: number): Promise<void> {
    await lease.client.query(ours(statements.install, [settings.name, '', key.toString(), settings.every, settings.offset, slot]))
  }

  /** Within what is left of the time for a claim. After anything but an answer the session ends: it may come by the lock later. */
  async function asked<T> (lease: Lease, work: () => Promise<T>): Promise<T> {
    const stop = new AbortController()
    waiting.add(stop)
    try {
      return await lease.limited(work(), stop.signal)
    } catch (error) {
      lease.destroy()
      throw error
    } finally {
      waiting.delete(stop)
    }
  }

  return {
    get current () { return current },
    attempt: async request => await track(attempt(request)),
    close () {
      if (closing) return
      closing = true
      for (const stop of waiting) stop.abort()
      current?.close(new FST_HOURLY_SYNC_CLOSING())
    },
    async idle () {
      while (underWay.size > 0) await Promise.allSettled(underWay)
    }
  }

  function toLook (row: ClaimRow): Look {
    const slot = Number(row.slot)
    const last = row.last_slot === null ? null : Number(row.last_slot)
    return {
      now: Number(row.now),
      slot,
      notBefore: row.not_before === null ? null : Number(row.not_before),
      hold: row.hold as Hold | null,
      mark: parsed<Mark>(row.started),
      ahead: last !== null && last > slot + settings.every ? last : null
    }
  }
}

function notStarted (outcome: NotStarted, reason: string | null = null, look: Look | null = null): Attempt & { started: false } {
  return { started: false, outcome, reason, look, refusal: null }
}

function toBegun (id: string, row: BeginRow): Begun {
  return {
    id,
    slot: Number(row.slot),
    trigger: row.trigger as Begun['trigger'],
    attempt: row.attempt,
    since: row.window_start === null ? null : Number(row.window_start),
    until: Number(row.window_end),
    at: Number(row.now)
  }
}

/** Who holds the lock, in the 63 bytes that `pg_stat_activity` shows; a long name is cut, host and pid are not. */
function applicationName (name: string): string {
  const who = `@${worker.host.slice(0, 20)}:${worker.pid}`
  return `hourly-sync:${name.slice(0, 51 - who.length)}${who}`
}
