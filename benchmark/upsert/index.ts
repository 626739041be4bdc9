/**
 * Upsert beside the ways it is usually written, on one database, taking turns.
 *
 *   npx tsx benchmark/upsert/index.ts [--rows 100000] [--only new,unchanged] [--pages] [--batches] [--fsync on]
 *
 * `--pages`: pages of 50, 200 and 1,000 rows, a call for each. `--batches`: sizes of batch. By default commits
 * cost next to nothing, which favours what commits often (row by row) and shows the work itself; with `--fsync on` each waits for the disk.
 *
 * Rows/s and ratios come from one process in which all take turns (paired.ts); WAL, dead tuples, memory and
 * event-loop delay from a process for each (measure.ts), upsert's delay from the
 * quietest of three, beside that of an idle loop right after.
 */
import { fork } from 'node:child_process'
import { cpus, loadavg } from 'node:os'
import { parseArgs } from 'node:util'
import { startPostgres } from '../../test/helpers/postgres.js'
import { cases, type Case } from './orders.js'
import { rivals } from './rivals.js'
import type { Job, Measurement } from './measure.js'
import type { Paired, PairedJob } from './paired.js'

const { values: flags } = parseArgs({
  options: {
    rows: { type: 'string', default: '100000' },
    only: { type: 'string' },
    pages: { type: 'boolean', default: false },
    batches: { type: 'boolean', default: false },
    fsync: { type: 'string', default: 'off' }
  }
})
const count = Number(flags.rows)
const which = cases.filter(name => flags.only === undefined || flags.only.split(',').includes(name))
const teardowns: Array<() => unknown> = []
const cluster = await startPostgres({ teardown: fn => { teardowns.push(fn) } }, {
  fsync: flags.fsync, autovacuum: 'off', shared_buffers: '256MB', max_wal_size: '8GB', checkpoint_timeout: '1h'
})

function run<Result> (file: string, job: Job | PairedJob): Promise<Result> {
  return new Promise((resolve, reject) => {
    const child = fork(new URL(file, import.meta.url), { execArgv: ['--import', 'tsx', '--expose-gc'] })
    child.once('error', reject)
    child.once('message', ({ result, error }: { result: Result, error?: string }) => {
      child.once('exit', () => { error === undefined ? resolve(result) : reject(new Error(error)) })
    })
    child.send(job)
  })
}

const median = (numbers: number[]): number => [...numbers].sort((a, b) => a - b)[numbers.length >> 1] as number

interface Contender { name: string, rival: string, page: number }

async function compare (contenders: Contender[], name: Case, rows: number, chunk: number): Promise<void> {
  const sample = Math.min(chunk, 50)
  const times = await run<Paired>('paired.ts', { url: cluster.url(), case: name, count: rows, chunk, sample, contenders })
  const first = times[(contenders[0] as Contender).name] as number[]
  for (const [nth, { name: contender, rival, page }] of contenders.entries()) {
    const own = times[contender] as number[]
    const ratio = median(own.map((time, at) => time / (first[at] as number)))
    const line = `| ${name} | ${contender} | ${Math.round(1e6 / median(own)).toLocaleString('en')} | ${ratio.toFixed(2)} |`
    if (flags.pages || flags.batches) {
      print(line)
      continue
    }
    const alone: Measurement[] = []
    const slow = rivals[rival]?.slow === true
    while (alone.length < (nth === 0 ? 3 : 1)) {
      alone.push(await run<Measurement>('measure.ts', { url: cluster.url(), rival, case: name, count: rows, sample: slow ? Math.min(rows, 500) : rows, page }))
    }
    const of = (key: keyof Measurement): number => median(alone.map(one => one[key]))
    print(`${line} ${of('walPerRow').toFixed(1)} | ${of('deadPerRow').toFixed(2)} | ${of('rss').toFixed(0)} | ${Math.min(...alone.map(({ busy }) => busy)).toFixed(1)} | ${Math.min(...alone.map(({ delay }) => delay)).toFixed(1)} (${Math.min(...alone.map(({ idle }) => idle)).toFixed(1)}) |`)
  }
}

const print = (line: string): void => { console.log(line) }
const head = (title: string, first: string): void => {
  print(`\n## ${title}\n`)
  const more = flags.pages || flags.batches ? '' : ' WAL bytes a row | dead tuples a row | RSS growth MiB | longest stretch on the CPU ms | longest event-loop delay ms (of an idle loop) |'
  print(`| case | way | rows/s | time, as a multiple of ${first}'s |${more}`)
  print(`|---|---|---:|---:|${flags.pages || flags.batches ? '' : '---:|---:|---:|---:|---:|'}`)
}

try {
  const version = (await cluster.query("select current_setting('server_version') as v")).rows[0].v as string
  print(`\`npx tsx benchmark/upsert/index.ts ${process.argv.slice(2).join(' ')}\`\n`)
  print(`PostgreSQL ${version} with fsync ${flags.fsync}, Node ${process.version}, ${cpus().length} cores, load average ${(loadavg()[0] as number).toFixed(1)} at the start.`)
  const ways = Object.entries(rivals).filter(([, { alone }]) => alone === undefined)
  if (flags.batches) {
    for (const call of [1000, 10_000]) {
      head(`Size of a batch, ${call.toLocaleString('en')} rows in a call`, 'batch of 1000')
      const sizes = (call === 1000 ? [1000, 500, 250, 200, 100] : [1000, 100, 250, 500, 2000, 5000])
      const contenders = sizes.map(size => ({ name: `batch of ${size}`, rival: `batch of ${size}`, page: 0 }))
      for (const name of which) await compare(contenders, name, count, call)
    }
  } else if (flags.pages) {
    for (const page of [50, 200, 1000]) {
      head(`Pages of ${page.toLocaleString('en')} rows, a call for each`, 'upsert')
      const contenders = ways.filter(([, { whole }]) => whole === undefined).map(([rival]) => ({ name: rival, rival, page }))
      for (const name of which) await compare(contenders, name, Math.min(count, page * 200), page)
    }
  } else {
    const chunk = Math.max(1000, Math.min(5000, Math.floor(count / 10)))
    head(`${count.toLocaleString('en')} rows, ${chunk.toLocaleString('en')} in a call`, 'upsert')
    const contenders = ways.map(([rival]) => ({ name: rival, rival, page: rival === 'upsert' ? 0 : 1000 }))
    for (const name of which) await compare(contenders, name, count, chunk)
  }
} finally {
  for (const fn of teardowns) await fn()
}
