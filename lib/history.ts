import { announced } from './announce.js'
import type { Runner } from './attempt.js'
import type { Plan } from './begin.js'
import { argument, invalid, oneOf, UUID } from './checks.js'
import type { Context } from './context.js'
import { asError, messageOf, redact, shownError } from './failure.js'
import { lockHalves } from './lock-key.js'
import { instant, type Mark, markOf, parsed, states, toHolder, toRecord, triggers } from './record.js'
import { isWedged, nextSlot } from './schedule.js'
import { sharedAnswer } from './shared-answer.js'
import type { HealthRow, LookRow } from './sql/readings.js'
import type { HolderRow, RunRow, StateRow } from './sql.js'
import type { ErrorRecord, Hold, Holder, Progress, RunRecord, RunsOptions, Status } from './types.js'

/** Reading: who is syncing, what the past came to. Reads through the pool, one statement a question, and never holds a client. */
export interface History {
  isSyncing: () => Promise<boolean>
  /** The backfill that is not done, if there is one. */
  backfill: () => Promise<Plan | null>
  /** What the database knows of a {@link Status}. */
  known: () => Promise<Known>
  runs: (options?: RunsOptions) => Promise<RunRecord[]>
  /** A run of this sync. */
  run: (id: string) => Promise<RunRecord | null>
  /** Those of the ids that have ended, in that order. */
  ended: (ids: string[]) => Promise<RunRecord[]>
  /**
   * What listeners are told of, in one statement.
   *
   * @param limit - how long it may take, milliseconds
   */
  look: (limit?: number) => Promise<Seen>
  /** When a slot was last served, and the server's clock. Epoch milliseconds. */
  health: () => Promise<{ now: number, succeededAt: number | null }>
}

/** What a look for listeners saw. */
export interface Seen {
  holder: Holder | null
  progress: Progress | null
  /** `id state` of the newest runs, newest first. */
  newest: string[]
}

export type Known = Pick<Status, 'syncing' | 'holder' | 'progress' | 'wedged' | 'lastSuccess' | 'lastRun' | 'lastError' | 'watermark' | 'backfill' | 'slot' | 'nextSlot' | 'lastSlot' | 'lastSlotAhead' | 'behindSlots' | 'notBefore' | 'pausedUntil' | 'due' | 'hold'>

const uuid = new RegExp(UUID)
const isId = (value: unknown): boolean => typeof value === 'string' && uuid.test(value)

export function createHistory (context: Context, runner: Runner): History {
  const { settings, statements, readings, gate, key, clock } = context
  const { classid, objid } = lockHalves(key)
  const identity = [settings.name, '']
  const holding = async (): Promise<HolderRow | undefined> => (await gate.ask<HolderRow>(statements.holder, [classid, objid]))[0]
  const shown = sharedAnswer(clock, holding) // any request of the host may ask
  const served = sharedAnswer(clock, async () => (await gate.ask<HealthRow>(readings.health, identity))[0]!)

  function record (row: RunRow): RunRecord {
    const run = toRecord(row)
    return run.error === null ? run : { ...run, error: shownError(run.error, settings.redact) }
  }

  async function state (): Promise<StateRow> {
    const [row] = await gate.ask<StateRow>(statements.state, context.judging(false))
    return row!
  }

  return {
    async isSyncing () {
      const own = runner.current
      if (own !== undefined && !own.over) return true
      return await shown() !== undefined
    },

    backfill: async () => parsed<Plan>((await state()).backfill),

    async known () {
      // one after the other: a question holds one client of the pool, not four
      const holder = await holding()
      const row = await state()
      const [lastRun] = await gate.ask<RunRow>(readings.runs, [...identity, 1, null, null, null])
      const [lastSuccess] = await gate.ask<RunRow>(readings.lastSuccess, identity)
      const now = Number(row.now)
      const mark = holder === undefined ? null : markOf(holder, parsed<Mark>(row.started))
      return {
        syncing: holder !== undefined,
        holder: holder === undefined ? null : toHolder(holder, mark),
        progress: holder === undefined ? null : announced(holder.application_name, mark?.id),
        wedged: isWedged(settings, mark, now),
        lastSuccess: lastSuccess === undefined ? null : record(lastSuccess),
        lastRun: lastRun === undefined ? null : record(lastRun),
        lastError: toLastError(row.last_failure, settings.redact),
        watermark: instant(row.watermark),
        backfill: toBackfill(parsed<Plan>(row.backfill)),
        slot: instant(row.slot),
        nextSlot: new Date(nextSlot(now, settings.every, settings.offset)),
        lastSlot: instant(row.last_slot),
        lastSlotAhead: row.last_slot !== null && Number(row.last_slot) > Number(row.slot) + settings.every,
        behindSlots: row.hold === 'served' ? 0 : 1 + Math.max(0, Number(row.succeeded ? row.missed : row.since_made)), // its clock may have been set back since
        notBefore: instant(row.not_before),
        pausedUntil: instant(row.paused_until),
        due: row.hold === null,
        hold: row.hold as Hold | null
      }
    },

    async runs (options = {}) {
      const { limit = 50, before, state, trigger } = argument('runs()', options, ['limit', 'before', 'state', 'trigger'])
      if (typeof limit !== 'number' || !Number.isInteger(limit) || limit < 1 || limit > 1_000) throw invalid('limit', 'a whole number from 1 to 1000', limit)
      if (before !== undefined && !isId(before)) throw invalid('before', 'the id of a run', before)
      const rows = await gate.ask<RunRow>(readings.runs, [
        ...identity, limit, before ?? null, state === undefined ? null : oneOf('state', state, states), trigger === undefined ? null : oneOf('trigger', trigger, triggers)
      ])
      return rows.map(record)
    },

    async run (id) {
      if (!isId(id)) return null
      const [row] = await gate.ask<RunRow>(readings.run, [...identity, id])
      return row === undefined ? null : record(row)
    },

    ended: async ids => (await gate.ask<RunRow>(readings.theseRuns, [ids])).map(record),

    async look (limit) {
      const [row] = await gate.ask<LookRow>(readings.look, [...identity, classid, objid], limit)
      const { started, backend, newest, ...shown } = row!
      const holder = backend === null ? null : { backend, ...shown }
      const mark = holder && markOf(holder, parsed<Mark>(started))
      return {
        holder: holder && toHolder(holder, mark),
        progress: holder && (runner.current?.progress ?? announced(holder.application_name, mark?.id)),
        newest: newest === null ? [] : newest.split(',')
      }
    },

    async health () {
      const { now, succeeded_at: at } = await served()
      return { now: Number(now), succeededAt: at === null ? null : Number(at) }
    }
  }
}

/** What a status says of a database that could not be asked. */
export const unknown = (error: unknown, further: readonly RegExp[]): Known & { unavailable: string } => ({
  unavailable: redact(messageOf(asError(error)), further),
  syncing: false,
  holder: null,
  progress: null,
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

function toLastError (json: string | null, further: readonly RegExp[]): Status['lastError'] {
  if (json === null) return null
  const { at, state, reported, ...error } = JSON.parse(json) as ErrorRecord & { at: number, state: string, reported: number | null }
  return { ...shownError(error, further), at: new Date(at) }
}
