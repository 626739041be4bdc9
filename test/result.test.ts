import t from 'tap'
import { checkedResult } from '../lib/result.js'
import { createLog } from './helpers/log.js'

const check = (returned: unknown): { result: unknown, warned: unknown[] } => {
  const { log, lines } = createLog()
  return { result: checkedResult(returned, log), warned: lines.filter(({ level }) => level === 'warn').map(({ ignored }) => ignored) }
}

const counted = new (class { saved = 7 })()
const circle: Record<string, unknown> = {}
circle.self = circle

const good: Array<[title: string, returned: unknown, result: unknown]> = [
  ['nothing', undefined, {}],
  ['null', null, {}],
  ['an empty object', {}, {}],
  ['a cursor', { cursor: 'abc' }, { cursor: 'abc' }],
  ['a cursor of null', { cursor: null }, { cursor: null }],
  ['a cursor of 0', { cursor: 0 }, { cursor: 0 }],
  ['a cursor of nothing', { cursor: undefined }, {}],
  ['a cursor in depth', { cursor: { a: [1, { b: '주문🚚' }] } }, { cursor: { a: [1, { b: '주문🚚' }] } }],
  ['advance: false', { advance: false }, { advance: false }],
  ['advance: true', { advance: true }, {}],
  ['stats', { stats: { orders: 7 } }, { stats: { orders: 7 } }],
  ['all of it', { cursor: 1, advance: false, stats: 2 }, { cursor: 1, advance: false, stats: 2 }],
  ['an instance of a class', { stats: counted }, { stats: counted }],
  ['a Date, as its text', { cursor: new Date(0) }, { cursor: new Date(0) }],
  ['the two halves of a pair', { cursor: '\ud83d\ude9a' }, { cursor: '\ud83d\ude9a' }]
]
for (const [title, returned, result] of good) {
  t.strictSame(check(returned), { result, warned: [] }, `${title} is taken`)
}

const ignored: Array<[title: string, returned: unknown, names: string[]]> = [
  ['a number', 7, ['returned']],
  ['a text', 'done', ['returned']],
  ['true', true, ['returned']],
  ['an array', [1, 2], ['0', '1']],
  ['an object of another shape', { rows: 1, took: 2 }, ['rows', 'took']],
  ['a function', () => {}, ['returned']],
  ['an object with a next of its own', { next: () => {} }, ['next']]
]
for (const [title, returned, names] of ignored) {
  t.strictSame(check(returned), { result: {}, warned: [names] }, `${title} is ignored with a warning that names it`)
}

t.test('a warning names ten keys at most, and no value', async t => {
  const { log, lines } = createLog()
  checkedResult(Object.fromEntries(Array.from({ length: 1_000 }, (_, i) => [`k${i}`, 'secret'])), log)
  t.equal(lines[0]!.ignored.length, 10)
  t.notMatch(JSON.stringify(lines), 'secret')
})

const bad: Array<[title: string, returned: unknown, key: string]> = [
  ['advance: 0', { advance: 0 }, 'advance'],
  ["advance: 'false'", { advance: 'false' }, 'advance'],
  ['advance: null', { advance: null }, 'advance'],
  ['a cursor that is a function', { cursor: () => {} }, 'cursor'],
  ['a cursor that is a symbol', { cursor: Symbol('x') }, 'cursor'],
  ['a cursor that is a bigint', { cursor: 1n }, 'cursor'],
  ['a function in depth', { stats: { count: () => 1 } }, 'stats'],
  ['a symbol in depth', { stats: [Symbol('x')] }, 'stats'],
  ['a Map', { stats: new Map([['saved', 1]]) }, 'stats'],
  ['a Set in depth', { cursor: { seen: new Set([1]) } }, 'cursor'],
  ['a promise', { cursor: Promise.resolve(1) }, 'cursor'],
  ['a bigint in depth', { stats: { a: [1n] } }, 'stats'],
  ['a circle', { stats: circle }, 'stats'],
  ['a toJSON that throws', { stats: { toJSON () { throw new Error('no') } } }, 'stats'],
  ['a toJSON that gives nothing', { cursor: { toJSON () {} } }, 'cursor'],
  ['a cursor that is not a number', { cursor: NaN }, 'cursor'],
  ['an invalid date in depth', { cursor: { at: new Date(NaN) } }, 'cursor'],
  ['undefined in an array', { cursor: [undefined] }, 'cursor'],
  ['an endless number in depth', { stats: { a: [-Infinity] } }, 'stats'],
  ['a NUL', { cursor: 'a\0b' }, 'cursor'],
  ['a NUL in depth', { stats: { a: ['\0'] } }, 'stats'],
  ['a NUL in a key', { stats: { 'a\0': 1 } }, 'stats'],
  ['half a surrogate pair', { cursor: 'a\ud83d' }, 'cursor'],
  ['half a surrogate pair in a key', { stats: { '\udc00': 1 } }, 'stats'],
  ['a NUL that comes out of toJSON', { cursor: { toJSON: () => '\0' } }, 'cursor']
]
for (const [title, returned] of [['a generator', (function * () {})()], ['an async generator', (async function * () {})()], ['an iterator', new Map().values()]] as const) {
  t.throws(() => check(returned), { code: 'FST_HOURLY_SYNC_INVALID_RESULT', message: /'result' was an iterator/ }, `${title} is refused`)
}
for (const [title, returned, key] of bad) {
  t.throws(() => check(returned), { code: 'FST_HOURLY_SYNC_INVALID_RESULT', message: new RegExp(`'${key}'`) }, `${title} is refused`)
}
