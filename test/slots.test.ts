import t from 'tap'
import { setStage, type Bare, type Stage } from './helpers/host.js'
import { startPostgres } from './helpers/postgres.js'
import { HOUR, seed, type Seeded } from './helpers/seed.js'

const cluster = await startPostgres(t)

/** Noon of a March day. */
const noon = Date.parse('2025-03-10T12:00:00Z')

/** A sync whose tables are there, half an hour after noon, with a history that was written by hand. */
async function past (t: any, runs: Seeded[], { from = noon - 48 * HOUR, options = {} }: { from?: number, options?: object } = {}): Promise<Bare & { stage: Stage }> {
  const stage = await setStage(t, cluster)
  await stage.clock.at(new Date(noon + 31 * 60_000))
  const made = stage.bare({ enabled: false, ...options })
  await made.sync.runOnce({ force: true })
  await stage.query(`delete from ${stage.schema}.run`)
  await seed(stage.query, stage.schema, stage.name, { from, runs })
  return { ...made, stage }
}

const slot = (hoursBack: number): number => noon - hoursBack * HOUR
const range = (back: number, upTo = 0): { since: Date, until: Date } => ({ since: new Date(slot(back)), until: new Date(slot(upTo) + HOUR) })

async function states ({ sync }: Bare, back: number, upTo = 0): Promise<string[]> {
  return (await sync.slots(range(back, upTo))).slots.map(({ state }) => state)
}

t.test('a slot with a success of its own is on time, however late and often it was tried', async t => {
  const made = await past(t, [
    { slot: slot(3), at: slot(3) + 50 * 60_000 },
    { slot: slot(2), state: 'failed', at: slot(2) + 1_000 }, { slot: slot(2), trigger: 'retry', attempt: 2, at: slot(2) + 90_000 },
    { slot: slot(1), trigger: 'manual' }
  ])
  t.match((await made.sync.slots(range(3, 1))).slots, [
    { slot: new Date(slot(3)), state: 'on-time', runs: 1, failures: 0 }, { state: 'on-time', runs: 2, failures: 1 }, { state: 'on-time', runs: 1, failures: 0 }
  ])
})

t.test('a slot whose time a later success has fetched is caught up, and by which run is told', async t => {
  const made = await past(t, [
    { slot: slot(6) },
    { slot: slot(4), state: 'failed' },
    { slot: slot(2), trigger: 'catch-up', since: slot(6), until: slot(2) + 5_000 },
    { slot: slot(1) }
  ])
  const { slots } = await made.sync.slots(range(6, 1))
  t.strictSame(slots.map(({ state }) => state), ['on-time', 'caught-up', 'caught-up', 'caught-up', 'on-time', 'on-time'])
  const catchUp = slots[4]!.run
  t.strictSame(slots.slice(1, 4).map(({ run }) => run), [catchUp, catchUp, catchUp])
  t.match(slots[2], { runs: 1, failures: 1 }, 'one of them was tried')
})

t.test('a success that began after the slot catches nothing up', async t => {
  const made = await past(t, [
    { slot: slot(4) },
    { slot: slot(3), state: 'failed' },
    { slot: slot(1), since: slot(1), until: slot(1) + 1_000 }
  ])
  t.strictSame(await states(made, 4, 1), ['on-time', 'failed', 'missing', 'on-time'])
})

t.test('a failed slot names its last run', async t => {
  const made = await past(t, [{ slot: slot(2), state: 'failed', at: slot(2) + 1_000 }, { slot: slot(2), state: 'timed-out', attempt: 2, at: slot(2) + 90_000 }])
  const { slots: [found] } = await made.sync.slots(range(2, 2))
  t.match(found, { state: 'failed', runs: 2, failures: 2 })
  t.match(await made.sync.run(found!.run!), { state: 'timed-out' })
})

t.test('the current slot is not over until it is served', async t => {
  t.strictSame(await states(await past(t, [{ slot: slot(1) }]), 0), ['pending'])
  t.strictSame(await states(await past(t, [{ slot: slot(0), state: 'failed' }]), 0), ['pending'])
  t.strictSame(await states(await past(t, [{ slot: slot(0) }]), 0), ['on-time'])
})

t.test('slots before the first state row are not missing', async t => {
  const made = await past(t, [{ slot: slot(2), since: slot(2) }], { from: slot(3) - 60_000 })
  t.strictSame(await states(made, 6, 1), ['unknown', 'unknown', 'unknown', 'missing', 'on-time', 'missing'])
})

t.test('a slot that the sync came into being in is not missing either', async t => {
  const made = await past(t, [{ slot: slot(1) }], { from: slot(2) + 60_000 })
  t.strictSame(await states(made, 3, 1), ['unknown', 'unknown', 'on-time'])
})

t.test('slots whose runs are pruned are not missing', async t => {
  const made = await past(t, [{ slot: slot(1), since: slot(1) }], { options: { history: { keepFor: '151m' } } })
  t.strictSame(await states(made, 5, 1), ['unknown', 'unknown', 'unknown', 'missing', 'on-time'])
})

t.test('without a state row nothing is known', async t => {
  const stage = await setStage(t, cluster)
  await stage.clock.at(new Date(noon + 31 * 60_000))
  const made = stage.bare({ enabled: false })
  await made.sync.runOnce({ force: true })
  await stage.query(`truncate ${stage.schema}.run, ${stage.schema}.sync`)
  t.strictSame(await states(made, 2), ['unknown', 'unknown', 'pending'])
})

t.test('a backfill over the whole of a slot catches it up', async t => {
  const made = await past(t, [
    { slot: slot(5) },
    { slot: null, trigger: 'backfill', since: slot(3), until: slot(1), at: slot(1) + 60_000 }
  ])
  t.strictSame(await states(made, 4, 1), ['missing', 'caught-up', 'caught-up', 'missing'])
})

t.test('a slot is served only with the last of its slices', async t => {
  const slice = (index: number, of: number, hours: number): Seeded => ({ slot: slot(hours), slice: index, slices: of, at: slot(hours) + index * 1_000, since: slot(hours), until: slot(hours) + 1 })
  const made = await past(t, [slice(1, 2, 2), slice(2, 2, 2), slice(1, 3, 1)])
  t.strictSame(await states(made, 2, 1), ['on-time', 'failed'])
})

/** Slices of an hour that serve the gap from five minutes into a slot, in a later one, without overlap. */
function sliced (from: number, servedIn: number, count = from - servedIn, slices = from - servedIn): Seeded[] {
  const begin = slot(from) + 5 * 60_000
  return Array.from({ length: count }, (_, index): Seeded => ({
    slot: slot(servedIn), trigger: 'catch-up', slice: index + 1, slices, at: slot(servedIn) + 5 * 60_000 + index * 1_000, since: begin + index * HOUR, until: begin + (index + 1) * HOUR
  }))
}

t.test('every slot of a long gap is caught up by the slice that reached its end', async t => {
  const made = await past(t, [{ slot: slot(47), until: slot(47) + 5 * 60_000 }, ...sliced(47, 1)])
  const { slots } = await made.sync.slots(range(47, 1))
  t.strictSame(slots.map(({ state }) => state), ['on-time', ...Array(45).fill('caught-up'), 'on-time'])
  t.equal(new Set(slots.map(({ run }) => run)).size, 46, 'a slice each; the last serves its own slot too')
  t.match(await made.sync.run(slots[30]!.run!), { until: new Date(slot(16) + 5 * 60_000) })
})

t.test('a slot is caught up only once all of it is fetched, by however many runs', async t => {
  const broken: Seeded[] = [{ slot: slot(6), until: slot(6) + 5 * 60_000 }, ...sliced(6, 2, 2), { slot: slot(2), slice: 3, slices: 4, state: 'failed', at: slot(2) + 6 * 60_000 }]
  t.strictSame(await states(await past(t, broken), 6, 1), ['on-time', 'caught-up', 'missing', 'missing', 'failed', 'missing'])
  const mended = await past(t, [...broken, { slot: slot(1), trigger: 'catch-up', since: slot(4) + 5 * 60_000, until: slot(1) + 1_000 }])
  t.strictSame(await states(mended, 6, 1), ['on-time', 'caught-up', 'caught-up', 'caught-up', 'caught-up', 'on-time'])
})

t.test('a slot whose own last slice failed is caught up by who fetches the rest', async t => {
  const made = await past(t, [
    { slot: slot(4), until: slot(4) + 5 * 60_000 },
    ...sliced(4, 2, 2, 3), { slot: slot(2), slice: 3, slices: 3, state: 'failed', at: slot(2) + 6 * 60_000 },
    { slot: slot(1), trigger: 'catch-up', since: slot(2) + 5 * 60_000, until: slot(1) + 1_000 }
  ])
  t.strictSame(await states(made, 4, 1), ['on-time', 'caught-up', 'caught-up', 'on-time'])
})

t.test('slots of another length and offset are counted from their own beginning', async t => {
  const made = await past(t, [{ slot: slot(1) + 5 * 60_000 }], { options: { every: '15m', offset: '5m' } })
  const { every, slots } = await made.sync.slots({ since: new Date(slot(1)), until: new Date(slot(1) + HOUR / 2) })
  t.equal(every, 900_000)
  t.strictSame(slots.map(({ slot, state }) => [slot.toISOString().slice(11, 16), state]), [['11:05', 'on-time'], ['11:20', 'missing']])
})

t.test('the last seven days are what is told of unless asked', async t => {
  const made = await past(t, [])
  const { slots } = await made.sync.slots()
  t.equal(slots.length, 7 * 24)
  t.strictSame(slots.at(-1)!.slot, new Date(noon))
})

t.test('of a short slot as many as one answer takes', async t => {
  const made = await past(t, [], { options: { every: '1m' } })
  t.equal((await made.sync.slots()).slots.length, 1_000)
  t.equal((await made.sync.slots({ since: new Date(noon - 48 * HOUR) })).slots.length, 1_000, 'and the first of them when only the beginning is given')
  t.equal((await made.sync.slots({ until: new Date(noon - 24 * HOUR) })).slots.at(-1)!.slot.getTime(), noon - 24 * HOUR - 60_000, 'the last when only the end is')
})

t.test('a range that is none is refused, or empty', async t => {
  const made = await past(t, [])
  for (const bad of [{ since: 'x' }, { since: new Date(NaN) }, { until: 7 }, { until: null }] as any[]) await t.rejects(made.sync.slots(bad), { code: 'FST_HOURLY_SYNC_INVALID_OPTION' })
  await t.rejects(made.sync.slots({ since: new Date(noon - 1_001 * HOUR), until: new Date(noon) }), { code: 'FST_HOURLY_SYNC_INVALID_OPTION', message: /at most 1000 slots/ })
  t.equal((await made.sync.slots({ since: new Date(noon - 1_000 * HOUR), until: new Date(noon) })).slots.length, 1_000)
  t.strictSame((await made.sync.slots({ since: new Date(noon), until: new Date(noon - HOUR) })).slots, [])
  t.strictSame((await made.sync.slots({ since: new Date(noon + 9 * HOUR), until: new Date(noon + 12 * HOUR) })).slots, [], 'the future has come to nothing')
})

t.test('a picture counts the slots of an hour, and names the run that says why', async t => {
  const quarter = 15 * 60_000
  const made = await past(t, [
    { slot: slot(1), since: slot(1), until: slot(1) + 1 },
    { slot: slot(1) + quarter, state: 'failed', error: { name: 'Error', message: 'the token=hunter2 is no good' } },
    { slot: slot(1) + 3 * quarter, since: slot(1) + 2 * quarter, until: slot(1) + 3 * quarter + 1 }
  ], { options: { every: '15m' } })
  const hours = await made.sync.reading.slots.hours(2 * HOUR)
  const found = hours.find(({ hour }) => Number(hour) === slot(1))
  t.match(found, { on_time: 2, caught_up: 1, failed: 1, missing: 0, pending: 0, failures: 1, run_state: 'failed', error: 'the token=*** is no good' })
  t.match(hours.at(-1), { hour: String(noon), missing: 2, pending: 1, run: null })
})
