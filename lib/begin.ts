import { randomUUID } from 'node:crypto'
import type { Context } from './context.js'
import { lockHalves } from './lock-key.js'
import { type Begun, worker } from './record.js'
import { lateAfter } from './schedule.js'
import type { Session } from './session.js'
import { type BeginRow, EARLIEST } from './sql.js'
import type { Hold } from './types.js'

/** Deaths in a row after which a sync waits for its next slot: it may be what kills the processes. */
const DEATHS = 3

/** A run whose start is noted, and what it needs to know. */
export interface Started {
  begun: Begun
  missed: number
  /** JSON. */
  cursor: string | null
  /** The last slot whose failure was handed to the host. */
  reported: string | null
  /** When the history was last pruned, epoch milliseconds. */
  prunedAt: string | null
  /** Where the last slice ends; for a backfill, the backfill. */
  wholeEnd: number
  /** The backfill that this run is a slice of. */
  backfill: Plan | null
}

/** A window of the past, and how far it is fetched. Epoch milliseconds. */
export interface Plan { since: number, until: number, position: number }

/** What a begin judged: a run that has started, or why none has. */
export interface Beginning {
  started: Started | null
  hold: Hold | null
  /** No retry before, epoch milliseconds. */
  notBefore: number | null
  /** A backfill that is not done, JSON. */
  backfill: string | null
}

/** Under the lock: judges the slot once more, buries a run that vanished, and notes the start of this one. */
export async function begin (context: Context, session: Session, { trigger, force, fresh }: { trigger: string, force: boolean, fresh: boolean }): Promise<Beginning> {
  const { settings, statements, key } = context
  const id = randomUUID()
  const { classid, objid } = lockHalves(key)
  const since = settings.initialSince
  const [row] = await session.own<BeginRow>(statements.begin, [
    ...context.judging(fresh), key.toString(), force, trigger, id, worker.host, worker.pid, settings.overlap,
    since !== null && 'at' in since ? since.at : null, since !== null && 'back' in since ? since.back : null,
    lateAfter(settings.every, settings.jitter), DEATHS, trigger === 'schedule',
    settings.maxWindow, classid, objid
  ])
  if (row!.vanished !== null) sayVanished(context, row!)
  return { started: row!.begun ? toStarted(id, row!) : null, hold: row!.hold as Hold | null, notBefore: row!.not_before === null ? null : Number(row!.not_before), backfill: row!.backfill }
}

/** The next slice of a run that has succeeded, or nothing when it was the last. */
export async function proceed (context: Context, session: Session, before: Started): Promise<Started | undefined> {
  const { begun, wholeEnd } = before
  if (begun.slice >= begun.slices) return undefined
  const { started, cursor } = await note(context, session, {
    ...before,
    begun: {
      ...begun,
      id: randomUUID(),
      slice: begun.slice + 1,
      since: Math.max(EARLIEST, begun.until - context.settings.overlap),
      until: Math.min(begun.until + context.settings.maxWindow!, wholeEnd)
    }
  })
  return { ...started, cursor } // as the slice before has left it
}

/** The next slice of a backfill. Its slices share no overlap: what they fetch has had its time to settle. */
export async function proceedBackfill (context: Context, session: Session, before: Started, plan: Plan, slice: number): Promise<Started> {
  const length = context.settings.maxWindow ?? Infinity
  const { started } = await note(context, session, {
    ...before,
    missed: 0,
    cursor: null,
    wholeEnd: plan.until,
    backfill: plan,
    begun: {
      ...before.begun,
      id: slice === 1 ? before.begun.id : randomUUID(),
      slot: null,
      trigger: 'backfill',
      attempt: 1,
      slice,
      slices: slice - 1 + Math.max(1, Math.ceil((plan.until - plan.position) / length)),
      since: plan.position,
      until: Math.min(plan.position + length, plan.until)
    }
  })
  return started
}

/** Notes the start of a further run, in the place of the one before. The cursor is the stored one, JSON. */
async function note ({ settings, statements }: Context, session: Session, started: Started): Promise<{ started: Started, cursor: string | null }> {
  const [row] = await session.own<{ now: string, cursor: string | null }>(statements.proceed, [
    settings.name, '', JSON.stringify({ ...started.begun, ...worker, at: undefined }), started.backfill === null ? null : JSON.stringify(started.backfill)
  ])
  const at = Number(row!.now)
  return { started: { ...started, prunedAt: row!.now, begun: { ...started.begun, at } }, cursor: row!.cursor }
}

function sayVanished ({ log }: Context, row: BeginRow): void {
  log.warn({ run: row.vanished, deaths: row.deaths }, 'the run before vanished with its process')
  if (row.hold === 'vanished') log.error({ deaths: row.deaths }, 'runs of this sync keep vanishing with their process: it waits for the next slot')
}

function toStarted (id: string, row: BeginRow): Started {
  return {
    begun: {
      id,
      slot: Number(row.slot),
      trigger: row.trigger as Begun['trigger'],
      slice: 1,
      slices: row.slices,
      attempt: row.attempt,
      since: row.window_start === null ? null : Number(row.window_start),
      until: Number(row.window_end),
      at: Number(row.now)
    },
    missed: Number(row.missed),
    cursor: row.cursor,
    reported: row.reported,
    prunedAt: row.pruned_at,
    wholeEnd: Number(row.whole_end),
    backfill: null
  }
}
