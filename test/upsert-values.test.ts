import t from 'tap'
import { textArrays } from '../lib/upsert/text-array.js'
import { arrayOf, encoderOf, isCanonical, jsonNull, nameOf } from '../lib/upsert/values.js'

const builtIn = (name: string): (value: unknown) => string | undefined => encoderOf(name, 'pg_catalog', '?').encode
const refused = undefined

const texts: Array<[type: string, value: unknown, text: string | undefined]> = [
  ['int4', 7, '7'], ['int4', -7n, '-7'], ['int4', '+007', '7'], ['int4', '-0', '0'], ['int8', 2n ** 63n, '9223372036854775808'],
  ['int4', 1.5, refused], ['int4', 2 ** 53, refused], ['int4', '', refused], ['int4', '1e3', refused], ['int4', true, refused],
  ['numeric', '0.10', '0.10'], ['numeric', 12n, '12'], ['numeric', 0.1, '0.1'], ['numeric', 2 ** 60, refused], ['numeric', -(2 ** 53), refused], ['numeric', 2 ** 53 - 1, '9007199254740991'], ['numeric', NaN, 'NaN'], ['numeric', true, refused],
  ['float8', 2 ** 60, '1152921504606847000'], ['float8', 5n, '5'], ['float8', false, refused], ['float4', '1e3', '1e3'], ['float8', NaN, 'NaN'], ['float8', -Infinity, '-Infinity'], ['float8', {}, refused],
  ['bool', true, 't'], ['bool', false, 'f'], ['bool', 'true', 't'], ['bool', 't', 't'], ['bool', 'false', 'f'], ['bool', 'f', 'f'], ['bool', 1, refused], ['bool', 'yes', refused],
  ['uuid', '{A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11}', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'], ['uuid', 'a0eebc999c0b4ef8bb6d6bb9bd380a11', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'],
  ['uuid', 'a0eebc99', refused], ['uuid', 5, refused],
  ['timestamptz', new Date('2024-02-29T12:00:00.123Z'), '2024-02-29T12:00:00.123Z'], ['timestamptz', '2024-02-29', '2024-02-29'],
  ['timestamptz', new Date('+012024-02-29T12:00:00Z'), '12024-02-29T12:00:00.000Z'], ['timestamptz', new Date('0000-03-01T00:00:00Z'), '0001-03-01T00:00:00.000Z BC'],
  ['timestamptz', new Date('-000043-03-15T00:00:00Z'), '0044-03-15T00:00:00.000Z BC'], ['timestamptz', new Date(NaN), refused], ['timestamptz', 5, refused],
  ['date', new Date('2024-02-29T23:59:59.999Z'), '2024-02-29'], ['date', new Date('-000043-03-15T00:00:00Z'), '0044-03-15 BC'], ['date', new Date(NaN), refused], ['date', 'today', 'today'],
  ['bytea', Buffer.from([0, 255]), '\\x00ff'], ['bytea', new Uint8Array([1, 2, 3]).subarray(1), '\\x0203'], ['bytea', '\\xff', '\\xff'], ['bytea', 5, refused],
  ['jsonb', 'text', '"text"'], ['jsonb', jsonNull, 'null'], ['jsonb', [1, { a: undefined }], '[1,{}]'], ['json', 1n, refused], ['json', () => {}, refused],
  ['jsonb', { a: null, b: [null, 'null'] }, '{"a":null,"b":[null,"null"]}'], ['jsonb', [jsonNull], '[null]'], ['jsonb', 'null', '"null"'],
  ['jsonb', NaN, refused], ['json', { price: Infinity }, refused], ['jsonb', [[{ a: -Infinity, b: null }]], refused], ['jsonb', [Object(NaN)], refused],
  ['jsonb', [undefined], refused], ['jsonb', { a: [() => {}] }, refused], ['json', { a: [Symbol('s')] }, refused],
  ['jsonb', new Date(NaN), refused], ['jsonb', { at: new Date(NaN) }, refused], ['jsonb', { at: new Date(0), b: null }, '{"at":"1970-01-01T00:00:00.000Z","b":null}'],
  ['jsonb', { toJSON: () => NaN }, refused],
  ['oid', 4294967295, '4294967295'], ['oid', '007', '7'], ['oid', -1, refused], ['oid', 2 ** 32, refused], ['oid', 'x', refused],
  ['inet', '10.0.0.1', '10.0.0.1'], ['inet', 5, refused]
]

for (const [type, value, text] of texts) {
  t.test(`${type} ${text === undefined ? 'refuses' : 'takes'} ${typeof value} ${String(value)}`, async t => { t.equal(builtIn(type)(value), text) })
}

t.test('text takes what has one text, and nothing that would be changed on its way', async t => {
  const { encode } = encoderOf('text', 'pg_catalog', 'S')
  t.strictSame(['ü', 5, 5n, true].map(encode), ['ü', '5', '5', 'true'])
  t.strictSame(['\ud800', 2 ** 60, {}, Symbol('s'), undefined].map(encode), Array(5).fill(undefined))
})

t.test('a type of the host with the name of a built-in one is not taken for it', async t => {
  t.equal(encoderOf('int4', 'public', 'U').encode(5), undefined)
  t.equal(encoderOf('citext', 'public', 'S').encode(5), '5')
  t.notOk(isCanonical('int4', 'public', 'U'))
})

t.test('keys are compared as text where a value has one text alone', async t => {
  t.strictSame(['int8', 'uuid', 'text', 'bool', 'numeric', 'timestamptz', 'bpchar'].map(name => isCanonical(name, 'pg_catalog', '?')), [true, true, true, true, false, false, false])
  t.ok(isCanonical('mood', 'public', 'E'), 'an enum')
})

t.test('an array', async t => {
  const ints = arrayOf(encoderOf('int4', 'pg_catalog', 'N'), ',')
  const words = arrayOf(encoderOf('text', 'pg_catalog', 'S'), ',')
  const documents = arrayOf(encoderOf('jsonb', 'pg_catalog', 'U'), ',')
  const lists = arrayOf(ints, ',')
  const boxes = arrayOf(encoderOf('box', 'pg_catalog', 'G'), ';')
  t.equal(ints.encode([1, null, 2n]), '{"1",NULL,"2"}')
  t.equal(ints.encode([[1, 2], [3, 4]]), '{{"1","2"},{"3","4"}}')
  t.equal(ints.encode([]), '{}')
  t.equal(ints.encode('{1,2}'), '{1,2}')
  t.equal(words.encode(['a"b', 'c\\d', '']), '{"a\\"b","c\\\\d",""}')
  t.equal(documents.encode([[1, 2], null, jsonNull]), '{"[1,2]",NULL,"null"}', 'an array of JSON is not a further dimension')
  t.equal(documents.encode([NaN]), undefined)
  t.equal(lists.encode([[1, null], null, '{2}']), '{"{\\"1\\",NULL}",NULL,"{2}"}', 'nor is one of arrays that a domain makes a type of their own')
  t.equal(lists.encode([1]), undefined)
  t.equal(boxes.encode(['(1,1),(0,0)', '(2,2),(0,0)']), '{"(1,1),(0,0)";"(2,2),(0,0)"}')
  for (const wrong of [[undefined], [1.5], [[1], ['x']], 5]) t.equal(ints.encode(wrong), undefined)
})

t.test('what a value is called says its type and never the value', async t => {
  const names: Array<[unknown, string]> = [
    [null, 'null'], [undefined, 'undefined'], ['secret', 'string'], [5, 'number'], [1.5, 'number (a fraction)'], [NaN, 'NaN'], [-Infinity, '-Infinity'], [5n, 'bigint'],
    [[1], 'array'], [new Date(0), 'Date'], [new Date(NaN), 'Date (invalid)'], [Buffer.from('a'), 'bytes'], [{}, 'object'], [() => {}, 'function'], [Symbol('s'), 'symbol']
  ]
  for (const [value, name] of names) t.equal(nameOf(value), name)
  t.match(nameOf(2 ** 60), 'use a bigint or a string')
})

t.test('texts become one array parameter, nulls and long ones too', async t => {
  const list = ['a', null, 'ü'.repeat(100), '🎁'.repeat(100), '']
  const block = {}
  const [first, buffer] = textArrays([['first', 'ü'], list], block) as [Buffer, Buffer]
  t.equal(first.readInt32BE(12), 2)
  t.strictSame([0, 4, 8, 12, 16].map(at => buffer.readInt32BE(at)), [1, 1, 25, list.length, 1])
  const read: Array<string | null> = []
  let at = 20
  while (at < buffer.length) {
    const size = buffer.readInt32BE(at)
    at += 4
    read.push(size === -1 ? null : buffer.toString('utf8', at, at + size))
    at += Math.max(size, 0)
  }
  t.strictSame(read, list)
})

t.test('a block is used again where it is large enough, and not kept where it is very large', async t => {
  const block: { bytes?: Buffer } = {}
  textArrays([['a'.repeat(100)]], block)
  const before = block.bytes
  const [small] = textArrays([['b']], block)
  t.equal(block.bytes, before)
  t.equal(small!.buffer, before!.buffer)
  textArrays([['c'.repeat(1000)]], block)
  t.not(block.bytes, before)
  textArrays([['d'.repeat(2 ** 21)]], block)
  t.equal(block.bytes, undefined)
})
