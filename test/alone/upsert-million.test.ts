import { fork } from 'node:child_process'
import { once } from 'node:events'
import t from 'tap'
import { startPostgres } from '../helpers/postgres.js'

const timeout = 1_800_000
t.setTimeout(timeout)

t.test('a million rows through an async generator, without growth', { timeout }, async t => {
  const count = 1_000_000
  const cluster = await startPostgres(t)
  const env: NodeJS.ProcessEnv = { ...process.env, NODE_OPTIONS: '' }
  delete env.NODE_V8_COVERAGE // it would be measured as well
  const child = fork(new URL('../fixtures/upsert-million.ts', import.meta.url), [cluster.url(), String(count)], { execArgv: ['--import', 'tsx'], env })
  t.teardown(() => child.kill())
  const [{ inserted, unchanged, before, growth }] = await once(child, 'message')
  t.same(inserted, { inserted: count - 50_000, updated: 0, unchanged: 0, stale: 0 })
  t.same(unchanged, { inserted: 0, updated: 0, unchanged: count, stale: 0 })
  t.comment(`${before.toFixed(0)} MiB at first, at most ${growth.toFixed(0)} MiB more`)
  t.ok(growth <= 50)
})
