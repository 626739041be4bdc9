import t from 'tap'
import { startPostgres } from './helpers/postgres.js'
import { ways } from './helpers/ways.js'

const HOUR = 3_600_000
const MINUTE = 60_000
const cluster = await startPostgres(t)
const { both } = await ways(t, cluster)

for (const zone of ['Asia/Kolkata', 'America/New_York', 'Australia/Lord_Howe']) {
  both(`slots are the same where the database lives in ${zone}`, async (t, set) => {
    const database = await cluster.database()
    await cluster.query(`alter database ${database} set timezone to '${zone}'`)
    const stage = await set(database)
    const { sync, pool } = await stage.host({ every: '1h', offset: '30m', overlap: 0 })
    const { rows } = await pool.query('show timezone')
    t.equal(rows[0].TimeZone, zone)
    const slots: unknown[] = []
    // an ordinary hour, and the hours around the changes of New York (2025-03-09, 2025-11-02) and Lord Howe (2025-04-05, 2025-10-04)
    const times = ['2025-03-09T06:29:59.999Z', '2025-03-09T06:30:00Z', '2025-03-09T07:30:00Z', '2025-04-05T14:59:00Z', '2025-04-05T15:30:00Z',
      '2025-10-04T15:29:00Z', '2025-10-04T15:45:00Z', '2025-11-02T05:30:00Z', '2025-11-02T06:30:00Z']
    for (const time of times) {
      await stage.clock.at(time)
      const { run } = await sync.runOnce()
      slots.push([run!.slot!.toISOString(), run!.until.toISOString()])
    }
    t.strictSame(slots, times.map(time => [
      new Date(Math.floor((Date.parse(time) - HOUR / 2) / HOUR) * HOUR + HOUR / 2).toISOString(), new Date(time).toISOString()
    ]))
  })
}

both("the server's clock set back two hours", async (t, set) => {
  const stage = await set()
  const windows: Array<{ slot: number, since: number, until: number }> = []
  const { sync } = await stage.host({
    overlap: '10m', sync: async run => { windows.push({ slot: run.slot!.getTime(), since: run.since?.getTime() ?? 0, until: run.until.getTime() }) }
  })
  await stage.clock.at('2025-03-10T12:05:00Z')
  await sync.runOnce()
  const before = (await stage.state()).watermark
  const watermarks = [before]
  const begin = Date.parse('2025-03-10T10:06:00Z')
  // half an hour at a time, through the repeated hours and out of them
  for (let now = begin; now <= begin + 4 * HOUR; now += HOUR / 2) {
    await stage.clock.at(new Date(now))
    for (let look = 0; look < 3; look++) await sync.runOnce()
    watermarks.push((await stage.state()).watermark)
  }
  t.strictSame(windows.map(({ slot }) => new Date(slot).toISOString().slice(11, 16)), ['12:00', '10:00', '11:00', '12:00', '13:00', '14:00'],
    'makes one run a slot and no more')
  t.ok(windows.every(({ since, until }) => since <= until), 'no window ends before it starts')
  t.ok(watermarks.every((mark, index) => index === 0 || mark >= watermarks[index - 1]), 'the watermark never moves back')
  t.ok(windows[1]!.since <= begin - 10 * MINUTE, 'what changes by the clock that was set back is in the window')
})

both("the server's clock set forward two hours", async (t, set) => {
  const stage = await set()
  const { sync } = await stage.host({ overlap: '10m' })
  await stage.clock.at('2025-03-10T12:05:00Z')
  await sync.runOnce()
  await stage.clock.at('2025-03-10T14:05:00Z')
  const { run } = await sync.runOnce()
  t.match(run, { trigger: 'catch-up', since: new Date('2025-03-10T11:55:00Z'), until: new Date('2025-03-10T14:05:00Z') }, 'makes one run over the gap')
  t.match(await sync.runOnce(), { outcome: 'not-due' }, 'and no more')
})

both("what changes while the server's clock is ahead for a moment, and in the hours until it has caught up, is fetched", async (t, set) => {
  const stage = await set()
  const at = (time: string): number => Date.parse(`2025-03-10T${time}:00Z`)
  const runs: Array<{ truly: number, since: number, until: number }> = []
  let truly = 0 // the time by upstream's clock, which is right throughout
  const { sync } = await stage.host({
    overlap: '10m', sync: async run => { runs.push({ truly, since: run.since?.getTime() ?? 0, until: run.until.getTime() }) }
  })
  for (const [time, shown] of [['10:00', '10:00'], ['10:10', '13:10'], ['11:00', '11:00'], ['12:00', '12:00'], ['13:00', '13:00'], ['14:00', '14:00'], ['15:00', '15:00']] as const) {
    truly = at(time)
    await stage.clock.at(new Date(at(shown)))
    await sync.runOnce({ force: true })
  }
  const lost = []
  for (let changed = at('09:00'); changed < at('14:55'); changed += 5 * MINUTE) {
    if (!runs.some(({ truly, since, until }) => truly > changed && since <= changed && changed < until)) lost.push(new Date(changed).toISOString().slice(11, 16))
  }
  t.strictSame(lost, [])
})
