import { parse } from '@lukeed/ms'

const oneUnit = /^(\d*\.?\d+) ?([a-z]+)$/

/**
 * A duration in whole milliseconds.
 *
 * Numbers are milliseconds; a string is one number with a unit that `@lukeed/ms` knows. Capitals are refused,
 * since `'1M'` may mean a month, and so is a string without a unit.
 *
 * @returns milliseconds, or `undefined` for anything else
 */
export function duration (value: unknown): number | undefined {
  if (typeof value === 'number') return Number.isSafeInteger(value) && value >= 0 ? value : undefined
  if (typeof value !== 'string') return undefined
  const [, count, unit] = oneUnit.exec(value) ?? []
  const scale = parse(`1${unit}`) // of one unit: the library answers nothing for a zero
  if (count === undefined || scale === undefined) return undefined
  const ms = Math.round(Number(count) * scale)
  return Number.isSafeInteger(ms) ? ms : undefined
}
