import { once } from 'node:events'
import { fork } from 'node:child_process'
import t from 'tap'
import { STEP, systemClock, wait, waitSteadily, within } from '../lib/clock.js'
import { createManualClock } from './helpers/manual-clock.js'

t.setTimeout(120_000) // it starts a process, on the slowest machine

const HOUR = 3_600_000

/** A promise, and whether it has settled. */
function watched<T> (promise: Promise<T>): { promise: Promise<T>, settled: boolean } {
  const state = { promise, settled: false }
  const settle = (): void => { state.settled = true }
  promise.then(settle, settle)
  return state
}

t.test('wait', async t => {
  t.test('a wait of an hour is over after an hour, and not a millisecond before', async t => {
    const clock = createManualClock()
    const waiting = watched(wait(clock, HOUR))
    await clock.pass(HOUR - 1)
    t.notOk(waiting.settled)
    await clock.pass(1)
    t.ok(waiting.settled)
    t.equal(await waiting.promise, true)
  })

  t.test('no timer is armed for longer than a step', async t => {
    const clock = createManualClock()
    const waiting = watched(wait(clock, 2 ** 31 + HOUR)) // more than a timer can hold
    for (let passed = 0; passed < 100 * STEP; passed += STEP) {
      t.strictSame(clock.armed, [STEP])
      await clock.pass(STEP)
    }
    t.notOk(waiting.settled)
  })

  t.test('the last step is what is left', async t => {
    const clock = createManualClock()
    watched(wait(clock, STEP + 1_234))
    await clock.pass(STEP)
    t.strictSame(clock.armed, [1_234])
  })

  t.test('a timer that fires early is armed again for what is left', async t => {
    const clock = createManualClock()
    const waiting = watched(wait(clock, 1_000))
    await clock.early(1)
    t.notOk(waiting.settled)
    t.strictSame(clock.armed, [1])
    await clock.pass(1)
    t.ok(waiting.settled)
  })

  t.test('what is left of a millisecond is waited for as a whole one', async t => {
    const clock = createManualClock()
    const waiting = watched(wait(clock, 1_000))
    await clock.early(0.25)
    t.strictSame(clock.armed, [1])
    await clock.pass(1)
    t.ok(waiting.settled)
  })

  t.test('a wall clock that was set back makes a wait no longer', async t => {
    const clock = createManualClock(10 * HOUR)
    const waiting = watched(wait(clock, HOUR))
    await clock.pass(HOUR / 2)
    clock.jump(-5 * HOUR)
    await clock.pass(HOUR / 2 - 1)
    t.notOk(waiting.settled)
    await clock.pass(1)
    t.ok(waiting.settled)
  })

  t.test('a machine that slept through a wait notices within a step: its wall clock went on', async t => {
    const clock = createManualClock()
    const waiting = watched(wait(clock, HOUR))
    await clock.pass(1_000)
    clock.jump(HOUR)
    t.notOk(waiting.settled)
    await clock.pass(STEP)
    t.ok(waiting.settled)
  })

  t.test('a wait that is called off resolves false at once, and leaves no timer', async t => {
    const clock = createManualClock()
    const stop = new AbortController()
    const waiting = wait(clock, HOUR, stop.signal)
    stop.abort()
    t.equal(await waiting, false)
    t.strictSame(clock.armed, [])
  })

  t.test('a signal that was aborted before makes no wait at all', async t => {
    const clock = createManualClock()
    t.equal(await wait(clock, 0, AbortSignal.abort()), false)
    t.strictSame(clock.armed, [])
  })

  t.test('a wait that came to its end has left the signal', async t => {
    const clock = createManualClock()
    const signal = new AbortController().signal
    const added: string[] = []
    signal.addEventListener = (type: string, ...rest: unknown[]) => { added.push(`+${type}`); EventTarget.prototype.addEventListener.call(signal, type, ...rest as [any]) }
    signal.removeEventListener = (type: string, ...rest: unknown[]) => { added.push(`-${type}`); EventTarget.prototype.removeEventListener.call(signal, type, ...rest as [any]) }
    const waiting = wait(clock, 2 * STEP, signal)
    await clock.pass(2 * STEP)
    t.equal(await waiting, true)
    t.strictSame(added, ['+abort', '-abort', '+abort', '-abort'])
  })

  for (const ms of [0, -1, NaN, -Infinity]) {
    t.test(`a wait of ${ms} ms is over at once`, async t => {
      const clock = createManualClock()
      t.equal(await wait(clock, ms), true)
      t.strictSame(clock.armed, [])
    })
  }

  t.test('a wait without end goes on in steps', async t => {
    const clock = createManualClock()
    const waiting = watched(wait(clock, Infinity))
    await clock.pass(1_000 * STEP)
    t.notOk(waiting.settled)
    t.strictSame(clock.armed, [STEP])
  })
})

t.test('a steady wait', async t => {
  t.test('is as long as it is, wherever the wall clock is set', async t => {
    for (const jump of [HOUR, -HOUR]) {
      const clock = createManualClock(10 * HOUR)
      const waiting = watched(waitSteadily(clock, HOUR))
      await clock.pass(1_000)
      clock.jump(jump)
      await clock.pass(HOUR - 1_001)
      t.notOk(waiting.settled)
      await clock.pass(1)
      t.equal(await waiting.promise, true)
    }
  })

  t.test('is called off and takes steps as any other', async t => {
    const clock = createManualClock()
    const stop = new AbortController()
    const waiting = waitSteadily(clock, HOUR, stop.signal)
    t.strictSame(clock.armed, [STEP])
    stop.abort()
    t.equal(await waiting, false)
    t.strictSame(clock.armed, [])
  })
})

t.test('within', async t => {
  const late = (): Error => Object.assign(new Error('late'), { code: 'LATE' })

  t.test('a promise in time gives its value, and the timer is called off', async t => {
    const clock = createManualClock()
    t.equal(await within(clock, Promise.resolve(7), { ms: 1_000, late }), 7)
    t.strictSame(clock.armed, [])
  })

  t.test('a promise that rejects in time gives its reason', async t => {
    const clock = createManualClock()
    await t.rejects(within(clock, Promise.reject(Object.assign(new Error('no'), { code: 'NO' })), { ms: 1_000, late }), { code: 'NO' })
    t.strictSame(clock.armed, [])
  })

  t.test('a promise that is late gives what late() makes', async t => {
    const clock = createManualClock()
    const answer = watched(within(clock, new Promise(() => {}), { ms: 1_000, late }))
    await clock.pass(999)
    t.notOk(answer.settled)
    await clock.pass(1)
    await t.rejects(answer.promise, { code: 'LATE' })
  })

  t.test('a promise that rejects after its time is no unhandled rejection', async t => {
    const clock = createManualClock()
    const unhandled: unknown[] = []
    const listener = (reason: unknown): void => { unhandled.push(reason) }
    process.on('unhandledRejection', listener)
    t.teardown(() => process.removeListener('unhandledRejection', listener))
    let reject = (_error: Error): void => {}
    const answer = within(clock, new Promise((_resolve, _reject) => { reject = _reject }), { ms: 0, late })
    const rejected = t.rejects(answer, { code: 'LATE' })
    await clock.pass(0)
    await rejected
    reject(new Error('too late'))
    await new Promise(resolve => setImmediate(resolve)) // unhandled rejections are told between two turns
    t.strictSame(unhandled, [])
  })

  t.test('without a limit there is no timer', async t => {
    const clock = createManualClock()
    const answer = watched(within(clock, new Promise(() => {}), { ms: Infinity, late }))
    t.strictSame(clock.armed, [])
    await clock.pass(1e9)
    t.notOk(answer.settled)
    t.equal(await within(clock, Promise.resolve(7), { ms: Infinity, late }), 7)
  })

  t.test('time that is up already gives one turn, not none', async t => {
    const clock = createManualClock()
    const answer = watched(within(clock, new Promise(() => {}), { ms: -5, late }))
    t.strictSame(clock.armed, [0])
    await clock.pass(0)
    await t.rejects(answer.promise, { code: 'LATE' })
  })

  t.test('an abort gives its reason, and the timer is called off', async t => {
    const clock = createManualClock()
    const stop = new AbortController()
    const answer = within(clock, new Promise(() => {}), { ms: 1_000, late, signal: stop.signal })
    stop.abort(Object.assign(new Error('stop'), { code: 'STOP' }))
    await t.rejects(answer, { code: 'STOP' })
    t.strictSame(clock.armed, [])
  })

  t.test('a signal that was aborted before gives its reason', async t => {
    const clock = createManualClock()
    await t.rejects(within(clock, new Promise(() => {}), { ms: 1_000, late, signal: AbortSignal.abort(Object.assign(new Error('stop'), { code: 'STOP' })) }), { code: 'STOP' })
    t.strictSame(clock.armed, [])
  })
})

t.test('the system clock', async t => {
  t.test('tells the time of the process', async t => {
    const before = Date.now()
    t.ok(systemClock.now() >= before && systemClock.now() <= Date.now())
    const first = systemClock.elapsed()
    t.ok(systemClock.elapsed() >= first)
  })

  t.test('a timer fires once', async t => {
    t.equal(await new Promise(resolve => { systemClock.after(1, () => resolve('fired'), true) }), 'fired')
  })

  t.test('a timer that is called off does not fire', async t => {
    let fired = false
    const cancel = systemClock.after(1, () => { fired = true }, true)
    cancel()
    await new Promise(resolve => setTimeout(resolve, 20)) // twenty times as long as the timer would have taken
    t.notOk(fired)
  })

  t.test('only a held timer keeps the process alive', async t => {
    const child = fork(new URL('fixtures/timers.ts', import.meta.url), { execArgv: process.execArgv, stdio: ['ignore', 'pipe', 'inherit', 'ipc'] })
    let output = ''
    child.stdout!.on('data', chunk => { output += chunk })
    child.disconnect()
    const [code] = await once(child, 'exit')
    t.equal(code, 0)
    t.equal(output, 'held\n')
  })
})
