/**
 * Whether JSON makes null of a part that is not: of a number that is not finite, an invalid date, and in an array of what JSON cannot
 * express at all. (Of an object such a property is left out, which is as if it had not been there.)
 *
 * Called as `JSON.stringify` calls its replacer.
 *
 * @param holder - what the part belongs to
 * @param part - after its `toJSON`
 */
export function becomesNull (holder: object, key: string, part: unknown): boolean {
  if (part === null) return (holder as Record<string, unknown>)[key] instanceof Date
  if (typeof part === 'number' || part instanceof Number) return !Number.isFinite(Number(part))
  return Array.isArray(holder) && ['undefined', 'function', 'symbol'].includes(typeof part)
}

/**
 * A value as JSON, or `undefined` where JSON cannot express it, or would say something else without a word.
 *
 * The parts are looked at only where the text may hold a null: to be called for each is several times as slow.
 *
 * @throws what JSON.stringify throws
 */
export function faithfulJson (value: unknown): string | undefined {
  const text = JSON.stringify(value)
  if (text === undefined || !text.includes('null')) return text
  let faithful = true
  JSON.stringify(value, function (key, part) {
    if (becomesNull(this, key, part)) faithful = false
    return part
  })
  return faithful ? text : undefined
}
