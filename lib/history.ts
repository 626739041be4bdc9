import type { Runner } from './attempt.js'
import type { Plan } from './begin.js'
import type { Context } from './context.js'
import { FST_HOURLY_SYNC_INVALID_OPTION } from './errors.js'
import { asError, redact } from './failure.js'
import { lockHalves } from './lock-key.js'
import { instant, type Mark, parsed, toHolder, toRecord } from './record.js'
import { isWedged, nextSlot } from './schedule.js'
import type { HolderRow, RunRow, StateRow } from './sql.js'
import type { ErrorRecord, Hold, Holder, RunRecord, Status } from './types.js'

/** Reading: who is syncing, what the past came to. Reads through the pool, one statement a question, and never holds a client. */
export interface History {
  holder: () => Promise<Holder | null>
  isSyncing: () => Promise<boolean>
  /** The backfill that is not done, if there is one. */
  backfill: () => Promise<Plan | null>
  /** What the database knows of a {@link Status}. */
  known: () => Promise<Known>
  runs: (options?: { limit?: number, before?: string }) => Promise<RunRecord[]>
}

export type Known = Pick<Status, 'syncing' | 'holder' | 'wedged' | 'lastSuccess' | 'lastRun' | 'lastError' | 'watermark' | 'backfill' | 'slot' | 'nextSlot' | 'lastSlot' | 'lastSlotAhead' | 'behindSlots' | 'notBefore' | 'pausedUntil' | 'due' | 'hold'>

/** How long an answer to "who holds the lock" serves. Milliseconds. */
const FRESH = 500

const uuid = /^[\da-f]{8}-(?:[\da-f]{4}-){3}[\da-f]{12}$/i

export function createHistory (context: Context, runner: Runner): History {
  const { settings, statements, gate, key, clock } = context
  const { classid, objid } = lockHalves(key)
  const identity = [settings.name, '']
  let question: { at: number, answer: Promise<HolderRow | undefined> } | undefined

  /** One question is in flight per process, and its answer serves for half a second. */
  async function shown (): Promise<HolderRow | undefined> {
    if (question === undefined || clock.elapsed() - question.at > FRESH) {
      const asked = { at: Infinity, answer: gate.ask<HolderRow>(statements.holder, [classid, objid]).then(rows => rows[0]) }
      question = asked
      asked.answer.then(() => { asked.at = clock.elapsed() }, () => { question = undefined })
    }
    return await question.answer
  }

  async function state (): Promise<StateRow> {
    const [row] = await gate.ask<StateRow>(statements.state, context.judging(false))
    return row!
  }

  return {
    async holder () {
      const holding = await shown()
      const row = await state()
      return holding === undefined ? null : toHolder(holding, parsed<Mark>(row.started))
    },

    async isSyncing () {
      const own = runner.current
      if (own !== undefined && !own.over) return true
      return await shown() !== undefined
    },

    backfill: async () => parsed<Plan>((await state()).backfill),

    async known () {
      // one after the other: a question holds one client of the pool, not four
      const holding = await shown()
      const row = await state()
      const [lastRun] = await gate.ask<RunRow>(statements.runs, [...identity, 1, null])
      const [lastSuccess] = await gate.ask<RunRow>(statements.lastSuccess, identity)
      const now = Number(row.now)
      const mark = parsed<Mark>(row.started)
      const served = row.hold === 'served'
      return {
        syncing: holding !== undefined,
        holder: holding === undefined ? null : toHolder(holding, mark),
        wedged: holding !== undefined && isWedged(settings, mark, now),
        lastSuccess: lastSuccess === undefined ? null : toRecord(lastSuccess),
        lastRun: lastRun === undefined ? null : toRecord(lastRun),
        lastError: toLastError(row.last_failure),
        watermark: instant(row.watermark),
        backfill: toBackfill(parsed<Plan>(row.backfill)),
        slot: instant(row.slot),
        nextSlot: new Date(nextSlot(now, settings.every, settings.offset)),
        lastSlot: instant(row.last_slot),
        lastSlotAhead: row.last_slot !== null && Number(row.last_slot) > Number(row.slot) + settings.every,
        behindSlots: served ? 0 : 1 + Number(row.succeeded ? row.missed : row.since_made),
        notBefore: instant(row.not_before),
        pausedUntil: instant(row.paused_until),
        due: row.hold === null,
        hold: row.hold as Hold | null
      }
    },

    async runs ({ limit = 50, before } = {}) {
      if (!Number.isInteger(limit) || limit < 1 || limit > 1_000) throw new FST_HOURLY_SYNC_INVALID_OPTION('limit', 'a whole number from 1 to 1000', String(limit))
      if (before !== undefined && !uuid.test(before)) throw new FST_HOURLY_SYNC_INVALID_OPTION('before', 'the id of a run', `'${before}'`)
      const rows = await gate.ask<RunRow>(statements.runs, [...identity, limit, before ?? null])
      return rows.map(toRecord)
    }
  }
}

/** What a status says of a database that could not be asked. */
export const unknown = (error: unknown): Known & { unavailable: string } => ({
  unavailable: redact(asError(error).message),
  syncing: false,
  holder: null,
  wedged: null,
  lastSuccess: null,
  lastRun: null,
  lastError: null,
  watermark: null,
  backfill: null,
  slot: null,
  nextSlot: null,
  lastSlot: null,
  lastSlotAhead: null,
  behindSlots: null,
  notBefore: null,
  pausedUntil: null,
  due: null,
  hold: null
})

function toBackfill (plan: Plan | null): Status['backfill'] {
  return plan && { since: new Date(plan.since), until: new Date(plan.until), position: new Date(plan.position) }
}

function toLastError (json: string | null): Status['lastError'] {
  if (json === null) return null
  const { at, state, reported, ...error } = JSON.parse(json) as ErrorRecord & { at: number, state: string, reported: number | null }
  return { ...error, at: new Date(at) }
}
