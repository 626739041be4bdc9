import { seededRandom } from '../../examples/orders/random.js'
import { SEATS, sync } from './limits.js'

export type Kind =
  | 'kill' | 'stop' | 'block' | 'deploy'
  | 'lock session' | 'idle client' | 'busy client' | 'cancel'
  | 'cut' | 'freeze'
  | 'restart fast' | 'restart immediate'
  | 'server clock' | 'process clock'

/** One fault to come. */
export interface Planned {
  /** Milliseconds after the storm began. */
  at: number
  kind: Kind
  /** Whose turn it is; `null` for whoever holds the lock then. */
  seat: number | null
  /** How long it lasts, or how long the victim stays away, milliseconds. */
  ms: number
  /** How far a clock jumps, milliseconds. */
  shift: number
  /** What becomes of a frozen connection: what was held back is delivered late, or never. */
  late: boolean
}

/** Kind, how often among the others, and the shortest and longest it lasts. */
const kinds: Array<[Kind, number, number, number]> = [
  ['kill', 4, 200, 2_000],
  ['stop', 4, 500, 16_000],
  ['block', 4, 300, 6_000],
  ['deploy', 3, 0, 0],
  ['lock session', 4, 0, 0],
  ['idle client', 2, 0, 0],
  ['busy client', 2, 0, 0],
  ['cancel', 1, 0, 0],
  ['cut', 3, 0, 1_500],
  ['freeze', 4, 500, 18_000],
  ['restart fast', 0.7, 0, 3_000],
  ['restart immediate', 0.7, 0, 3_000],
  ['server clock', 1.2, 1_000, 8_000],
  ['process clock', 1, 0, 0]
]

/**
 * How far the server's clock may jump ahead and back. What changes upstream while it is ahead has stamps that the windows have passed: the
 * overlap makes up for that, and for no more than itself.
 */
const FORTH = 0.8 * sync.overlap

const weight = kinds.reduce((sum, [, share]) => sum + share, 0)

/** The faults of a storm: the same ones for the same seed. The first of each kind comes in the first minute, as far as they fit. */
export function schedule (seed: number, length: number): Planned[] {
  const random = seededRandom(seed)
  const between = (low: number, high: number): number => Math.round(low + random() * (high - low))
  const first = kinds.map(kind => ({ kind, place: random() })).sort((a, b) => a.place - b.place).map(({ kind }) => kind)
  const planned: Planned[] = []

  function any (): typeof kinds[number] {
    let left = random() * weight
    return kinds.find(([, share]) => (left -= share) < 0) ?? kinds[0]!
  }

  for (let at = between(1_000, 3_000); at < length; at += between(300, 3_500)) {
    const [kind, , shortest, longest] = first.pop() ?? any()
    planned.push({
      at,
      kind,
      seat: random() < 0.7 ? null : between(0, SEATS - 1),
      ms: between(shortest, longest),
      shift: kind === 'server clock' ? Math.min(jump(random(), random()), FORTH) : jump(random(), random()),
      late: random() < 0.6
    })
  }
  return planned
}

/** Seconds, minutes or hours, back or forth. */
function jump (far: number, where: number): number {
  const span = far < 0.4 ? 10_000 : far < 0.7 ? 300_000 : 10_800_000
  return Math.round((where * 2 - 1) * span)
}
