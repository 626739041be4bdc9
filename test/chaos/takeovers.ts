import type { Write } from './evidence.js'
import type { Fault } from './faults.js'
import { SLACK, sync } from './limits.js'

/** A holder that froze, or whose network went silent, and how long it took until another ran. Milliseconds. */
export interface Takeover {
  fault: Fault
  took: number
}

/** Three heartbeats until the database ends the session, a look of the others, a slot that may have to begin first; and the machine is busy. */
export const TAKEOVER = 3 * sync.heartbeat + sync.standby + sync.every + 1_000 + 2 * SLACK

/** After the database itself was away, the others look again only after a while of their own. */
const AWAY = 15_000

/**
 * Those that lasted for longer than a takeover may take, while the database was there. One that ended by itself before another ran
 * proves nothing, and is not among them unless it was late.
 */
export function takeovers (writes: Write[], faults: Fault[]): Takeover[] {
  const starts = writes.filter(({ kind }) => kind === 'start')
  const restarts = faults.filter(({ kind }) => kind.startsWith('restart'))
  return faults
    .filter(({ kind, holder, at, until }) => holder && (kind === 'stop' || kind === 'freeze') && until - at > TAKEOVER &&
      !restarts.some(restart => restart.at < until && restart.until > at - AWAY))
    .map(fault => {
      const next = starts.find(({ committed, worker }) => committed > fault.at && worker !== fault.pid)
      return { fault, took: (next?.committed ?? Infinity) - fault.at }
    })
}
