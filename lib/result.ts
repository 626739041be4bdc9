import { inspect, types } from 'node:util'
import type { FastifyBaseLogger } from 'fastify'
import { FST_HOURLY_SYNC_INVALID_RESULT } from './errors.js'
import { becomesNull } from './json.js'
import type { SyncResult } from './types.js'

/**
 * What a sync resolved with, as far as it is a {@link SyncResult}.
 *
 * A function that happens to return something else has still done its work: that is ignored, with a warning. A known key with a
 * value that cannot be stored is an error, or a cursor would be lost. So is an iterator: its work was not done at all.
 *
 * @throws FST_HOURLY_SYNC_INVALID_RESULT
 */
export function checkedResult (returned: unknown, log: FastifyBaseLogger): SyncResult {
  if (returned === undefined || returned === null) return {}
  if (isIterator(returned)) throw new FST_HOURLY_SYNC_INVALID_RESULT('result', 'an iterator: a generator function does nothing by being called')
  const { cursor, advance, stats, ...others } = (typeof returned === 'object' ? returned : { returned }) as SyncResult & Record<string, unknown>
  if (Object.keys(others).length > 0) log.warn({ ignored: Object.keys(others).slice(0, 10) }, 'what the sync returned is ignored, but for cursor, advance and stats')
  if (advance !== undefined && typeof advance !== 'boolean') throw new FST_HOURLY_SYNC_INVALID_RESULT('advance', inspect(advance))
  storable('cursor', cursor)
  storable('stats', stats)
  return { ...(cursor !== undefined && { cursor }), ...(advance === false && { advance }), ...(stats !== undefined && { stats }) }
}

function isIterator (returned: unknown): boolean {
  const { next, [Symbol.iterator]: each, [Symbol.asyncIterator]: eachInTime } = returned as { next?: unknown, [Symbol.iterator]?: unknown, [Symbol.asyncIterator]?: unknown }
  return typeof next === 'function' && (each ?? eachInTime) !== undefined
}

/** Data that would be gone without a word; `undefined` says itself that there is none. */
function isLeftOut (value: unknown): boolean {
  return typeof value === 'function' || typeof value === 'symbol' || types.isMap(value) || types.isSet(value) || types.isPromise(value)
}

/** PostgreSQL's jsonb takes no NUL and no half of a surrogate pair. */
export function storable (key: string, value: unknown): void {
  const bad = (text: unknown): boolean => typeof text === 'string' && (text.includes('\0') || !text.isWellFormed())
  let fault: string | undefined
  try {
    const json = JSON.stringify(value, function (name, inner) {
      if (bad(name) || bad(inner)) fault = 'text that jsonb cannot hold (NUL, or half a surrogate pair)'
      if (becomesNull(this, name, inner)) fault = `${inspect(inner ?? this[name])}, which JSON makes null`
      if (isLeftOut(inner)) fault = `${inspect(inner, { depth: 0 })}, of which JSON keeps nothing`
      return inner
    })
    if (json === undefined && value !== undefined) fault ??= inspect(value)
  } catch (error) {
    fault = `not JSON (${(error as Error).message.split('\n')[0]})`
  }
  if (fault !== undefined) throw new FST_HOURLY_SYNC_INVALID_RESULT(key, fault)
}
