import { blake2b } from '@noble/hashes/blake2.js'

/**
 * The advisory lock key of a name, for `pg_try_advisory_lock(bigint)`.
 *
 * A public, frozen contract: BLAKE2b with an 8-byte digest of the UTF-8 name, read as a signed big-endian
 * 64-bit integer. Whoever hashes the same name in another language shares the lock. A longer digest that is
 * cut gives other values.
 *
 * @see https://www.rfc-editor.org/rfc/rfc7693
 */
export function lockKey (name: string): bigint {
  const digest = blake2b(new TextEncoder().encode(name), { dkLen: 8 })
  return new DataView(digest.buffer, digest.byteOffset, 8).getBigInt64(0)
}

/** The two unsigned halves under which `pg_locks` shows a key: `classid` and `objid`, with `objsubid` 1. */
export function lockHalves (key: bigint): { classid: number, objid: number } {
  const bits = BigInt.asUintN(64, key)
  return { classid: Number(bits >> 32n), objid: Number(bits & 0xffffffffn) }
}
