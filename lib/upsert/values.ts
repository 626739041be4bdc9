import { faithfulJson } from '../json.js'

/**
 * Values become text here, the text the column's type reads, whatever parsers or serializers the host has set in pg.
 *
 * An encoder returns `undefined` for a value it refuses. `null` never reaches one: it is SQL NULL for every type.
 */
export interface Encoder {
  /** What the column takes, for the error message. */
  expected: string
  encode: (value: unknown) => string | undefined
  /** Whether an array is a value of the type itself, so that inside of an array it is no further dimension. */
  takesArrays?: true
}

/**
 * JSON's `null` for a json or jsonb column, where a plain `null` is SQL NULL.
 *
 * A string in such a column is a JSON string: it is never read as JSON text.
 */
export const jsonNull: { toJSON: () => null } = Object.freeze({ toJSON: () => null })

/** The type of a value, for messages: never the value itself, which may be a secret. */
export function nameOf (value: unknown): string {
  if (value === null) return 'null'
  if (typeof value === 'number') {
    if (!Number.isFinite(value)) return String(value)
    if (!Number.isInteger(value)) return 'number (a fraction)'
    return Number.isSafeInteger(value) ? 'number' : 'number (an integer beyond 2^53, which has lost digits: use a bigint or a string)'
  }
  if (typeof value !== 'object') return typeof value
  if (Array.isArray(value)) return 'array'
  if (value instanceof Date) return Number.isNaN(value.getTime()) ? 'Date (invalid)' : 'Date'
  return value instanceof Uint8Array ? 'bytes' : 'object'
}

const lossless = (value: number): string | undefined =>
  !Number.isInteger(value) || Number.isSafeInteger(value) ? String(value) : undefined

function encodeText (value: unknown): string | undefined {
  switch (typeof value) {
    // a lone surrogate would be replaced without a word on its way to UTF-8
    case 'string': return (value as string & { isWellFormed: () => boolean }).isWellFormed() ? value : undefined
    case 'number': return lossless(value)
    case 'bigint':
    case 'boolean': return String(value)
  }
}

function encodeInteger (value: unknown): string | undefined {
  if (typeof value === 'number') return Number.isSafeInteger(value) ? String(value) : undefined
  if (typeof value === 'bigint') return String(value)
  // one text for one number: '007' and 7 are the same key
  if (typeof value === 'string' && /^[+-]?\d+$/.test(value)) return String(BigInt(value.replace('+', '')))
}

/** The server would take -1 for the largest, so that one number had two texts. */
function encodeOid (value: unknown): string | undefined {
  const text = encodeInteger(value)
  if (text !== undefined && BigInt(text) >= 0n && BigInt(text) < 2n ** 32n) return text
}

function encodeNumeric (value: unknown): string | undefined {
  return typeof value === 'boolean' ? undefined : encodeText(value)
}

/** A column that is a float itself has lost no more than the number had. */
function encodeFloat (value: unknown): string | undefined {
  return typeof value === 'number' ? String(value) : encodeNumeric(value)
}

function encodeString (value: unknown): string | undefined {
  if (typeof value === 'string') return encodeText(value)
}

function encodeBoolean (value: unknown): string | undefined {
  if (typeof value === 'boolean') return value ? 't' : 'f'
  if (value === 't' || value === 'true') return 't'
  if (value === 'f' || value === 'false') return 'f'
}

function encodeUuid (value: unknown): string | undefined {
  if (typeof value !== 'string') return
  const digits = value.replace(/^\{(.*)\}$/, '$1').replaceAll('-', '').toLowerCase()
  if (/^[0-9a-f]{32}$/.test(digits)) return digits.replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-')
}

/** PostgreSQL writes years before 1 as BC and those after 9999 without a sign. */
function encodeInstant (value: unknown): string | undefined {
  if (!(value instanceof Date)) return encodeString(value)
  if (Number.isNaN(value.getTime())) return
  const text = value.toISOString()
  const year = value.getUTCFullYear()
  if (year >= 1 && year <= 9999) return text
  const rest = text.slice(text.indexOf('-', 1))
  return year > 0 ? `${year}${rest}` : `${String(1 - year).padStart(4, '0')}${rest} BC`
}

/** The day in UTC: a server's time zone never moves it. */
function encodeDate (value: unknown): string | undefined {
  return value instanceof Date ? encodeInstant(value)?.replace(/T[^ ]*/, '') : encodeString(value)
}

function encodeBytes (value: unknown): string | undefined {
  if (value instanceof Uint8Array) return `\\x${Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString('hex')}`
  return encodeString(value)
}

function encodeJson (value: unknown): string | undefined {
  try {
    return faithfulJson(value)
  } catch {} // a bigint or a circle inside
}

const integer: Encoder = { expected: 'an integer (number, bigint or string)', encode: encodeInteger }
const oid: Encoder = { expected: 'an integer from 0 to 4294967295 (number, bigint or string)', encode: encodeOid }
const numeric: Encoder = { expected: 'a number, bigint or string', encode: encodeNumeric }
const float: Encoder = { expected: numeric.expected, encode: encodeFloat }
const text: Encoder = { expected: 'a string, number, bigint or boolean', encode: encodeText }
const string: Encoder = { expected: 'a string', encode: encodeString }
const instant: Encoder = { expected: 'a Date or an ISO string', encode: encodeInstant }
const json: Encoder = { expected: 'a value that JSON can express', encode: encodeJson, takesArrays: true }

/** Built-in types by their name in pg_catalog; `category` is pg_type.typcategory. */
const builtIn: Record<string, Encoder> = {
  int2: integer,
  int4: integer,
  int8: integer,
  oid,
  float4: float,
  float8: float,
  numeric,
  bool: { expected: 'a boolean', encode: encodeBoolean },
  uuid: { expected: 'a uuid as a string', encode: encodeUuid },
  date: { expected: 'a Date or an ISO string', encode: encodeDate },
  timestamp: instant,
  timestamptz: instant,
  bytea: { expected: 'bytes (a Buffer or Uint8Array)', encode: encodeBytes },
  json,
  jsonb: json
}

/** Types whose values have one text each once encoded, so that equal keys can be seen here. */
const canonical = new Set(['int2', 'int4', 'int8', 'oid', 'bool', 'uuid', 'text', 'varchar'])

/** The encoder of a type that is no domain and no array. */
export function encoderOf (name: string, schema: string, category: string): Encoder {
  if (schema === 'pg_catalog' && Object.hasOwn(builtIn, name)) return builtIn[name] as Encoder
  return category === 'S' ? text : string
}

/** Whether equal values of the type always have equal texts. */
export function isCanonical (name: string, schema: string, category: string): boolean {
  return category === 'E' || (schema === 'pg_catalog' && canonical.has(name))
}

/**
 * The encoder of an array: nested arrays are its further dimensions, except where the element takes arrays itself, as json does, and a
 * domain over an array.
 *
 * @param delimiter - pg_type.typdelim of the element
 */
export function arrayOf (element: Encoder, delimiter: string): Encoder {
  const encode = (value: unknown): string | undefined => {
    if (!Array.isArray(value)) return encodeString(value)
    let text = ''
    for (const item of value) {
      let part: string | undefined = 'NULL'
      if (Array.isArray(item) && element.takesArrays !== true) part = encode(item)
      else if (item !== null) part = quote(element.encode(item))
      if (part === undefined) return
      text += text === '' ? part : delimiter + part
    }
    return `{${text}}`
  }
  return { expected: `an array, each element ${element.expected} or null`, encode, takesArrays: true }
}

function quote (text: string | undefined): string | undefined {
  return text === undefined ? undefined : `"${text.replace(/["\\]/g, '\\$&')}"`
}
