import { readFileSync } from 'node:fs'
import type { Run, Write } from './evidence.js'
import type { Fault, Faults } from './faults.js'
import type { Fleet } from './fleet.js'
import type { Overlap } from './overlaps.js'
import type { Triggers } from './storm.js'
import type { Takeover } from './takeovers.js'

interface Told {
  faults: Faults
  writes: Write[]
  runs: Run[]
  triggers: Triggers
  overlaps: Overlap[]
  takeovers: Takeover[]
}

/** What was done to the servers, and what they made of it. */
export function report ({ faults, writes, runs, triggers, overlaps, takeovers }: Told): string {
  const successes = writes.filter(({ kind }) => kind === 'recorded').map(({ committed }) => committed)
  const kinds = [...new Set(faults.log.map(({ kind }) => kind))].sort()
  const rows = kinds.map(kind => {
    const ofKind = faults.log.filter(fault => fault.kind === kind)
    const waits = ofKind.map(fault => nextSuccess(fault, successes)).filter(wait => wait !== undefined)
    return [
      kind, ofKind.length, ofKind.filter(({ holder }) => holder).length, waits.length,
      seconds(waits.toSorted((a, b) => a - b)[Math.floor(waits.length / 2)]), seconds(Math.max(...waits))
    ]
  })
  const all = faults.log.length
  return [
    table(['fault', 'injected', 'met the holder', 'survived', 'next success after (median)', '(worst)'], rows),
    `${all} faults in all, ${faults.missed.length} more met nobody`,
    `runs: ${counted(runs.map(({ state }) => state))}; by trigger: ${counted(runs.map(({ trigger }) => trigger))}`,
    `triggers by hand: ${[...triggers.answers].map(([answer, count]) => `${count} ${answer}`).join(', ')}`,
    `frozen holders that were replaced while frozen: ${takeovers.length === 0 ? 'none lasted long enough' : takeovers.map(({ took }) => seconds(took)).join(', ')}`,
    overlaps.length === 0
      ? 'overlaps in calls to the order service: none'
      : `overlaps in calls to the order service: ${overlaps.length}\n${table(['older run', 'lasted', 'awake', 'bound'], overlaps.map(({ older, lasted, awake, bound }) => [older, seconds(lasted), seconds(awake), seconds(bound)]))}`
  ].join('\n')
}

/** From the end of a fault to the next success, milliseconds. */
function nextSuccess ({ until }: Fault, successes: number[]): number | undefined {
  const next = successes.find(at => at > until)
  return next === undefined ? undefined : next - until
}

function seconds (ms: number | undefined): string {
  return ms === undefined || !Number.isFinite(ms) ? '-' : `${(ms / 1_000).toFixed(2)} s`
}

function counted (words: string[]): string {
  const counts = new Map<string, number>()
  for (const word of words) counts.set(word, (counts.get(word) ?? 0) + 1)
  return [...counts].sort(([, a], [, b]) => b - a).map(([word, count]) => `${count} ${word}`).join(', ')
}

function table (head: string[], rows: Array<Array<string | number>>): string {
  const lines = [head, ...rows].map(row => row.map(String))
  const widths = head.map((_, column) => Math.max(...lines.map(line => line[column]!.length)))
  return lines.map(line => `  ${line.map((cell, column) => column === 0 ? cell.padEnd(widths[0]!) : cell.padStart(widths[column]!)).join('  ')}`).join('\n')
}

/** The last lines of what each server said. */
export function tails (fleet: Fleet, lines = 8): string {
  return fleet.all.map(({ pid, seat, output, exit }) => {
    const said = readFileSync(output, 'utf8').trimEnd().split('\n').slice(-lines).map(line => `    ${line.slice(0, 300)}`).join('\n')
    return `  server ${pid} at seat ${seat}${exit === null ? '' : ` (ended with ${exit.code ?? exit.signal})`}\n${said}`
  }).join('\n')
}
