import t from 'tap'
import { startPostgres } from '../helpers/postgres.js'
import { directly, races } from '../helpers/race.js'
import { clean } from '../helpers/server.js'
import { compareZones } from '../helpers/zones.js'

const cluster = await startPostgres(t)
const reach = directly(cluster)

const titles = {
  'a clock two minutes ahead, next to a right one': [120_000, 0],
  'a clock two minutes behind, next to a right one': [-120_000, 0],
  'a clock two minutes ahead, alone': [120_000],
  'a clock two minutes behind, alone': [-120_000]
}
const raced = await races(t, cluster, reach, Object.values(titles).map(clocks => ({ clocks, work: 0, slots: 6 })))

for (const [index, title] of Object.keys(titles).entries()) {
  t.test(`${title}: neither runs twice nor skips`, async t => {
    const { rows, begins, exits } = raced[index]!
    t.strictSame(rows.map(({ slot }) => slot), begins)
    for (const exit of exits) t.strictSame(exit, clean)
  })
}

t.test('another TZ of the process changes no slot', async t => {
  await compareZones(t, cluster, reach, ['UTC', 'Asia/Kolkata', 'America/New_York', 'Australia/Lord_Howe', 'Asia/Kathmandu'])
})
