import { inspect, types } from 'node:util'
import type { Pool } from 'pg'
import { duration } from './duration.js'
import { FST_HOURLY_SYNC_INVALID_OPTION } from './errors.js'
import { redact } from './failure.js'
import { EARLIEST } from './sql/text.js'

export const inWords = "milliseconds or a number with a unit such as '90s', '10m' or '1h'"

export function invalid (option: string, expected: string, got: unknown): Error {
  return new FST_HOURLY_SYNC_INVALID_OPTION(option, expected, shown(got))
}

/** A value as a message can show it: what is in an object may be a secret, and so may a part of a text. */
function shown (value: unknown): string {
  if (typeof value === 'string') return inspect(redact(value), { maxStringLength: 100 })
  if (isObject(value) && !(value instanceof Date)) return 'an object'
  return Array.isArray(value) ? 'an array' : inspect(value, { depth: -1 })
}

export function isObject (value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Of a Map, a client, a class of any kind what is meant lies elsewhere than in its properties. */
export function object (option: string, value: unknown): Record<string, unknown> {
  if (isObject(value) && isPlain(value)) return value
  // a connection string, say, must not reach the log
  const got = Array.isArray(value) ? 'an array' : isObject(value) ? 'one of another class' : `a value of type ${value === null ? 'null' : typeof value}`
  throw new FST_HOURLY_SYNC_INVALID_OPTION(option, 'an object', got)
}

function isPlain (value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value)
  return prototype === null || Object.getPrototypeOf(prototype) === null
}

export function group (option: string, value: unknown, names: string[]): Record<string, unknown> {
  const given = object(option, value)
  refuseUnknown(given, names, `${option}.`)
  return given
}

/** What a call was handed, as an object with no other names than these. */
export function argument<T extends object> (call: string, value: T, names: ReadonlyArray<keyof T & string>): Partial<Record<keyof T, unknown>> {
  const given = object(call, value)
  refuseUnknown(given, names, '')
  return given as Partial<Record<keyof T, unknown>>
}

export function refuseUnknown (given: Record<string, unknown>, names: readonly string[], within: string): void {
  for (const name of Object.keys(given)) {
    if (names.includes(name)) continue
    refuseMisspelt(name, names, within)
    throw new FST_HOURLY_SYNC_INVALID_OPTION(`${within}${name}`, `one of ${names.join(', ')}`, `'${name}'`) // the value may be a secret
  }
}

/** Refuses a name that is nearly one of these. */
export function refuseMisspelt (name: string, names: readonly string[], within: string): void {
  // two letters of a name of two are all of it
  const near = names.find(candidate => distance(candidate.toLowerCase(), name.toLowerCase()) <= Math.min(2, candidate.length / 2))
  if (near !== undefined) throw new FST_HOURLY_SYNC_INVALID_OPTION(`${within}${name}`, `spelled '${within}${near}' (did you mean that?)`, `'${name}'`)
}

/** Levenshtein distance: how many letters to add, drop or change. */
function distance (a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, j) => j)
  for (let i = 1; i <= a.length; i++) {
    const next = [i]
    for (let j = 1; j <= b.length; j++) {
      next.push(Math.min(next[j - 1]! + 1, row[j]! + 1, row[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1)))
    }
    row = next
  }
  return row[b.length]!
}

export function time (option: string, value: unknown, preset: string | number, least = 0, most = Infinity): number {
  const ms = duration(value === undefined ? preset : value)
  if (ms === undefined) throw invalid(option, inWords, value)
  if (ms < least) throw invalid(option, `at least ${least} ms`, value)
  if (ms > most) throw invalid(option, `at most ${most} ms`, value)
  return ms
}

/** Whether it is used as one: a single client is not, although it has most of the same methods. */
export function isPool (value: unknown): value is Pool {
  const { connect, query, on, listeners, totalCount } = (value ?? {}) as Partial<Pool>
  return [connect, query, on, listeners].every(method => typeof method === 'function') && typeof totalCount === 'number'
}

export function text (option: string, value: unknown): string {
  if (typeof value !== 'string' || value === '') throw invalid(option, 'a text', value)
  return value
}

export function bool (option: string, value: unknown): boolean {
  if (typeof value !== 'boolean') throw invalid(option, 'true or false', value)
  return value
}

/** A generator function is none that does anything by being called. */
export function isCallable (value: unknown): boolean {
  return typeof value === 'function' && !types.isGeneratorFunction(value)
}

export function fn (option: string, value: unknown): unknown {
  if (!isCallable(value)) throw invalid(option, 'a function, and no generator function', value)
  return value
}

/** Of a valid Date, in epoch milliseconds; otherwise `NaN`. */
export function millisecondsOf (value: unknown): number {
  return value instanceof Date ? value.getTime() : NaN
}

/** A Date that PostgreSQL can hold, in epoch milliseconds. */
export function date (option: string, value: unknown): number {
  const ms = millisecondsOf(value)
  if (Number.isNaN(ms)) throw invalid(option, 'a valid Date', value)
  if (ms < EARLIEST) throw invalid(option, 'no earlier than 4713 BC, where timestamps of PostgreSQL begin', value)
  return ms
}

export function abortSignal (option: string, value: unknown): AbortSignal {
  const { aborted, addEventListener } = isObject(value) ? value : {}
  if (typeof aborted !== 'boolean' || typeof addEventListener !== 'function') throw invalid(option, 'an AbortSignal', value)
  return value as AbortSignal
}

/** Of a run's id. */
export const UUID = '^[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$'

/** `undefined` is the first. */
export function oneOf<T extends string> (option: string, value: unknown, choices: [T, ...T[]]): T {
  if (value === undefined) return choices[0]
  const found = choices.find(choice => choice === value)
  if (found === undefined) throw invalid(option, choices.map(choice => `'${choice}'`).join(' or '), value)
  return found
}
