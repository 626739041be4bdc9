import { readFileSync } from 'node:fs'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import pg from 'pg'
import { cases, createTable, rowsOf, type Case } from './orders.js'
import { rivals } from './rivals.js'

/** One case of one rival, in a process of its own: peak memory and event-loop delay belong to nobody else. */
export interface Measurement {
  rowsPerSecond: number
  walPerRow: number
  deadPerRow: number
  /** MiB over what the process had before, rows included */
  rss: number
  /** longest, milliseconds */
  delay: number
  /** the same of an idle loop for as long: what the machine adds by itself */
  idle: number
  /** longest CPU time of the main thread between two looks of a 1 ms timer, milliseconds: the delay on a machine that has nothing else to do */
  busy: number
}

export interface Job { url: string, rival: string, case: Case, count: number, sample: number, page: number }

/** Milliseconds that this thread was on a CPU; the clock where the system does not tell. */
function cpuTime (): number {
  try {
    return Number(readFileSync(`/proc/self/task/${process.pid}/schedstat`, 'latin1').split(' ')[0]) / 1e6
  } catch {
    return performance.now()
  }
}

async function measure ({ url, rival, case: which, count, sample, page }: Job): Promise<Measurement> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  const { save } = rivals[rival] as typeof rivals[string]
  const number = async (text: string): Promise<number> => Number((await client.query<{ n: string }>(text)).rows[0]?.n)

  await client.query('drop table if exists orders')
  await client.query(createTable('orders'))
  if (which !== 'new') {
    await (rivals['copy and merge'] as typeof rivals[string]).save(client, 'orders', rowsOf('new', count), 0)
    await client.query('vacuum (analyze) orders')
  }
  // everything once on another table: code is compiled, plans and types are known to nobody yet
  await client.query('drop table if exists warm')
  await client.query(createTable('warm'))
  await save(client, 'warm', rowsOf('new', 500), 100)
  await client.query('drop table warm')
  await client.query('checkpoint')
  if (which !== 'new') await client.query('select count(*) from orders where status = $1', ['none']) // hint bits, read before

  const rows = rowsOf(which, count).slice(0, sample)
  globalThis.gc?.()
  const before = process.memoryUsage.rss()
  let peak = before
  let busy = 0
  let last = cpuTime()
  const watch = setInterval(() => {
    peak = Math.max(peak, process.memoryUsage.rss())
    const now = cpuTime()
    busy = Math.max(busy, now - last)
    last = now
  }, 1)
  const lsn = await number("select pg_current_wal_insert_lsn() - '0/0' as n")
  const dead = await number("select n_dead_tup as n from pg_stat_user_tables where relname = 'orders'")
  const delay = monitorEventLoopDelay({ resolution: 1 })
  await new Promise(resolve => setTimeout(resolve, 20))
  delay.enable()
  const start = performance.now()
  await save(client, 'orders', rows, page)
  const took = performance.now() - start
  delay.disable()
  clearInterval(watch)
  const idle = monitorEventLoopDelay({ resolution: 1 })
  idle.enable()
  await new Promise(resolve => setTimeout(resolve, Math.min(took, 3000)))
  idle.disable()
  const walPerRow = (await number("select pg_current_wal_insert_lsn() - '0/0' as n") - lsn) / sample
  await client.query('select pg_stat_force_next_flush()')
  const deadPerRow = (await number("select n_dead_tup as n from pg_stat_user_tables where relname = 'orders'") - dead) / sample
  await client.end()
  return {
    rowsPerSecond: sample / took * 1000,
    walPerRow,
    deadPerRow,
    rss: (Math.max(peak, process.memoryUsage.rss()) - before) / 2 ** 20,
    delay: delay.max / 1e6,
    idle: idle.max / 1e6,
    busy
  }
}

export { cases }

if (process.send !== undefined) {
  process.once('message', (job: Job) => {
    measure(job).then(
      result => { process.send?.({ result }, () => process.disconnect()) },
      error => { process.send?.({ error: String(error?.stack ?? error) }, () => process.disconnect()) })
  })
}
