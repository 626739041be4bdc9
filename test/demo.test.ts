import t from 'tap'
import { readArguments } from '../examples/orders/demo/arguments.js'
import { differences } from '../examples/orders/demo/differences.js'
import { type LogLine, logLineIn, openNarrator, timeOfDay } from '../examples/orders/demo/narrator.js'
import type { Order } from '../examples/orders/order.js'

t.test('the command line is understood, or refused with a reason', async t => {
  t.strictSame(readArguments([]), { help: false, slots: null })
  t.strictSame(readArguments(['--slots', '3']), { help: false, slots: 3 })
  t.strictSame(readArguments(['--slots=100']), { help: false, slots: 100 })
  t.strictSame(readArguments(['-h']), { help: true, slots: null })
  for (const slots of ['0', '101', '-1', '1.5', 'three', '', ' 3', '1e1']) {
    t.throws(() => readArguments([`--slots=${slots}`]), { message: `--slots should be a whole number from 1 to 100, instead got '${slots}'` })
  }
  for (const argv of [['--slots'], ['--slot', '3'], ['3'], ['--slots', '--help']]) t.throws(() => readArguments(argv), argv.join(' '))
})

const order: Order = {
  external_id: 'ORD-1',
  customer: 'Ada',
  status: 'open',
  total: '1.10',
  currency: 'EUR',
  item_count: 1,
  paid: false,
  note: null,
  tags: ['a', 'b'],
  created_at: '2026-03-01T10:00:00.000Z',
  updated_at: '2026-03-01T10:00:00.000Z'
}

t.test('what is the same, in whatever order, does not differ', async t => {
  const other = { ...order, external_id: 'ORD-2' }
  t.strictSame(differences([order, other], [{ ...other }, { ...order, tags: ['a', 'b'] }]), [])
})

t.test('every field counts', async t => {
  const others: Partial<Order> = {
    customer: 'ada',
    status: 'paid',
    total: '1.1',
    currency: 'USD',
    item_count: 2,
    paid: true,
    note: '',
    tags: ['b', 'a'],
    created_at: '2026-03-01T10:00:00.001Z',
    updated_at: '2026-03-01T10:00:00.001Z'
  }
  for (const [field, value] of Object.entries(others)) {
    t.strictSame(differences([order], [{ ...order, [field]: value }]),
      [`ORD-1 differs: ${field} ${JSON.stringify(value)} instead of ${JSON.stringify(order[field as keyof Order])}`])
  }
})

t.test('an order that is missing, and one that is too many, differ', async t => {
  t.strictSame(differences([order], []), ['ORD-1 is missing'])
  t.strictSame(differences([], [order]), ['ORD-1 is unknown to the service'])
})

const at = Date.parse('2026-03-01T10:00:00.000Z')
const clock = timeOfDay(at)
const line = (msg: string, fields: Partial<LogLine> = {}): LogLine => ({ level: 20, time: at, msg, sync: 'order-sync', slot: new Date(at).toISOString(), ...fields })

t.test('a log line is one of pino, anything else is not', async t => {
  t.match(logLineIn('{"level":30,"time":1,"msg":"sync started"}'), { level: 30, msg: 'sync started' })
  for (const text of ['', 'null', '3', '{"level":30}', 'Error: oh', '{"level":30,"msg":"no time"}']) t.equal(logLineIn(text), undefined, text)
})

t.test('a run is told from its start to its end, with who did it', async t => {
  const { tell, whoRan } = openNarrator()
  t.equal(tell('server A', line('sync started', { run: 'r1', trigger: 'catch-up' })), `${clock}  server A  RUNS slot ${clock}, trigger catch-up: it holds the lock`)
  t.equal(tell('server A', line('fetching orders', { run: 'r1', since: null })), `${clock}  server A    asks for the orders changed at any time: it is the first run`)
  t.equal(tell('server A', line('fetching orders', { run: 'r1', since: new Date(at).toISOString() })), `${clock}  server A    asks for the orders changed since ${clock}`)
  t.equal(tell('server A', line('sync succeeded', { run: 'r1', duration: 2540, stats: { orders: 12 } })), `${clock}  server A    done: 12 orders saved in 2.5 s`)
  t.equal(tell('server A', line('sync succeeded', { run: 'r1' })), `${clock}  server A    done: its orders saved`)
  t.equal(whoRan('r1'), 'server A')
  t.equal(whoRan('r2'), undefined)
})

t.test('a run that did not succeed is told with its reason', async t => {
  const { tell } = openNarrator()
  for (const state of ['failed', 'timed-out', 'interrupted', 'lock-lost']) {
    t.equal(tell('server A', line(`sync ${state}`, { level: 50, err: { message: 'oh' } })),
      `${clock}  server A    sync ${state} (oh); the next run asks for the same window again`)
  }
})

t.test('who skips is told with the reason', async t => {
  const { tell } = openNarrator()
  const skips = (name: string, msg: string, fields: Partial<LogLine>): string | undefined => tell(name, line(msg, fields))?.slice(clock.length + 2)
  t.equal(skips('server B', 'sync running elsewhere', { pid: 2 }), `server B  skips slot ${clock}: the other one holds the lock`)
  tell('server A', line('sync started', { pid: 1 }))
  t.equal(skips('server B', 'sync running elsewhere', { pid: 2, holder: 'host:1' }), `server B  skips slot ${clock}: server A holds the lock`)
  t.equal(skips('server A', 'sync running elsewhere', { pid: 1, holder: 'host:1' }), `server A  skips slot ${clock}: its own last run still holds the lock`)
  t.equal(skips('server B', 'sync not due', { reason: 'served' }), `server B  skips slot ${clock}: it is served already`)
  t.equal(skips('server B', 'sync not due', { reason: 'waiting', slot: undefined }), 'server B  skips this slot: it is not due (waiting)')
})

t.test('what is not about the sync is told only when it is a warning', async t => {
  const { tell } = openNarrator()
  t.equal(tell('server A', line('incoming request', { sync: undefined, level: 30 })), undefined)
  t.equal(tell('server A', line('heartbeat')), undefined)
  t.equal(tell('server A', line('idle database client lost', { sync: undefined, level: 40, err: { message: 'gone' } })), `${clock}  server A  says: idle database client lost (gone)`)
  t.equal(tell('server A', line('sync refused', { level: 50 })), `${clock}  server A  says: sync refused`)
})
