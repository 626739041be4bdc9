import fc from 'fast-check'
import t from 'tap'
import { awayDelay, isWedged, lateAfter, nextSlot, retryDelay, skipAfter, slotAt } from '../lib/schedule.js'

const HOUR = 3_600_000
const MINUTE = 60_000
const utc = (text: string): number => Date.parse(`${text}Z`)

t.test('slotAt', async t => {
  const table: Array<[title: string, at: number, every: number, offset: number, slot: number]> = [
    ['an instant inside an hour', utc('2024-03-10T07:59:59.999'), HOUR, 0, utc('2024-03-10T07:00')],
    ['the very start of a slot belongs to it', utc('2024-03-10T08:00'), HOUR, 0, utc('2024-03-10T08:00')],
    ['with an offset, before it', utc('2024-03-10T08:14:59.999'), HOUR, 15 * MINUTE, utc('2024-03-10T07:15')],
    ['with an offset, at it', utc('2024-03-10T08:15'), HOUR, 15 * MINUTE, utc('2024-03-10T08:15')],
    ['the hour that daylight saving skips in New York', utc('2024-03-10T07:30'), HOUR, 0, utc('2024-03-10T07:00')],
    ['the hour that daylight saving repeats in New York', utc('2024-11-03T06:30'), HOUR, 0, utc('2024-11-03T06:00')],
    ['the epoch', 0, HOUR, 0, 0],
    ['before the epoch', -1, HOUR, 0, -HOUR],
    ['before the first slot that an offset leaves', 0, HOUR, 1, 1 - HOUR],
    ['slots that do not divide a day', utc('2024-03-10T00:00'), 7 * HOUR, 0, Math.floor(utc('2024-03-10T00:00') / (7 * HOUR)) * 7 * HOUR],
    ['slots of a day', utc('2024-03-10T23:59'), 24 * HOUR, 3 * HOUR, utc('2024-03-10T03:00')],
    ['slots of a second', 1_999, 1_000, 0, 1_000]
  ]
  for (const [title, at, every, offset, slot] of table) t.equal(slotAt(at, every, offset), slot, title)
})

const instants = fc.integer({ min: -4e12, max: 8e12 })
const cadence = fc.integer({ min: 1_000, max: 40 * 24 * HOUR }).chain(every => fc.record({ every: fc.constant(every), offset: fc.nat({ max: every - 1 }) }))

t.test('a slot holds the instant it was found for, and has its length', async t => {
  fc.assert(fc.property(instants, cadence, (at, { every, offset }) => {
    const slot = slotAt(at, every, offset)
    const next = nextSlot(at, every, offset)
    return slot <= at && at < next && next - slot === every
  }))
  t.pass()
})

t.test('every instant of a slot has that slot, to the last millisecond', async t => {
  fc.assert(fc.property(instants, cadence, (at, { every, offset }) => {
    const slot = slotAt(at, every, offset)
    return slotAt(slot, every, offset) === slot && slotAt(slot + every - 1, every, offset) === slot && slotAt(slot + every, every, offset) === slot + every
  }))
  t.pass()
})

t.test('an offset shifts slots and changes nothing else', async t => {
  fc.assert(fc.property(instants, cadence, (at, { every, offset }) => slotAt(at + offset, every, offset) === slotAt(at, every, 0) + offset))
  t.pass()
})

t.test('a first attempt is a catch-up after half a slot, two minutes at most, and the jitter', async t => {
  t.equal(lateAfter(HOUR, 0), 2 * MINUTE)
  t.equal(lateAfter(HOUR, 10 * MINUTE), 12 * MINUTE)
  t.equal(lateAfter(4 * MINUTE, 0), 2 * MINUTE)
  t.equal(lateAfter(2_000, 0), 1_000)
  t.equal(lateAfter(2_000, 500), 1_500)
  t.equal(lateAfter(1_001, 0), 500, 'in whole milliseconds, as the server takes them')
})

t.test("with catchUp: 'skip' a slot can be attempted in its first half, five minutes at most, and the jitter", async t => {
  t.equal(skipAfter(HOUR, 0), 5 * MINUTE)
  t.equal(skipAfter(HOUR, 10 * MINUTE), 15 * MINUTE)
  t.equal(skipAfter(10 * MINUTE, 0), 5 * MINUTE)
  t.equal(skipAfter(2_000, 0), 1_000)
  t.equal(skipAfter(1_001, 0), 500, 'in whole milliseconds')
})

t.test('a database that is away is asked after 1, 2, 4, 8, 16 and then every 30 seconds', async t => {
  const almost = 1 - 2 ** -53
  t.strictSame([1, 2, 3, 4, 5, 6, 7, 1_000, 1e9].map(tries => awayDelay(tries, almost)),
    [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000, 30_000])
  t.strictSame([1, 2, 6].map(tries => awayDelay(tries, 0)), [500, 1_000, 15_000], 'and half of that at the least')
})

t.test('retries double up to their limit, spread by a quarter to either side', async t => {
  t.strictSame([1, 2, 3, 4, 5, 6].map(attempt => retryDelay(attempt, MINUTE, 15 * MINUTE, 0.5)), [1, 2, 4, 8, 15, 15].map(minutes => minutes * MINUTE))
  t.equal(retryDelay(1, MINUTE, 15 * MINUTE, 0), 45_000)
  t.equal(retryDelay(1, MINUTE, 15 * MINUTE, 1 - 2 ** -53), 75_000)
})

t.test('a retry delay is a whole number of milliseconds and bounded, whatever the attempt', async t => {
  fc.assert(fc.property(fc.integer({ min: 1, max: 100_000 }), fc.nat(1e10), fc.nat(1e10), fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }), (attempt, delay, most, chance) => {
    const ms = retryDelay(attempt, delay, most, chance)
    return Number.isSafeInteger(ms) && ms >= 0 && ms <= Math.ceil(most * 1.25)
  }))
  t.pass()
})

t.test('a holder is wedged when its timeout and its time to stop are over, and not at that instant', async t => {
  const settings = { timeout: 50 * MINUTE, abandonAfter: 5 * MINUTE }
  t.equal(isWedged(settings, { at: 1_000 }, 1_000 + 55 * MINUTE), false)
  t.equal(isWedged(settings, { at: 1_000 }, 1_001 + 55 * MINUTE), true)
  t.equal(isWedged(settings, null, 1e15), false)
})
