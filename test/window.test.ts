import t from 'tap'
import type { SyncRun } from '../lib/types.js'
import { type Host, setStage } from './helpers/host.js'
import { startPostgres } from './helpers/postgres.js'

const cluster = await startPostgres(t)

/** What a run was told of its window. */
const told = (run: SyncRun): [string | undefined, string] => [run.since?.toISOString(), run.until.toISOString()]

t.test('a window starts an overlap before the one of the last success ended', async t => {
  const stage = await setStage(t, cluster)
  const windows: unknown[] = []
  const { sync } = await stage.host({ overlap: '10m', sync: async run => { windows.push(told(run)) } })
  await stage.clock.at('2025-03-10T10:05:00.123Z')
  await sync.runOnce()
  await stage.clock.at('2025-03-10T11:02:00Z')
  await sync.runOnce()
  await stage.clock.at('2025-03-10T12:00:00Z')
  await sync.runOnce()
  t.strictSame(windows, [
    [undefined, '2025-03-10T10:05:00.123Z'],
    ['2025-03-10T09:55:00.123Z', '2025-03-10T11:02:00.000Z'],
    ['2025-03-10T10:52:00.000Z', '2025-03-10T12:00:00.000Z']
  ])
})

t.test('what changes upstream during a run longer than the overlap is fetched by the next run', async t => {
  const stage = await setStage(t, cluster)
  const upstream = [{ id: 1, state: 'new', updatedAt: new Date('2025-03-10T09:00:00Z') }]
  const saved = new Map<number, string>()
  let atWork = async (): Promise<void> => {}
  const { sync } = await stage.host({
    overlap: '10m',
    sync: async run => {
      // the page is read when the run begins, and the run then takes its time
      const page = upstream.filter(({ updatedAt }) => (run.since === null || updatedAt >= run.since) && updatedAt < run.until).map(order => ({ ...order }))
      await atWork()
      for (const { id, state } of page) saved.set(id, state)
    }
  })
  await stage.clock.at('2025-03-10T10:00:01Z')
  atWork = async () => {
    await stage.clock.at('2025-03-10T10:20:00Z')
    upstream[0] = { id: 1, state: 'paid', updatedAt: await stage.clock.now() }
    await stage.clock.at('2025-03-10T10:45:00Z') // 45 minutes, an overlap of 10
  }
  await sync.runOnce()
  t.equal(saved.get(1), 'new')
  atWork = async () => {}
  await stage.clock.at('2025-03-10T11:00:00Z')
  await sync.runOnce()
  t.equal(saved.get(1), 'paid')
})

t.test('a failed run leaves the watermark where it was', async t => {
  const stage = await setStage(t, cluster)
  let fails = false
  const { sync } = await stage.host({ sync: async () => { if (fails) throw new Error('no') } })
  await stage.clock.at('2025-03-10T10:00:00Z')
  await sync.runOnce()
  fails = true
  await stage.clock.at('2025-03-10T11:00:00Z')
  t.equal((await sync.runOnce()).outcome, 'failed')
  t.strictSame((await stage.state()).watermark, new Date('2025-03-10T10:00:00Z'))
})

t.test('the run after three failures in a row starts from the last success', async t => {
  const stage = await setStage(t, cluster)
  const windows: unknown[] = []
  let fails = false
  const { sync } = await stage.host({
    overlap: '1m',
    sync: async run => {
      windows.push(told(run))
      if (fails) throw new Error('no')
    }
  })
  for (const hour of [10, 11, 12, 13, 14]) {
    fails = hour > 10 && hour < 14
    await stage.clock.at(`2025-03-10T${hour}:00:00Z`)
    await sync.runOnce()
  }
  t.strictSame(windows.slice(1), ['11', '12', '13', '14'].map(hour => ['2025-03-10T09:59:00.000Z', `2025-03-10T${hour}:00:00.000Z`]))
})

t.test('a run that does not advance serves its slot and leaves watermark and cursor', async t => {
  const stage = await setStage(t, cluster)
  let advance: { advance?: false } = {}
  let page = 0
  const { sync } = await stage.host({ sync: async () => ({ cursor: { page: ++page }, ...advance }) })
  await stage.clock.at('2025-03-10T10:00:00Z')
  await sync.runOnce()
  advance = { advance: false }
  await stage.clock.at('2025-03-10T11:00:00Z')
  t.equal((await sync.runOnce()).outcome, 'succeeded')
  t.match(await stage.state(), { watermark: new Date('2025-03-10T10:00:00Z'), cursor: { page: 1 }, last_slot: new Date('2025-03-10T11:00:00Z') })
  t.match(await sync.runOnce(), { outcome: 'not-due', reason: 'served' })
})

t.test('a cursor is handed on until another takes its place', async t => {
  const stage = await setStage(t, cluster)
  const cursors: unknown[] = []
  const answers = [{ cursor: { page: 7, at: 'é' } }, undefined, { cursor: null }, { cursor: 0 }, undefined]
  const { sync } = await stage.host({
    sync: async run => {
      cursors.push(run.cursor)
      return answers[cursors.length - 1]
    }
  })
  for (let i = 0; i < 5; i++) await sync.runOnce({ force: true })
  t.strictSame(cursors, [null, { page: 7, at: 'é' }, { page: 7, at: 'é' }, null, 0])
})

t.test('a cursor that a failed run would have left is not handed on', async t => {
  const stage = await setStage(t, cluster)
  const cursors: unknown[] = []
  const { sync } = await stage.host({
    sync: async run => {
      cursors.push(run.cursor)
      if (cursors.length === 2) return { cursor: 2, stats: 1n as any } // which makes it fail
      return { cursor: 1 }
    }
  })
  for (let i = 0; i < 3; i++) await sync.runOnce({ force: true })
  t.strictSame(cursors, [null, 1, 1])
})

t.test('the first window has no start', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host()
  const { run } = await sync.runOnce()
  t.equal(run!.since, null)
})

t.test('the first window starts at an initialSince, without the overlap', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({ overlap: '10m', initialSince: new Date('2024-01-01T00:00:00Z') })
  const { run } = await sync.runOnce()
  t.strictSame(run!.since, new Date('2024-01-01T00:00:00Z'))
})

t.test('the first window starts an initialSince before now, on the clock of the database', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({ initialSince: '30d' })
  await stage.clock.at('2021-03-10T10:00:00.5Z')
  const { run } = await sync.runOnce()
  t.strictSame(run!.since, new Date('2021-02-08T10:00:00.5Z'))
})

t.test('an initialSince in the future makes an empty window, not one that ends before it starts', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({ initialSince: new Date('2030-01-01T00:00:00Z') })
  await stage.clock.at('2025-03-10T10:00:00Z')
  const { run } = await sync.runOnce()
  t.strictSame([run!.since, run!.until], [new Date('2025-03-10T10:00:00Z'), new Date('2025-03-10T10:00:00Z')])
})

t.test('an initialSince is no longer looked at once a run succeeded', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({ overlap: 0, initialSince: new Date('2024-01-01T00:00:00Z') })
  const { run: first } = await sync.runOnce()
  const { run } = await sync.runOnce({ force: true })
  t.strictSame(run!.since, first!.until)
})

t.test('a first install runs at once', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host()
  await stage.clock.at('2025-03-10T10:00:30Z')
  t.match(await sync.runOnce(), { outcome: 'succeeded', run: { trigger: 'schedule', missedSlots: undefined, attempt: 1, slot: new Date('2025-03-10T10:00:00Z') } })
})

for (const [what, begin] of [
  ['a manual run that fails', async ({ app }: Host) => { await app.triggerSync().then(async answer => await (answer.started && answer.finished)) }],
  ['a backfill', async ({ sync }: Host) => { await sync.backfill({ since: new Date('2025-01-01'), until: new Date('2025-01-02') }).then(async answer => await (answer.started && answer.finished)) }]
] as const) {
  t.test(`with firstRun: 'wait' ${what} before the first look leaves that to the next slot`, async t => {
    const stage = await setStage(t, cluster)
    const triggers: string[] = []
    const host = await stage.host({
      firstRun: 'wait',
      sync: async run => {
        triggers.push(run.trigger)
        if (run.trigger === 'manual') throw new Error('not yet')
      }
    })
    await begin(host)
    t.match(await host.sync.runOnce(), { outcome: 'not-due', reason: 'served' })
    t.match(await host.sync.status(), { due: false, hold: 'served', behindSlots: 0 })
    t.equal(triggers.length, 1)
    await stage.clock.at('2025-03-10T11:00:00Z')
    t.match(await host.sync.runOnce(), { outcome: 'succeeded', run: { trigger: 'schedule' } })
  })
}

t.test('a first install that should wait runs from the next slot on', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({ firstRun: 'wait' })
  await stage.clock.at('2025-03-10T10:40:00Z')
  t.match(await sync.runOnce(), { outcome: 'not-due', reason: 'first-run' })
  t.match(await sync.runOnce(), { outcome: 'not-due', reason: 'served' })
  await stage.clock.at('2025-03-10T11:00:00Z')
  t.match(await sync.runOnce(), { outcome: 'succeeded', run: { trigger: 'schedule', since: null } })
})

t.test('a first install that should wait runs at once when it is asked to', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({ firstRun: 'wait' })
  t.match(await sync.runOnce({ force: true }), { outcome: 'succeeded', run: { trigger: 'manual' } })
})

t.test('missed slots are caught up by one run over the whole gap', async t => {
  const stage = await setStage(t, cluster)
  const runs: unknown[] = []
  const { sync } = await stage.host({ overlap: 0, sync: async run => { runs.push([run.trigger, run.missedSlots, run.since?.toISOString(), run.slot?.toISOString()]) } })
  await stage.clock.at('2025-03-10T10:00:00Z')
  await sync.runOnce()
  await stage.clock.at('2025-03-10T14:10:00Z')
  await sync.runOnce()
  t.strictSame(await sync.runOnce(), { outcome: 'not-due', reason: 'served', run: null })
  t.strictSame(runs[1], ['catch-up', 3, '2025-03-10T10:00:00.000Z', '2025-03-10T14:00:00.000Z'])
})

t.test('slots are missed by the length they had', async t => {
  const stage = await setStage(t, cluster)
  const hourly = await stage.host({ every: '1h' })
  await stage.clock.at('2025-03-10T10:00:00Z')
  await hourly.sync.runOnce()
  let missed
  const quarterly = await stage.host({ every: '15m', sync: async run => { missed = run.missedSlots } })
  await stage.clock.at('2025-03-10T11:30:00Z') // 11:00 and 11:15 nobody served
  await quarterly.sync.runOnce()
  t.equal(missed, 2)
})

t.test('with catchUp off a slot is due only at its beginning', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({ catchUp: 'skip' })
  await stage.clock.at('2025-03-10T10:05:00.001Z')
  t.match(await sync.runOnce(), { outcome: 'not-due', reason: 'late' })
  await stage.clock.at('2025-03-10T11:05:00Z')
  t.match(await sync.runOnce(), { outcome: 'succeeded' })
})

t.test('with catchUp off a slot that was attempted stays due', async t => {
  const stage = await setStage(t, cluster)
  let fails = true
  const { sync } = await stage.host({ catchUp: 'skip', sync: async () => { if (fails) throw new Error('no') } })
  await stage.clock.at('2025-03-10T10:00:00Z')
  await sync.runOnce()
  fails = false
  await stage.clock.at('2025-03-10T10:50:00Z')
  t.match(await sync.runOnce(), { outcome: 'succeeded', run: { trigger: 'retry', attempt: 2 } })
})

t.test('with catchUp off a longer jitter makes a slot due for longer', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({ catchUp: 'skip', jitter: '10m' })
  await stage.clock.at('2025-03-10T10:15:00Z')
  t.match(await sync.runOnce(), { outcome: 'succeeded' })
})

for (const catchUp of ['once', 'skip'] as const) {
  t.test(`a slot of an odd length is served with catchUp '${catchUp}'`, async t => {
    const stage = await setStage(t, cluster)
    const { sync } = await stage.host({ every: 1_001, catchUp })
    await stage.clock.at(new Date(1_001 * 1_750_000_000))
    t.match(await sync.runOnce(), { outcome: 'succeeded', run: { trigger: 'schedule' } })
  })
}

t.test('a first attempt within two minutes of its slot is scheduled, a later one catches up', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host()
  const triggers: unknown[] = []
  for (const time of ['10:02:00', '11:02:00.001', '12:00:00']) {
    await stage.clock.at(`2025-03-10T${time}Z`)
    triggers.push((await sync.runOnce()).run!.trigger)
  }
  t.strictSame(triggers, ['schedule', 'catch-up', 'schedule'])
})

t.test('a run by hand is called manual and serves its slot', async t => {
  const stage = await setStage(t, cluster)
  const { app, sync } = await stage.host()
  await stage.clock.at('2025-03-10T10:30:00Z')
  const answer = await app.triggerSync()
  t.match(answer.started && await answer.finished, { trigger: 'manual', attempt: 1, slot: new Date('2025-03-10T10:00:00Z'), state: 'succeeded' })
  t.match(await sync.runOnce(), { outcome: 'not-due', reason: 'served' })
})

t.test('parsers that the host has bent change no window', async t => {
  const stage = await setStage(t, cluster)
  const bent = (): never => { throw new Error('a parser of the host') }
  const types = { getTypeParser: () => bent } as any
  const { sync } = await stage.host({ overlap: 0 }, { types })
  await stage.clock.at('2025-03-10T10:00:00Z')
  await sync.runOnce()
  await stage.clock.at('2025-03-10T11:00:00Z')
  t.match(await sync.runOnce(), { outcome: 'succeeded', run: { since: new Date('2025-03-10T10:00:00Z'), until: new Date('2025-03-10T11:00:00Z') } })
})
