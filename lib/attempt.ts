import { again } from './again.js'
import { applicationName } from './announce.js'
import { begin, type Beginning, type Plan, proceedBackfill } from './begin.js'
import type { Lease } from './connections.js'
import type { Context } from './context.js'
import { FST_HOURLY_SYNC_CLOSING } from './errors.js'
import { lockHalves } from './lock-key.js'
import { type Look, toLook } from './look.js'
import { createQueue } from './queue.js'
import { parsed } from './record.js'
import { type Refusal, refusal } from './refusal.js'
import { serve, type Serving } from './serve.js'
import { createSession, type Session } from './session.js'
import { type ClaimRow, type HolderRow, ours } from './sql.js'
import type { NotStarted } from './types.js'

export interface Request {
  trigger: 'schedule' | 'manual' | 'backfill'
  /** Whether to run even when the slot is not due. */
  force: boolean
  /** Whether this process has just booted: it tries once more where the retries are spent. */
  fresh: boolean
  /** Who is served first when several syncs wait for the pool: the smallest. */
  order: number
  /** Whether somebody waits for the answer. */
  hurry: boolean
  /** The window of a backfill, epoch milliseconds. */
  backfill?: { since: number, until: number }
  /** Calls the attempt off as long as its run has not begun. */
  signal?: AbortSignal
}

interface Claim {
  seen: Look | null
  /** Null when the slot is not due, and the lock was not tried for. */
  locked: boolean | null
  backend: number
}

export type Attempt =
  | { started: false, outcome: NotStarted, reason: string | null, look: Look | null, refusal: Refusal | null }
  | { started: true, look: Look | null, run: Serving }

export interface Runner {
  attempt: (request: Request) => Promise<Attempt>
  /** The run of this process, until its end is recorded and the host's function has settled. */
  readonly current: Serving | undefined
  /** Starts nothing more, and tells what is under way to stop. Does not wait. */
  close: () => void
  /** Resolves when no attempt is under way, and the end of every run is recorded. */
  idle: () => Promise<void>
}

export function createRunner (context: Context): Runner {
  const { settings, key, statements, gate, source } = context
  const { classid, objid } = lockHalves(key)
  /** What the session of the lock is called, and how long it may be idle: by then it has missed three proofs. */
  const sessionSettings = [applicationName(settings.name), `${3 * settings.heartbeat}ms`]
  const claims = createQueue()
  const waiting = new Set<AbortController>()
  const underWay = new Set<Promise<unknown>>()
  const beginnings = new Set<Session>()
  let latest: Serving | undefined
  let closing = false

  /** This process takes no other run until the one before is recorded and its function has settled, however late. */
  const current = (): Serving | undefined => {
    if (latest?.over === true && latest.settled) latest = undefined // with it goes what its session knows of the tables, up to a megabyte
    return latest
  }

  /** What stands in the way without asking the database. */
  const barred = (): NotStarted | undefined => {
    if (settings.missing.length > 0) return 'not-configured'
    if (closing) return 'closing'
    if (current() !== undefined) return 'running'
  }

  async function attempt (request: Request): Promise<Attempt> {
    const stop = new AbortController()
    const callOff = (): void => { stop.abort() }
    request.signal?.addEventListener('abort', callOff)
    // each time on another connection: a claim that failed may have taken the lock, and its session keeps that until it ends
    const attempted = await again(async () => await tried(request, stop)).catch((error): Attempt => failed(error, request))
    waiting.delete(stop)
    request.signal?.removeEventListener('abort', callOff)
    return attempted
  }

  function failed (error: unknown, request: Request): Attempt {
    const bar = barred() ?? (isStopped(request) ? 'stopped' : undefined)
    if (bar !== undefined) return notStarted(bar) // the wait was called off, or would have been
    const refused = refusal(error, settings.schema, settings.redact)
    if (refused.outcome === 'refused') context.forget()
    return { ...notStarted(refused.outcome, refused.reason), refusal: refused }
  }

  async function tried (request: Request, stop: AbortController): Promise<Attempt> {
    const bar = barred()
    if (bar !== undefined) return notStarted(bar)
    await context.late.tell()
    waiting.add(stop)
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
  }

  /** One statement through the pool, where the lock session is a connection that only a due sync opens. */
  async function look (request: Request, signal: AbortSignal): Promise<Look> {
    const lease = await gate.checkout({ ...request, signal })
    return await asked(lease, async () => {
      await context.prepare(lease, false)
      const { rows: [row] } = await lease.client.query<ClaimRow>(ours(statements.look, context.judging(request.fresh)))
      const seen = toLook(row!, settings.every)
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
    if (isStopped(request)) { // while it looked: the first look takes seconds
      lease.destroy()
      return notStarted('stopped')
    }
    const session = createSession({
      lease,
      clock: context.clock,
      inside: context.inside,
      backend,
      proof: [statements.prove, [classid, objid]],
      unlock: [statements.unlock, [key.toString()]],
      holder: async () => (await gate.ask<HolderRow>(statements.holder, [classid, objid]))[0]?.backend
    })
    const { started, hold, notBefore } = await beginning(session, lease, request)
    if (started === null) {
      await session.release()
      return notStarted('not-due', hold, seen && { ...seen, hold, notBefore })
    }
    const serving = serve({ context, session, first: started })
    if (closing) serving.close(new FST_HOURLY_SYNC_CLOSING())
    keep(serving)
    return { started: true, look: seen, run: serving }
  }

  async function beginning (session: Session, lease: Lease, request: Request): Promise<Beginning> {
    const work = async (): Promise<Beginning> => {
      const beginning = await begin(context, session, request)
      const { started, backfill } = beginning
      if (started === null || request.backfill === undefined) return beginning
      // the same window goes on where it was left
      const left = parsed<Plan>(backfill)
      const { since, until } = request.backfill
      const plan = left?.since === since && left.until === until ? left : { since, until, position: since }
      return { ...beginning, started: await proceedBackfill(context, session, started, plan, 1) }
    }
    beginnings.add(session)
    return await lease.limited(work()).catch(error => {
      session.destroy() // a statement may still be under way: with its session it ends, and so does the lock
      throw error
    }).finally(() => { beginnings.delete(session) })
  }

  async function lookAndLock (lease: Lease, fresh: boolean): Promise<Claim> {
    const { rows: [row] } = await lease.client.query<ClaimRow>(ours(statements.claim, [...context.judging(fresh), key.toString(), classid, objid, ...sessionSettings]))
    const seen = toLook(row!, settings.every)
    if (seen.hold === 'first-run') await install(lease, seen.slot)
    return { seen, locked: row!.locked, backend: row!.backend }
  }

  async function tryLock (lease: Lease): Promise<Claim> {
    const { rows: [row] } = await lease.client.query<{ locked: boolean, backend: number }>(ours(statements.tryLock, [key.toString(), ...sessionSettings]))
    return { seen: null, ...row! }
  }

  function keep (run: Serving): void {
    latest = run
    for (const other of waiting) other.abort() // they would only find it running
    track(run.finished).then(current)
  }

  async function track<T> (work: Promise<T>): Promise<T> {
    underWay.add(work)
    return await work.finally(() => { underWay.delete(work) })
  }

  /** The first look of a sync that waits for its second slot: this one counts as served. */
  async function install (lease: Lease, slot: number): Promise<void> {
    await lease.client.query(ours(statements.install, [settings.name, '', key.toString(), settings.every, settings.offset, slot]))
  }

  /** Within what is left of the time for a claim. After anything but an answer the session ends: it may come by the lock later. */
  async function asked<T> (lease: Lease, work: () => Promise<T>): Promise<T> {
    const stop = new AbortController()
    waiting.add(stop)
    return await lease.limited(work(), stop.signal).catch(error => {
      lease.destroy()
      throw error
    }).finally(() => { waiting.delete(stop) })
  }

  return {
    get current () { return current() },
    attempt: async request => await track(attempt(request)),
    close () {
      if (closing) return
      closing = true
      context.late.stop()
      for (const stop of waiting) stop.abort()
      context.clock.after(settings.closeTimeout, () => { for (const session of beginnings) session.destroy() })
      current()?.close(new FST_HOURLY_SYNC_CLOSING())
    },
    async idle () {
      while (underWay.size > 0) await Promise.allSettled(underWay)
    }
  }
}

function isStopped ({ signal }: Request): boolean {
  return signal?.aborted === true
}

function notStarted (outcome: NotStarted, reason: string | null = null, look: Look | null = null): Attempt & { started: false } {
  return { started: false, outcome, reason, look, refusal: null }
}
