import t from 'tap'
import { createFeed, type Feed, type Told } from '../../lib/http/feed.js'
import { createHub, type Listener } from '../../lib/http/hub.js'
import type { Seen } from '../../lib/history.js'
import { handClock } from '../helpers/hand-clock.js'

const holder = { backend: 7, applicationName: 'x', address: null, runId: 'r2', trigger: 'schedule', slot: null, startedAt: null, host: 'web', pid: 1 } as const
const quiet: Seen = { holder: null, progress: null, newest: [] }

/** A feed over what the looks see, one after the other. */
function feedOver (...looks: Seen[]): { feed: Feed, asked: string[][] } {
  const asked: string[][] = []
  const feed = createFeed({
    look: async () => looks.shift()!,
    ended: async ids => {
      asked.push(ids)
      return ids.map(id => ({ id }) as any)
    }
  })
  return { feed, asked }
}

const told = ({ event, data }: Told): string => `${event} ${(data as any).id ?? (data as any).runId}`

t.test('what had ended before the first look is not told', async t => {
  const { feed, asked } = feedOver({ ...quiet, newest: ['r1 succeeded'] }, { ...quiet, newest: ['r1 succeeded'] })
  t.strictSame(await feed.next(), [])
  t.strictSame(await feed.next(), [])
  t.strictSame(asked, [])
})

t.test('a run under way is told at the first look, with how far it is, and only what changes after that', async t => {
  const at = (done: number, total: number | null): Seen => ({ ...quiet, holder, progress: { done, total } })
  const { feed } = feedOver(at(3, null), at(3, null), at(4, null), at(4, 9), { ...quiet, holder }, quiet)
  const { backend, applicationName, address, ...data } = holder
  const started = { event: 'started', data }
  const progress = (done: number, total: number | null): object => ({ event: 'progress', data: { runId: 'r2', done, total } })
  t.strictSame(await feed.next(), [started, progress(3, null)], 'and nothing of its session')
  t.strictSame(feed.now(), [started, progress(3, null)])
  t.strictSame(await feed.next(), [])
  t.strictSame(await feed.next(), [progress(4, null)])
  t.strictSame(await feed.next(), [progress(4, 9)])
  t.strictSame(await feed.next(), [])
  t.strictSame(await feed.next(), [])
  t.strictSame(feed.now(), [], 'it has ended')
})

t.test('of a run that follows another at once both the end and the start are told, in this order', async t => {
  const next = { ...holder, runId: 'r3' }
  const { feed, asked } = feedOver({ ...quiet, holder, newest: ['r1 failed'] }, { ...quiet, holder: next, newest: ['r2 succeeded', 'r1 failed'] })
  await feed.next()
  t.strictSame((await feed.next()).map(told), ['ended r2', 'started r3'])
  t.strictSame(asked, [['r2']])
})

t.test('an end that turns out to be another is told again', async t => {
  const { feed } = feedOver({ ...quiet, newest: ['r1 vanished'] }, { ...quiet, newest: ['r1 lock-lost'] })
  await feed.next()
  t.strictSame((await feed.next()).map(told), ['ended r1'])
})

t.test('a lock that something else holds is no run', async t => {
  const { feed } = feedOver({ ...quiet, holder: { ...holder, runId: null } as any })
  t.strictSame(await feed.next(), [])
})

/** A listener that notes what it is told. */
function listener (): Listener & { told: string[], ended: boolean } {
  const one = { told: [] as string[], ended: false, write: (text: string) => { one.told.push(text) }, end: () => { one.ended = true } }
  return one
}

const run = { event: 'ended', data: { id: 'r1' } } as any as Told
const greeting = 'retry: 3000\n\n'
const written = 'event: ended\nid: r1\ndata: {"id":"r1"}\n\n'

/** A hub whose looks are counted, and come to what `next` says. */
function hubOver (next: () => Told[] | Promise<Told[]> = () => []): { hub: ReturnType<typeof createHub>, clock: ReturnType<typeof handClock>, pass: (ms: number) => Promise<void>, looks: () => number, feeds: () => number } {
  const clock = handClock()
  let looks = 0
  let feeds = 0
  const hub = createHub(() => {
    feeds++
    return {
      next: async () => {
        looks++
        return await next()
      },
      now: () => [run]
    }
  }, clock)
  /** A look takes some turns of the event loop, and telling a crowd some more. */
  const turns = async (): Promise<void> => { for (let turn = 0; turn < 5; turn++) await new Promise(resolve => setImmediate(resolve)) }
  async function pass (ms: number): Promise<void> {
    await turns()
    for (let passed = 0; passed < ms; passed += 500) {
      await clock.advance(500)
      await turns()
    }
  }
  return { hub, clock, pass, looks: () => looks, feeds: () => feeds }
}

t.test('without a listener nothing is looked at', async t => {
  const { looks, clock, pass } = hubOver()
  await pass(10_000)
  t.equal(looks(), 0)
  t.equal(clock.armed, 0)
})

t.test('with listeners, however many, there is a look a second, until the last is gone', async t => {
  const { hub, clock, looks, feeds, pass } = hubOver()
  const crowd = Array.from({ length: 200 }, listener)
  for (const one of crowd) hub.add(one, [])
  await pass(10_000)
  t.equal(looks(), 11)
  for (const one of crowd.slice(1)) hub.remove(one)
  await pass(5_000)
  t.equal(looks(), 16)
  hub.remove(crowd[0]!)
  await pass(60_000)
  t.equal(looks(), 16)
  t.equal(clock.armed, 0, 'and no timer')
  hub.add(listener(), [])
  await pass(0)
  t.equal(looks(), 17)
  t.equal(feeds(), 2, 'with eyes that have not seen what is old')
})

t.test('there is news before those who listen hear of it, and for the first of them', async t => {
  const { hub, clock, pass } = hubOver(() => clock.elapsed() === 1_000 ? [run] : [])
  const [one, two] = [listener(), listener()]
  t.equal(hub.news, 0)
  hub.add(one, [])
  hub.add(two, [])
  t.equal(hub.news, 1)
  const heard: number[] = []
  one.write = () => { heard.push(hub.news) }
  await pass(3_000)
  t.strictSame(heard, [2])
  t.equal(hub.news, 2, 'and none while nothing happens')
})

t.test('who comes late is told what goes on, after what he missed', async t => {
  const { hub, pass } = hubOver()
  const [first, late] = [listener(), listener()]
  hub.add(first, [])
  await pass(0)
  hub.add(late, [{ id: 'r0' } as any])
  t.strictSame(first.told, [greeting])
  t.strictSame(late.told, [`${greeting}event: ended\nid: r0\ndata: {"id":"r0"}\n\n${written}`])
})

t.test('all are told, some at a time, and none that has gone meanwhile', async t => {
  const { hub, clock, pass } = hubOver(() => clock.elapsed() === 1_000 ? [run] : [])
  const crowd = Array.from({ length: 60 }, listener)
  for (const one of crowd) hub.add(one, [])
  const write = crowd[10]!.write
  crowd[10]!.write = text => {
    write(text)
    if (text === written) hub.remove(crowd[40]!)
  }
  await pass(1_000)
  t.equal(crowd.filter(one => one.told.includes(written)).length, 59)
  t.notOk(crowd[40]!.told.includes(written))
})

t.test('who all leave while they are told are told no more', async t => {
  const { hub, clock, pass } = hubOver(() => clock.elapsed() === 1_000 ? [run] : [])
  const crowd = Array.from({ length: 60 }, listener)
  for (const one of crowd) hub.add(one, [])
  crowd[0]!.write = () => { for (const one of crowd) hub.remove(one) }
  await pass(1_000)
  t.equal(crowd.filter(one => one.told.includes(written)).length, 0)
  t.equal(clock.armed, 0)
})

t.test('a silence of fifteen looks is broken, by what means nothing', async t => {
  const { hub, pass } = hubOver()
  const one = listener()
  hub.add(one, [])
  await pass(13_000)
  t.strictSame(one.told, [greeting])
  await pass(1_000)
  t.strictSame(one.told, [greeting, ':\n\n'])
})

t.test('a database that is away is looked for less and less often, and at most every half minute', async t => {
  let away = true
  const { hub, looks, pass } = hubOver(() => {
    if (away) throw new Error('away')
    return [run]
  })
  const one = listener()
  hub.add(one, [])
  await pass(10_000)
  const early = looks()
  t.ok(early < 8, `${early} looks in ten seconds`)
  await pass(600_000)
  const later = looks()
  t.ok(later - early >= 18, 'but it is looked for')
  away = false
  await pass(31_000)
  t.ok(one.told.includes(written), 'and found')
})

t.test('who closes ends every listener, and takes no more', async t => {
  const { hub, clock } = hubOver()
  const [one, two, late] = [listener(), listener(), listener()]
  hub.add(one, [])
  hub.add(two, [])
  hub.close()
  hub.add(late, [])
  t.strictSame([one.ended, two.ended, late.ended, hub.size], [true, true, true, 0])
  t.strictSame(late.told, [])
  hub.remove(one)
  t.equal(clock.armed, 0)
})
