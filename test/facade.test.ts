import t from 'tap'
import { createFacade } from '../lib/facade.js'
import type { Query } from '../lib/types.js'

/** A facade over a query that answers with what it was given. */
function facade (failure?: Error): { query: any, calls: unknown[][] } {
  const calls: unknown[][] = []
  const query = (async (...args: unknown[]) => {
    calls.push(args)
    if (failure !== undefined) throw failure
    return { rows: args }
  }) as unknown as Query
  return { query: createFacade(query).query, calls }
}

const callback = (): { fn: (error: unknown, result?: unknown) => void, called: Promise<unknown[]> } => {
  let fn = (..._args: unknown[]): void => {}
  const called = new Promise<unknown[]>(resolve => { fn = (...args) => resolve(args) })
  return { fn, called }
}

t.test('without a callback it gives a promise', async t => {
  const { query, calls } = facade()
  t.strictSame(await query('select $1', [1]), { rows: ['select $1', [1]] })
  t.strictSame(await query('select 1'), { rows: ['select 1', undefined] })
  t.strictSame(await query({ text: 'select $1', values: [1] }), { rows: [{ text: 'select $1', values: [1] }, undefined] })
  t.equal(calls.length, 3)
})

t.test('a promise rejects as the query does', async t => {
  await t.rejects(facade(Object.assign(new Error('no'), { code: '42601' })).query('selec'), { code: '42601' })
})

t.test('with a callback as the second argument it calls that', async t => {
  const { fn, called } = callback()
  t.equal(facade().query('select 1', fn), undefined)
  t.strictSame(await called, [null, { rows: ['select 1', undefined] }])
})

t.test('with a callback as the third argument it calls that', async t => {
  const { fn, called } = callback()
  t.equal(facade().query('select $1', [1], fn), undefined)
  t.strictSame(await called, [null, { rows: ['select $1', [1]] }])
})

t.test('with no values and a callback it calls that', async t => {
  const { fn, called } = callback()
  facade().query('select 1', undefined, fn)
  t.strictSame(await called, [null, { rows: ['select 1', undefined] }])
})

t.test('with a callback in the config it calls that', async t => {
  const { fn, called } = callback()
  const config = { text: 'select 1', callback: fn }
  t.equal(facade().query(config), undefined)
  t.strictSame(await called, [null, { rows: [config, undefined] }])
})

t.test('a callback is given the error', async t => {
  const { fn, called } = callback()
  const error = new Error('no')
  facade(error).query('select 1', fn)
  t.strictSame(await called, [error])
})

t.test('what a callback throws is its owner\'s: an uncaught exception, as with pg', async t => {
  const thrown = new Error('of the callback')
  const uncaught = new Promise(resolve => process.setUncaughtExceptionCaptureCallback(resolve))
  t.teardown(() => process.setUncaughtExceptionCaptureCallback(null))
  facade().query('select 1', () => { throw thrown })
  t.equal(await uncaught, thrown)
})

t.test('a cursor or a stream is refused at once', async t => {
  const { query, calls } = facade()
  t.throws(() => query({ text: 'select 1', submit () {} }), { code: 'FST_HOURLY_SYNC_INVALID_QUERY' })
  t.strictSame(calls, [])
})
