/** Instants and counts at the edge of what PostgreSQL and JavaScript can hold: a sync must never be left with a run whose end cannot be recorded. */
import t from 'tap'
import type { HourlySyncOptions, SyncRun } from '../lib/types.js'
import { levels, setStage } from './helpers/host.js'
import { startPostgres } from './helpers/postgres.js'

const cluster = await startPostgres(t)
const DAY = 86_400_000
/** The first of January 4713 BC, with which PostgreSQL's timestamps begin. */
const earliest = new Date(Date.UTC(-4712, 0, 1))
const tooEarly = new Date(earliest.getTime() - 1)
const never = new Date(-8.64e15)
const last = new Date(8.64e15)
const now = new Date('2025-03-10T10:00:00Z')
const invalid = (name: string): { code: string, message: RegExp } => ({ code: 'FST_HOURLY_SYNC_INVALID_OPTION', message: new RegExp(`^option '${name}' should be `) })

t.test('backfill', async t => {
  for (const [what, window, name] of [
    ['the earliest Date there is', { since: never, until: now }, 'since'],
    ['a millisecond before 4713 BC', { since: tooEarly, until: now }, 'since'],
    ['an end that early', { since: never, until: tooEarly }, 'since']
  ] as const) {
    t.test(`refuses ${what} before anything is noted`, async t => {
      const stage = await setStage(t, cluster)
      const { sync } = await stage.host()
      await t.rejects(sync.backfill(window), invalid(name))
      t.equal(await stage.state(), undefined)
      t.match(await sync.runOnce(), { outcome: 'succeeded' })
    })
  }

  t.test('refuses a window of more slices than can be counted, by the option that makes them', async t => {
    const stage = await setStage(t, cluster)
    const { sync } = await stage.host({ maxWindow: '1s' })
    await t.rejects(sync.backfill({ since: new Date('1900-01-01'), until: now }), invalid('maxWindow'))
    t.equal(await stage.state(), undefined)
  })

  t.test('goes from 4713 BC to the last Date there is', async t => {
    const stage = await setStage(t, cluster)
    const windows: unknown[] = []
    const { sync } = await stage.host({ overlap: '1d', sync: async run => { windows.push([run.since, run.until]) } })
    const answer = await sync.backfill({ since: earliest, until: last })
    t.match(answer.started && await answer.finished, { state: 'succeeded', since: earliest, until: last })
    t.strictSame(windows, [[earliest, last]])
    t.match(await sync.runs(), [{ since: earliest, until: last }])
  })

  t.test('that an older release has left with a window that no timestamp holds goes on, and its end is recorded', async t => {
    const stage = await setStage(t, cluster)
    const { sync } = await stage.host()
    await sync.runOnce()
    await stage.query(`update ${stage.schema}.sync set backfill = $1`, [{ since: never.getTime(), until: now.getTime(), position: never.getTime() }])
    const answer = await sync.backfill()
    t.match(answer.started && await answer.finished, { state: 'succeeded', since: earliest })
    t.match(await stage.state(), { started: null, backfill: null })
  })

  t.test('of which slices are left that nobody can count is refused, with the same window or with none', async t => {
    const stage = await setStage(t, cluster)
    const one = await stage.host()
    await one.sync.runOnce()
    const since = new Date('1900-01-01')
    await stage.query(`update ${stage.schema}.sync set backfill = $1`, [{ since: since.getTime(), until: now.getTime(), position: since.getTime() }])
    const { sync } = await stage.host({ maxWindow: '1s' })
    await t.rejects(sync.backfill(), invalid('maxWindow'))
    await t.rejects(sync.backfill({ since, until: now }), invalid('maxWindow'))
    t.match(await stage.state(), { started: null })
  })
})

t.test('initialSince', async t => {
  for (const [what, initialSince] of [['the earliest Date there is', never], ['a millisecond before 4713 BC', tooEarly], ['a duration that leads before it', '7000y'], ['the longest duration', Number.MAX_SAFE_INTEGER]] as const) {
    t.test(`of ${what} is refused while registering`, async t => {
      const stage = await setStage(t, cluster)
      await t.rejects(stage.host({ initialSince }), invalid('initialSince'))
    })
  }

  t.test('of 4713 BC is where the first window starts', async t => {
    const stage = await setStage(t, cluster)
    const { sync } = await stage.host({ initialSince: earliest })
    t.match(await sync.runOnce(), { outcome: 'succeeded', run: { since: earliest } })
  })

  t.test('with more slices to now than can be counted begins with the first', async t => {
    const stage = await setStage(t, cluster)
    const slices: unknown[] = []
    const { sync } = await stage.host({
      initialSince: new Date('1900-01-01'),
      maxWindow: '1s',
      sync: async run => {
        slices.push(run.slice)
        if (run.slice.index === 2) throw new Error('enough')
      }
    })
    for (let i = 0; i < 2; i++) t.match(await sync.runOnce({ force: true }), { outcome: 'failed', reason: 'enough', run: { slices: 2 ** 31 - 1 } })
    t.strictSame(slices, [1, 2, 1, 2].map(index => ({ index, of: 2 ** 31 - 1 })))
    t.match(await stage.state(), { watermark: new Date('1900-01-01T00:00:02Z') })
  })
})

t.test('an overlap that leads before 4713 BC is taken as far as it goes, in each slice', async t => {
  const stage = await setStage(t, cluster)
  const starts: unknown[] = []
  const { sync } = await stage.host({ overlap: Number.MAX_SAFE_INTEGER, maxWindow: '30m', sync: async run => { starts.push(run.since) } })
  await stage.clock.at(now)
  await sync.runOnce()
  await stage.clock.at(new Date(now.getTime() + 3_600_000))
  t.match(await sync.runOnce(), { outcome: 'succeeded', run: { slice: 2, slices: 2 } })
  await stage.clock.at(new Date(now.getTime() - DAY)) // set back
  t.match(await sync.runOnce({ force: true }), { outcome: 'succeeded' })
  t.strictSame(starts, [null, earliest, earliest, earliest])
})

t.test('a checkpoint before 4713 BC is refused', async t => {
  const stage = await setStage(t, cluster)
  let error: unknown
  const { sync } = await stage.host({ sync: async run => { error = await run.checkpoint({ until: tooEarly }).catch(error => error) } })
  t.match(await sync.runOnce(), { outcome: 'succeeded' })
  t.match(error, invalid('until'))
})

t.test('a checkpoint of 4713 BC is one', async t => {
  const stage = await setStage(t, cluster)
  const told: Array<Date | null> = []
  const { sync } = await stage.host({
    sync: async (run: SyncRun) => {
      told.push(run.since)
      await run.checkpoint({ until: earliest })
      throw new Error('no')
    }
  })
  for (let i = 0; i < 2; i++) t.match(await sync.runOnce({ force: true }), { outcome: 'failed', reason: 'no' })
  t.strictSame(told, [null, earliest])
})

t.test('slots() refuses what no timestamp holds, and answers for what one does', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host()
  await sync.runOnce()
  await t.rejects(sync.slots({ since: never }), invalid('since'))
  await t.rejects(sync.slots({ until: tooEarly }), invalid('until'))
  t.match(await sync.slots({ until: earliest }), { every: 3_600_000 })
  t.match(await sync.slots({ since: earliest }), { every: 3_600_000 })
  t.strictSame((await sync.slots({ since: last })).slots, [])
})

t.test('durations that no timestamp can be moved by do no harm', async t => {
  const longest = Number.MAX_SAFE_INTEGER
  for (const [what, options] of [
    ['pauses', { retry: { delay: longest, maxDelay: longest } }],
    ['a retention', { history: { keepFor: longest } }],
    ['limits', { timeout: longest, abandonAfter: longest, standby: longest }],
    ['a slot', { every: longest }]
  ] as Array<[string, Partial<HourlySyncOptions>]>) {
    t.test(what, async t => {
      const stage = await setStage(t, cluster)
      let fails = true
      const { sync, log } = await stage.host({ ...options, sync: async () => { if (fails) throw new Error('no') } })
      t.match(await sync.runOnce(), { outcome: 'failed', reason: 'no' })
      fails = false
      t.match(await sync.runOnce({ force: true }), { outcome: 'succeeded' })
      t.strictSame(log.lines.filter(({ level }) => level > levels.info).map(({ msg }) => msg), ['sync failed'])
      t.equal((await stage.history()).length, 2)
    })
  }
})

t.test('a mark that cannot be recorded', async t => {
  const id = '7f3f1f0e-1c39-4d0e-9d54-6a1b0c1f0a01'
  const whole = { id, slot: now.getTime(), trigger: 'schedule', slice: 1, slices: 1, attempt: 1, since: null, until: now.getTime(), host: 'gone', pid: 1, at: now.getTime() }
  const found: Array<[what: string, mark: unknown, row: object | undefined]> = [
    ['a window before all time', { ...whole, since: never.getTime(), until: never.getTime() + 1 }, { window_start: earliest, window_end: earliest }],
    ['instants that no number is enough for', { ...whole, until: 1e300, at: -1e300 }, { window_end: last, started_at: earliest }],
    ['counts beyond an integer', { ...whole, slice: 3e9, slices: -3e9, attempt: 1e30 }, { slice: 2147483647, slices: 1, attempt: 2147483647 }],
    ['fractions', { ...whole, slot: now.getTime() + 0.5, slice: 1.5, attempt: 0.1 }, { attempt: 1 }],
    ['texts for numbers', { ...whole, slot: 'soon', slice: 'two', slices: [], attempt: {}, since: 'never', until: 'now', at: 'then', pid: {} }, { slot: null, slice: 1, slices: 1, attempt: 1, window_start: null }],
    ['nothing but an id', { id }, { trigger: 'schedule', attempt: 1, slot: null, worker: 'unknown' }],
    ['an id that is none', { ...whole, id: 'x' }, undefined],
    ['no id', {}, undefined],
    ['a text', '"x"', undefined],
    ['a number', '7', undefined],
    ['an array', '[1]', undefined],
    ['null', 'null', undefined]
  ]
  for (const [what, mark, row] of found) {
    t.test(`of ${what} is buried as far as it can be, and blocks nothing`, async t => {
      const stage = await setStage(t, cluster)
      const { sync } = await stage.host()
      await stage.clock.at(now)
      await sync.runOnce()
      const note = async (deaths: number): Promise<unknown> => await stage.query(`update ${stage.schema}.sync set started = $1::jsonb, deaths = $2`, [typeof mark === 'string' ? mark : JSON.stringify(mark), deaths])
      for (const deaths of [0, 2]) {
        await note(deaths)
        await stage.clock.pass(3_600_000)
        t.match(await sync.status(), { unavailable: null })
        t.match(await sync.runOnce(), { outcome: 'succeeded' })
      }
      t.match((await stage.history()).filter(({ state }) => state === 'vanished'), row === undefined ? [] : [{ id, ...row }])
      t.match(await stage.state(), { started: null, deaths: 0 })
    })
  }
})
