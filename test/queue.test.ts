import t from 'tap'
import { createQueue } from '../lib/queue.js'

const turn = async (): Promise<void> => await new Promise(resolve => setImmediate(resolve))

/** Work that ends when it is told to. */
function gate (): { work: () => Promise<string>, open: (value?: string) => void, fail: () => void, begun: boolean } {
  let open = (_value?: string): void => {}
  let fail = (): void => {}
  const promise = new Promise<string>((resolve, reject) => {
    open = value => resolve(value ?? 'done')
    fail = () => reject(Object.assign(new Error('failed'), { code: 'FAILED' }))
  })
  const self = { begun: false, open, fail, work: async () => { self.begun = true; return await promise } }
  return self
}

t.test('work begins in the order it came, one at a time', async t => {
  const queue = createQueue()
  const events: string[] = []
  await Promise.all(Array.from({ length: 20 }, async (_, i) => await queue.turn(async () => {
    events.push(`begin ${i}`)
    await turn()
    events.push(`end ${i}`)
  })))
  t.strictSame(events, Array.from({ length: 20 }, (_, i) => [`begin ${i}`, `end ${i}`]).flat())
})

t.test('a turn gives what its work gave', async t => {
  t.equal(await createQueue().turn(async () => 7), 7)
})

t.test('work that fails fails alone', async t => {
  const queue = createQueue()
  const first = gate()
  const second = gate()
  const failing = t.rejects(queue.turn(first.work), { code: 'FAILED' })
  const passing = queue.turn(second.work)
  first.fail()
  await failing
  second.open('second')
  t.equal(await passing, 'second')
})

t.test('work that throws at once fails its turn', async t => {
  await t.rejects(createQueue().turn(() => { throw Object.assign(new Error('sync'), { code: 'SYNC' }) }), { code: 'SYNC' })
})

t.test('it is busy from the call until the last turn is over', async t => {
  const queue = createQueue()
  t.notOk(queue.busy())
  const first = gate()
  const second = gate()
  const turns = [queue.turn(first.work), queue.turn(second.work)]
  t.ok(queue.busy())
  first.open()
  await turns[0]
  t.ok(queue.busy())
  second.open()
  await turns[1]
  t.notOk(queue.busy())
})

t.test('idle waits for what is under way and for what that adds', async t => {
  const queue = createQueue()
  const first = gate()
  const added = gate()
  queue.turn(async () => {
    await first.work()
    queue.turn(added.work)
  })
  let idle = false
  const waiting = queue.idle().then(() => { idle = true })
  first.open()
  await turn()
  t.ok(added.begun)
  t.notOk(idle)
  added.open()
  await waiting
  t.notOk(queue.busy())
})

t.test('idle does not mind failures', async t => {
  const queue = createQueue()
  const failing = gate()
  const failed = t.rejects(queue.turn(failing.work), { code: 'FAILED' })
  failing.fail()
  await queue.idle()
  await failed
})

t.test('an empty queue is idle', async t => {
  await t.resolves(createQueue().idle())
})
