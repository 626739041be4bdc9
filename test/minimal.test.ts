import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { freePort, startPostgres } from './helpers/postgres.js'
import { until } from './helpers/until.js'

t.test('the first example of the README starts, saves what it fetches, answers from the database and ends when told', async t => {
  const cluster = await startPostgres(t)
  await cluster.query('create table orders (external_id text primary key, status text, updated_at timestamptz)')
  const port = await freePort()
  const app = spawn(process.execPath, ['--import', 'tsx', fileURLToPath(new URL('../examples/minimal/app.ts', import.meta.url))], {
    stdio: 'ignore',
    env: { ...process.env, NODE_OPTIONS: '', DATABASE_URL: cluster.url(), AUTO_SYNC: 'true', ORDER_API_KEY: 'a key', PORT: String(port) }
  })
  const exited = once(app, 'exit')
  t.teardown(() => app.kill('SIGKILL'))
  const at = `http://127.0.0.1:${port}/orders`
  await until(async () => await fetch(at).then(({ ok }) => ok, () => false))

  const refresh = await fetch(`${at}/refresh`, { method: 'POST' })
  t.strictSame([refresh.status, await refresh.json()], [202, { started: true }])
  await until(async () => (await cluster.query("select from hourly_sync.run where state = 'succeeded'")).rowCount === 1)
  const orders = await (await fetch(at)).json() as Array<{ external_id: string, status: string }>
  t.strictSame(orders.map(order => order.external_id), ['order-1-1', 'order-1-2', 'order-2-1', 'order-2-2', 'order-3-1', 'order-3-2'])
  t.ok(orders.every(({ status }) => status === 'paid'))

  app.kill('SIGTERM')
  t.strictSame(await exited, [0, null])
})
