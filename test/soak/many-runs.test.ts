import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import t from 'tap'
import { systemClock, type Clock } from '../../lib/clock.js'
import { setStage } from '../helpers/host.js'
import { startPostgres } from '../helpers/postgres.js'
import { until } from '../helpers/until.js'

const RUNS = 1_000
const SETTLED = 100
const MIB = 2 ** 20

setFlagsFromString('--expose-gc')
const collect = runInNewContext('gc') as () => void
const cluster = await startPostgres(t)

/** The clock of the process, which knows how many timers are armed: those that keep no process alive are in no list of Node's. */
function countingClock (): Clock & { armed: () => number } {
  const armed = new Set<object>()
  return {
    ...systemClock,
    armed: () => armed.size,
    after (ms, fn, held) {
      const timer = {}
      armed.add(timer)
      const cancel = systemClock.after(ms, () => {
        armed.delete(timer)
        fn()
      }, held)
      return () => {
        armed.delete(timer)
        cancel()
      }
    }
  }
}

function counted (names: string[]): Record<string, number> {
  return names.reduce<Record<string, number>>((all, name) => ({ ...all, [name]: (all[name] ?? 0) + 1 }), {})
}

const listeners = (emitter: NodeJS.EventEmitter): Record<string, number> =>
  Object.fromEntries(emitter.eventNames().map(name => [String(name), emitter.listenerCount(name)]))

t.test(`${RUNS} runs in one process leave it as it was after ${SETTLED}`, async t => {
  const stage = await setStage(t, cluster)
  const clock = countingClock()
  const { sync, pool, log } = stage.bare({
    sync: async run => {
      await run.query('select 1')
      await run.transaction(async tx => { await tx.query('select 2') })
      run.progress(1, 1)
      return { cursor: { page: 1 }, stats: { saved: 1 } }
    }
  }, clock)

  const measured = async (): Promise<{ heap: number, rest: object }> => {
    const sessions = async (): Promise<number> => (await stage.query('select count(*)::int as count from pg_stat_activity where datname = current_database()')).rows[0].count
    let count = 0
    await until(async () => { // the server is a moment later
      const before = count
      count = await sessions()
      return count === before && pool.totalCount === pool.idleCount
    }, 'the sessions of the runs are gone')
    await sync.status() // leaves one client in the pool
    collect()
    return {
      heap: process.memoryUsage().heapUsed,
      rest: {
        sessions: await sessions(),
        pool: { listeners: listeners(pool), clients: pool.totalCount },
        clients: ((pool as any)._clients as NodeJS.EventEmitter[]).map(listeners),
        process: listeners(process),
        timers: clock.armed(),
        resources: counted(process.getActiveResourcesInfo().filter(name => name !== 'Immediate'))
      }
    }
  }

  let early: Awaited<ReturnType<typeof measured>> | undefined
  for (let run = 1; run <= RUNS; run++) {
    const { outcome } = await sync.runOnce({ force: true })
    if (outcome !== 'succeeded') t.fail(`run ${run} ${outcome}`)
    log.lines.length = 0 // else the test is what grows
    if (run === SETTLED) early = await measured()
  }
  const late = await measured()
  t.strictSame(late.rest, early!.rest)
  t.match(late.rest, { timers: 0 })
  const grown = (late.heap - early!.heap) / MIB
  t.comment(`the heap has grown by ${grown.toFixed(2)} MiB`)
  t.ok(grown <= 5, `the heap has grown by ${grown} MiB`)
  t.equal((await stage.history()).length, RUNS)
})
