import type { Fault } from './faults.js'
import type { Server } from './fleet.js'
import { PROOF_LIMIT, SLACK, sync } from './limits.js'
import type { Call } from './service.js'

/** An older run that still called while a newer one had begun to. Milliseconds. */
export interface Overlap {
  older: string
  newer: string
  worker: number
  at: number
  /** From the first call of the newer to the last of the older. */
  lasted: number
  /** Of that, the time in which the older's process could do anything at all. */
  awake: number
  /** What detection may take here. */
  bound: number
}

/**
 * Where the calls of two runs overlap. The older learns of its loss from its socket, at once; or, where the network has gone silent,
 * from its heartbeat, within that and the limit of its proof.
 */
export function overlaps (calls: Call[], servers: Server[], faults: Fault[]): Overlap[] {
  const spans = new Map<string, { run: string, worker: number, from: number, to: number }>()
  for (const { run, worker, from, to } of calls) {
    const span = spans.get(run) ?? { run, worker, from, to }
    span.to = Math.max(span.to, to)
    spans.set(run, span)
  }
  const inOrder = [...spans.values()].sort((a, b) => a.from - b.from)
  return inOrder.flatMap((older, place) => inOrder.slice(place + 1).filter(newer => newer.from < older.to).map(newer => {
    const server = servers.find(({ pid }) => pid === older.worker)
    const isSilent = faults.some(({ kind, seat, at, until }) => kind === 'freeze' && seat === server?.seat && at < older.to && until > older.from)
    return {
      older: older.run,
      newer: newer.run,
      worker: older.worker,
      at: newer.from,
      lasted: older.to - newer.from,
      awake: awake(server?.still ?? [], newer.from, older.to),
      bound: sync.heartbeat + (isSilent ? PROOF_LIMIT : 0) + SLACK
    }
  }))
}

function awake (still: Server['still'], from: number, to: number): number {
  let at = from
  let sum = 0
  for (const pause of [...still].sort((a, b) => a.from - b.from)) {
    const begin = Math.min(Math.max(pause.from, at), to)
    sum += begin - at
    at = Math.min(Math.max(pause.to, at), to)
  }
  return sum + to - at
}
