import type { History, Seen } from '../history.js'
import type { Holder, Progress, RunRecord } from '../types.js'

/** What listeners are told. */
export type Told =
  | { event: 'started', data: Omit<Holder, 'backend' | 'applicationName' | 'address'> }
  | { event: 'progress', data: Progress & { runId: string } }
  | { event: 'ended', data: RunRecord }

/** Tells what has happened from one look to the next, in whichever process. Compares ids, and no clocks. */
export interface Feed {
  /** What is new since the look before; the first look only finds out what is old. */
  next: () => Promise<Told[]>
  /** For who comes later: the run under way, and how far it is. */
  now: () => Told[]
}

export function createFeed (history: Pick<History, 'look' | 'ended'>): Feed {
  let old: Set<string> | undefined
  let running: Told & { event: 'started' } | undefined
  let progress: Told & { event: 'progress' } | undefined

  async function ended (newest: string[]): Promise<Told[]> {
    const fresh = old === undefined ? [] : newest.filter(entry => !old!.has(entry))
    const records = fresh.length === 0 ? [] : await history.ended(fresh.map(entry => entry.split(' ')[0]!))
    old = new Set(newest)
    return records.map(data => ({ event: 'ended', data }))
  }

  function under ({ holder, progress: at }: Seen): Told[] {
    const told: Told[] = []
    if (holder === null || holder.runId === null) {
      running = progress = undefined
      return told
    }
    const { backend, applicationName, address, ...data } = holder
    if (running?.data.runId !== holder.runId) {
      running = { event: 'started', data }
      progress = undefined
      told.push(running)
    }
    if (at !== null && (progress === undefined || progress.data.done !== at.done || progress.data.total !== at.total)) {
      progress = { event: 'progress', data: { runId: holder.runId, ...at } }
      told.push(progress)
    }
    return told
  }

  return {
    async next () {
      const seen = await history.look()
      // first what has ended, then what began after it
      return [...await ended(seen.newest), ...under(seen)]
    },
    now: () => [running, progress].filter(told => told !== undefined)
  }
}
