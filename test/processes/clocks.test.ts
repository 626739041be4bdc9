import t from 'tap'
import { startPostgres } from '../helpers/postgres.js'
import { directly, race } from '../helpers/race.js'
import { clean } from '../helpers/server.js'
import { compareZones } from '../helpers/zones.js'

const cluster = await startPostgres(t)
const reach = directly(cluster)

t.test('slots of 2 s', async t => {
  t.jobs = 4
  for (const [title, clocks] of [
    ['a clock two minutes ahead, next to a right one', [120_000, 0]],
    ['a clock two minutes behind, next to a right one', [-120_000, 0]],
    ['a clock two minutes ahead, alone', [120_000]],
    ['a clock two minutes behind, alone', [-120_000]]
  ] as const) {
    t.test(`${title}: neither runs twice nor skips`, { buffered: true }, async t => {
      const { rows, begins, exits } = await race(t, cluster, reach, { clocks: [...clocks], work: 0, slots: 6 })
      t.strictSame(rows.map(({ slot }) => slot), begins)
      for (const exit of exits) t.strictSame(exit, clean)
    })
  }
})

t.test('another TZ of the process changes no slot', async t => {
  await compareZones(t, cluster, reach, ['UTC', 'Asia/Kolkata', 'America/New_York', 'Australia/Lord_Howe', 'Asia/Kathmandu'])
})
