import { argument, date, invalid } from './checks.js'
import type { Context } from './context.js'
import { redact } from './failure.js'
import { instant } from './record.js'
import type { HourRow, SlotRow } from './sql/readings.js'
import type { SlotList, SlotState } from './types.js'

/** How many slots one answer tells of. */
export const MOST_SLOTS = 1_000

/** How many one picture counts. */
const MOST_COUNTED = 20_000

const WEEK = 7 * 86_400_000

/** What every slot of the past came to. */
export interface Slots {
  list: (range?: { since?: Date, until?: Date }) => Promise<SlotList>
  /** The slots of so many milliseconds, counted by the hour. Those of a short `every` are counted for as long back as is reasonable. */
  hours: (back: number) => Promise<HourRow[]>
}

export function createSlots ({ settings, readings, gate }: Context): Slots {
  const { name, every, offset, keepFor } = settings

  return {
    async list (range = {}) {
      const { since, until } = argument('slots()', range, ['since', 'until'])
      const from = since === undefined ? null : date('since', since)
      const to = until === undefined ? null : date('until', until)
      if (from !== null && to !== null && (to - from) / every > MOST_SLOTS) {
        throw invalid('until', `at most ${MOST_SLOTS} slots after 'since'`, until)
      }
      const length = from === null ? Math.min(WEEK, MOST_SLOTS * every) : MOST_SLOTS * every
      const rows = await gate.ask<SlotRow>(readings.slots, [name, '', every, offset, from, to, length, keepFor])
      return {
        every,
        slots: rows.map(row => ({ slot: instant(row.slot)!, state: row.state as SlotState, run: row.run, runs: row.runs, failures: row.failures }))
      }
    },

    async hours (back) {
      const rows = await gate.ask<HourRow>(readings.hours, [name, '', every, offset, null, null, Math.min(back, MOST_COUNTED * every), keepFor])
      return rows.map(row => row.error === null ? row : { ...row, error: redact(row.error, settings.redact) })
    }
  }
}
