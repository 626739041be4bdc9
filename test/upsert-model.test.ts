import { deepStrictEqual, equal } from 'node:assert/strict'
import t from 'tap'
import fc from 'fast-check'
import { startPostgres } from './helpers/postgres.js'
import { openUpsert } from './helpers/upsert.js'
import { jsonNull } from '../lib/upsert.js'

t.setTimeout(300_000)
const cluster = await startPostgres(t)
const { upsert, query } = await openUpsert(t, cluster.url())
await query('create schema "ty""pes"; create extension citext schema "ty""pes"')
await query('create type "ty""pes"."Mood" as enum (\'sad\', \'ok\', \'we"ird\'); create domain "ty""pes".amount as numeric(8,3); create domain "ty""pes".label as varchar(4)')

/** A type, how its values come, and the text that must be stored of one. */
interface Kind {
  sql: string
  value: fc.Arbitrary<unknown>
  /** SQL that shows column `$` */
  show?: string
  text?: (value: any) => string
  key?: true
}
const word = fc.string({ unit: 'grapheme', maxLength: 6 }).filter(text => !text.includes('\0') && (text as string & { isWellFormed: () => boolean }).isWellFormed())
const letters = fc.string({ unit: fc.constantFrom('a', 'B', '"', '\\', '{', ',', '}', 'ü'), maxLength: 4 })
const long = (bits: bigint): fc.Arbitrary<unknown> => fc.bigInt({ min: -(2n ** bits), max: 2n ** bits - 1n }).chain(value =>
  fc.constantFrom<unknown>(value, String(value), ...(value > -(2n ** 53n) && value < 2n ** 53n ? [Number(value)] : [])))
const decimal = fc.tuple(fc.bigInt({ min: -(10n ** 30n), max: 10n ** 30n }), fc.integer({ min: 0, max: 12 })).map(([digits, scale]) => {
  const text = String(digits < 0n ? -digits : digits).padStart(scale + 1, '0')
  const unsigned = scale === 0 ? text : `${text.slice(0, -scale)}.${text.slice(-scale)}`
  return digits < 0n ? `-${unsigned}` : unsigned
})
const json = fc.jsonValue({ maxDepth: 2, stringUnit: 'grapheme' }).map(value => JSON.parse(JSON.stringify(value, (_, inner: unknown) =>
  typeof inner === 'string' ? inner.replaceAll('\0', '') : typeof inner === 'number' ? Math.fround(Math.trunc(inner % 1e6)) : inner)))
  .filter(value => !JSON.stringify(value).includes('\\u'))
const instant = fc.date({ min: new Date('0100-01-01'), max: new Date('+011000-01-01'), noInvalidDate: true })
const sorted = (value: unknown): string => JSON.stringify(value, (_, inner: unknown) =>
  typeof inner === 'object' && inner !== null && !Array.isArray(inner) ? Object.fromEntries(Object.entries(inner).sort(([a], [b]) => a < b ? -1 : 1)) : inner)
const epoch = '(extract(epoch from $) * 1000)::bigint::text'

const kinds: Kind[] = [
  { sql: 'int', value: fc.integer(), key: true },
  { sql: 'bigint', value: long(63n), key: true },
  { sql: 'smallint', value: fc.integer({ min: -32768, max: 32767 }).map(String), key: true },
  { sql: 'text', value: word, key: true },
  { sql: 'varchar(8)', value: letters, key: true },
  { sql: 'char(4)', value: letters, show: "$::text || '|'", text: value => `${String(value).replace(/ +$/, '')}|`, key: true },
  { sql: 'numeric', value: decimal },
  { sql: 'numeric(40,2)', value: fc.bigInt({ min: -(10n ** 30n), max: 10n ** 30n }), text: value => `${String(value)}.00`, key: true },
  { sql: 'double precision', value: fc.double({ noNaN: false }), show: '$::text', text: value => String(value), },
  { sql: 'boolean', value: fc.boolean(), key: true },
  { sql: 'timestamptz', value: instant, show: epoch, text: value => String(value.getTime()), key: true },
  { sql: 'timestamptz(3)', value: instant.map(date => date.toISOString().replace(/^\+0*/, '')), show: epoch, text: value => String(new Date(/^\d{5}/.test(value) ? `+0${String(value)}` : value).getTime()) },
  { sql: 'date', value: fc.date({ min: new Date('1000-01-01'), max: new Date('9999-01-01'), noInvalidDate: true }), text: value => value.toISOString().slice(0, 10), key: true },
  { sql: 'jsonb', value: fc.oneof(json.filter(value => value !== null), fc.constant(jsonNull)), text: sorted },
  { sql: 'json', value: fc.oneof(json.filter(value => value !== null), fc.constant(jsonNull)), text: value => JSON.stringify(value) },
  { sql: 'uuid', value: fc.uuid(), key: true },
  { sql: 'bytea', value: fc.uint8Array({ maxLength: 9 }).chain(bytes => fc.constantFrom(bytes, Buffer.from(bytes))), show: "encode($, 'hex')", text: value => Buffer.from(value).toString('hex') },
  { sql: '"ty""pes"."Mood"', value: fc.constantFrom('sad', 'ok', 'we"ird'), key: true },
  { sql: '"ty""pes".amount', value: fc.integer({ min: -99999, max: 99999 }), text: value => `${String(value)}.000` },
  { sql: '"ty""pes".label', value: letters },
  { sql: '"ty""pes".citext', value: letters, key: true },
  { sql: 'text[]', value: fc.array(fc.option(letters)), show: 'to_json($)::text', text: value => JSON.stringify(value) },
  { sql: 'varchar(4)[]', value: fc.array(fc.option(letters)), show: 'to_json($)::text', text: value => JSON.stringify(value) },
  { sql: 'int[]', value: fc.integer({ min: 1, max: 3 }).chain(width => fc.array(fc.array(fc.integer(), { minLength: width, maxLength: width }), { minLength: 1, maxLength: 3 })), show: 'to_json($)::text', text: value => JSON.stringify(value) },
  { sql: 'jsonb[]', value: fc.array(fc.option(json.filter(value => value !== null), { freq: 3 })), show: 'to_json($)::text', text: sorted },
  { sql: 'timestamptz[]', value: fc.array(instant, { maxLength: 2 }), show: "(select case when $ is not null then coalesce(string_agg((extract(epoch from x) * 1000)::bigint::text, ',' order by n), '') end from unnest($) with ordinality u (x, n))", text: value => value.map((date: Date) => date.getTime()).join(',') }
]
const shown = ({ show = '$::text' }: Kind, column: string): string => show.replaceAll('$', column)
const textOf = ({ text = String, sql }: Kind, value: unknown): string | null => {
  if (value === null) return null
  const shown = text(value)
  // jsonb and citext have their own idea of what is the same
  return sql === 'jsonb' ? sorted(JSON.parse(shown)) : shown
}
const normal = ({ sql }: Kind, text: string | null): string | null =>
  text !== null && (sql === 'jsonb' || sql === 'jsonb[]') ? sorted(JSON.parse(text)) : sql === 'double precision' && text !== null ? String(Number(text)) : text

interface Case {
  keyKinds: Kind[]
  kinds: Kind[]
  /** rows of values: keys first */
  rows: unknown[][]
  calls: number[]
  batch: number
  stream: boolean
}
const cases: fc.Arbitrary<Case> = fc.record({
  keyKinds: fc.subarray(kinds.filter(({ key }) => key), { minLength: 1, maxLength: 2 }),
  kinds: fc.subarray(kinds, { minLength: 1, maxLength: 6 })
}).chain(({ keyKinds, kinds }) => fc.array(fc.tuple(...keyKinds.map(({ value }) => value)), { minLength: 1, maxLength: 8 })
  .chain(keys => fc.record({
    keyKinds: fc.constant(keyKinds),
    kinds: fc.constant(kinds),
    rows: fc.array(fc.tuple(fc.nat(keys.length - 1), ...kinds.map(({ value }) => fc.option(value, { freq: 6 })))
      .map(([nth, ...rest]) => [...keys[nth as number] as unknown[], ...rest as unknown[]]), { minLength: 1, maxLength: 30 }),
    calls: fc.array(fc.integer({ min: 1, max: 12 }), { maxLength: 4 }),
    batch: fc.integer({ min: 1, max: 12 }),
    stream: fc.boolean()
  })))

let tables = 0
const runs = Number(process.env.FC_RUNS ?? (process.env.SOAK === 'true' ? 1000 : 50))

t.test('any rows of any types in any splits leave the table that a model has, and again write nothing', async () => {
  await fc.assert(fc.asyncProperty(cases, async ({ keyKinds, kinds, rows, calls, batch, stream }) => {
    const table = `t${++tables}`
    const all = [...keyKinds, ...kinds]
    const names = all.map((_, i) => i === 0 ? 'Order' : i === 1 ? 'we"ird' : `c${i}`)
    const quoted = names.map(name => `"${name.replaceAll('"', '""')}"`)
    await query(`create table ${table} (${all.map(({ sql }, i) => `${quoted[i] as string} ${sql}`).join(', ')}, primary key (${quoted.slice(0, keyKinds.length).join(', ')}))`)
    const objects = rows.map(values => Object.fromEntries(values.map((value, i) => [names[i], value])))
    const key = names.slice(0, keyKinds.length).reverse()

    const model = new Map<string, Array<string | null>>()
    for (const values of rows) {
      const texts = values.map((value, i) => textOf(all[i] as Kind, value))
      model.set(JSON.stringify(keyKinds.map(({ sql }, i) => sql.endsWith('citext') ? texts[i]?.toLowerCase() : texts[i])), texts)
    }
    const list = async (): Promise<Array<Array<string | null>>> => {
      const { rows } = await query(`select ${all.map((kind, i) => `${shown(kind, quoted[i] as string)} as v${i}`).join(', ')} from ${table}`)
      return rows.map(row => all.map((kind, i) => normal(kind, row[`v${i}`])))
    }
    const inOrder = (rows: unknown[]): string[] => rows.map(row => JSON.stringify(row)).sort()

    // split into calls
    let at = 0
    for (const size of [...calls, rows.length]) {
      const part = objects.slice(at, at += size)
      const counts = await upsert(table, stream ? part.values() : part, { key, batch })
      equal(counts.inserted + counts.updated + counts.unchanged, part.length)
    }
    deepStrictEqual(inOrder(await list()), inOrder([...model.values()]))

    // one call of everything, again, and what is stored in any order
    await upsert(table, objects, { key, batch })
    const versions = async (): Promise<unknown> => (await query(`select xmin::text, xmax::text, ctid::text from ${table} order by ctid`)).rows
    const before = await versions()
    const unchanged = { inserted: 0, updated: 0, unchanged: objects.length, stale: 0 }
    const exact = keyKinds.every(({ sql }) => !sql.endsWith('citext') && !sql.startsWith('char'))
    // keys that differ as text but not to the database cannot be told apart over batches
    if (exact) deepStrictEqual(await upsert(table, objects, { key, batch }), unchanged)
    deepStrictEqual(await upsert(table, objects, { key, batch: 1000 }), unchanged)
    const last = [...new Map(rows.map((values, i) => [JSON.stringify(keyKinds.map((kind, k) => textOf(kind, values[k])?.toLowerCase())), objects[i] as object])).values()].reverse()
    if (exact) await upsert(table, last.values(), { key, batch })
    if (exact) deepStrictEqual(await versions(), before)
    await query(`drop table ${table}`)
  }), { numRuns: runs, ...process.env.FC_SEED !== undefined ? { seed: Number(process.env.FC_SEED) } : {} })
})

t.test('with versions, rows in any order and any split leave the newest of each', async () => {
  const rows = fc.uniqueArray(fc.record({ id: fc.integer({ min: 0, max: 5 }), at: fc.option(fc.integer({ min: 0, max: 8 })) }), { minLength: 1, maxLength: 40, selector: ({ id, at }) => `${id} ${String(at)}` })
    .chain(list => fc.tuple(fc.constant(list), fc.shuffledSubarray(list, { minLength: list.length }), fc.array(fc.shuffledSubarray(list), { maxLength: 2 })))
  await query('create table versions (id int primary key, at int, v text)')
  await fc.assert(fc.asyncProperty(rows, fc.integer({ min: 1, max: 9 }), fc.boolean(), async ([list, shuffled, again], batch, stream) => {
    await query('truncate versions')
    const options = { key: ['id'], newerBy: 'at', batch }
    const row = ({ id, at }: { id: number, at: number | null }): object => ({ id, at, v: `v${String(at)}` })
    const newest = new Map<number, number | null>()
    for (const { id, at } of list) {
      const known = newest.get(id)
      if (known === undefined || known === null || (at !== null && at > known)) newest.set(id, at)
    }
    for (const part of [shuffled, ...again]) {
      const counts = await upsert('versions', stream ? part.map(row).values() : part.map(row), options)
      equal(counts.inserted + counts.updated + counts.unchanged + counts.stale, part.length)
    }
    const expected = [...newest].sort(([a], [b]) => a - b).map(([id, at]) => ({ id, at, v: `v${String(at)}` }))
    const stored = async (): Promise<any[]> => (await query('select id, at, v, xmin::text from versions order by id')).rows
    const before = await stored()
    deepStrictEqual(before.map(({ xmin, ...row }) => row), expected)
    const { inserted, updated, unchanged } = await upsert('versions', list.map(row), options)
    deepStrictEqual({ inserted, updated, unchanged }, { inserted: 0, updated: 0, unchanged: newest.size })
    deepStrictEqual(await stored(), before)
  }), { numRuns: runs })
})
