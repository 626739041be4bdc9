import pg from 'pg'
import { createTable, rowsOf, type Case } from './orders.js'
import { rivals, type Save } from './rivals.js'

export interface PairedJob {
  url: string
  case: Case
  count: number
  /** rows that each contender saves before the next has its turn */
  chunk: number
  /** rows of a chunk that are saved by what is too slow for all */
  sample: number
  contenders: Array<{ name: string, rival: string, page: number }>
}

/** Microseconds a row, one entry for each chunk; the first contender is what the others are compared with. */
export type Paired = Record<string, number[]>

/**
 * All contenders in one process, taking turns chunk by chunk, each with a table of its own: whatever else
 * the machine does meets all of them alike, so that the ratio of two neighbours can be trusted where rows/s cannot.
 */
async function paired ({ url, case: which, count, chunk, sample, contenders }: PairedJob): Promise<Paired> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  const save = (rival: string): Save => (rivals[rival] as typeof rivals[string]).save
  const tableOf = new Map(contenders.map(({ name }, nth) => [name, `paired_${nth}`]))
  for (const { name, rival, page } of contenders) {
    const table = tableOf.get(name) as string
    await client.query(`drop table if exists ${table}, warm`)
    await client.query(createTable('warm'))
    await save(rival)(client, 'warm', rowsOf('new', 500), page === 0 ? 0 : Math.min(page, 100))
    await client.query('drop table warm')
    await client.query(createTable(table))
    if (which !== 'new') {
      await save('copy and merge')(client, table, rowsOf('new', count), 0)
      await client.query(`vacuum (analyze) ${table}`)
    }
  }
  const rows = rowsOf(which, count)
  const times: Paired = Object.fromEntries(contenders.map(({ name }) => [name, []]))
  for (let at = 0; at < rows.length; at += chunk) {
    // the order rotates: nobody always follows the same neighbour
    const first = (at / chunk) % contenders.length
    for (const { name, rival, page } of [...contenders.slice(first), ...contenders.slice(0, first)]) {
      const slow = rivals[rival]?.slow === true
      const part = rows.slice(at, at + (slow ? Math.min(sample, chunk) : chunk))
      const start = performance.now()
      await save(rival)(client, tableOf.get(name) as string, part, page)
      times[name]?.push((performance.now() - start) * 1000 / part.length)
    }
  }
  await client.query(`drop table ${[...tableOf.values()].join(', ')}`)
  await client.end()
  return times
}

process.once('message', (job: PairedJob) => {
  paired(job).then(
    result => { process.send?.({ result }, () => process.disconnect()) },
    error => { process.send?.({ error: String(error?.stack ?? error) }, () => process.disconnect()) })
})
