import { readFileSync } from 'node:fs'
import type { Run, Write } from './evidence.js'
import type { Fault } from './faults.js'
import type { Server } from './fleet.js'
import { sync } from './limits.js'

interface Evidence {
  writes: Write[]
  runs: Run[]
  faults: Fault[]
  servers: Server[]
  /** Runs that a trigger by hand was told of. */
  started: string[]
}

/** Every invariant that was broken, in words. Knows nothing of how the syncs work, but for what they promise. */
export function breaches ({ writes, runs, faults, servers, started }: Evidence): string[] {
  return [
    ...staleWrites(writes),
    ...unwanted(writes),
    ...records(writes, runs, started),
    ...servedTwice(writes, runs, faults),
    ...watermark(writes, runs),
    ...deaths(servers),
    ...outcries(servers)
  ]
}

/** No run writes after a newer one has begun to: in the order of commits, the writes of each run are in one piece. */
export function staleWrites (writes: Write[]): string[] {
  const found: string[] = []
  const ended = new Set<string>()
  let current: Write | undefined
  for (const write of writes) {
    if (write.run !== current?.run) {
      if (ended.has(write.run)) {
        found.push(`a stale write: ${write.kind} ${write.seq} of run ${write.run} was committed at ${new Date(write.committed).toISOString()}, after ${current!.kind} of run ${current!.run}`)
      }
      if (current !== undefined) ended.add(current.run)
    }
    current = write
  }
  return found
}

/** What a run must not be able to write: after it is over, or once it was told and four seconds have passed. */
function unwanted (writes: Write[]): string[] {
  return writes.filter(({ kind }) => kind === 'stray').map(({ run }) => `run ${run} wrote after it had ended`)
}

/** No success without its last write, no run without a record, and the last write of a success is its last. */
function records (writes: Write[], runs: Run[], started: string[]): string[] {
  const found: string[] = []
  const known = new Set(runs.map(({ id }) => id))
  const finals = new Set(writes.filter(({ kind }) => kind === 'final').map(({ run }) => run))
  for (const { id, state } of runs) {
    if (state === 'succeeded' && !finals.has(id)) found.push(`run ${id} is recorded as succeeded, but its last write is not there`)
  }
  const told = new Set([...writes.map(({ run }) => run), ...started])
  for (const run of told) if (!known.has(run)) found.push(`run ${run} is in no record`)
  return found
}

/** A slot that was served is not run again by the schedule, unless the server's clock was set back to it. */
function servedTwice (writes: Write[], runs: Run[], faults: Fault[]): string[] {
  const found: string[] = []
  const byId = new Map(runs.map(run => [run.id, run]))
  const jumps = faults.filter(({ kind }) => kind === 'server clock').flatMap(({ at, until }) => [at, until]).sort((a, b) => a - b)
  const served = new Map<number, string>()
  for (const { run: id, kind, committed } of writes) {
    while (jumps.length > 0 && jumps[0]! <= committed + sync.timeout) { // a run may have begun before the jump
      jumps.shift()
      served.clear()
    }
    const run = byId.get(id)
    if (kind !== 'recorded' || run === undefined) continue
    const before = served.get(run.slot)
    if (before !== undefined && run.trigger !== 'manual') found.push(`slot ${new Date(run.slot).toISOString()} was served by run ${before} and then again by ${run.trigger} run ${id}`)
    served.set(run.slot, id)
  }
  return found
}

/** The watermark never moves back, and no window leaves a gap to the one before. */
function watermark (writes: Write[], runs: Run[]): string[] {
  const found: string[] = []
  const byId = new Map(runs.map(run => [run.id, run]))
  let last: Run | undefined
  for (const { run: id, kind } of writes) {
    const run = byId.get(id)
    if (kind !== 'recorded' || run === undefined) continue
    if (run.since !== null && run.since > run.until) found.push(`run ${id} had a window that ends before it begins`)
    if (last !== undefined && run.until < last.until) found.push(`the watermark moved back: from ${last.until} with run ${last.id} to ${run.until} with run ${id}`)
    if (last !== undefined && (run.since ?? 0) > last.until - sync.overlap) found.push(`between the windows of run ${last.id} and run ${id} there is a gap`)
    last = run
  }
  return found
}

/** Who was not killed ends only when told, with code 0. */
function deaths (servers: Server[]): string[] {
  return servers.flatMap(({ pid, seat, exit, told }) => {
    if (told === 'SIGKILL') return []
    if (exit === null) return [`server ${pid} at seat ${seat} was told to end and did not`]
    if (told === null || exit.code !== 0) return [`server ${pid} at seat ${seat} ended with ${exit.code ?? exit.signal}${told === null ? ', untold' : ''}`]
    return []
  })
}

/** What Node says when something was not handled, and warnings of the driver. */
const outcry = /uncaughtException|unhandledRejection|Unhandled|ERR_UNHANDLED|MaxListenersExceeded|DeprecationWarning|^\w*Error: |TypeError/

function outcries (servers: Server[]): string[] {
  return servers.flatMap(({ output, pid }) => readFileSync(output, 'utf8').split('\n')
    .filter(line => !line.startsWith('{') && outcry.test(line))
    .map(line => `server ${pid} said: ${line}`))
}
