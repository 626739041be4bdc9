const headerLength = 20
const textOid = 25

/**
 * Texts as one `text[]` parameter in PostgreSQL's binary format, which neither side has to quote or unquote:
 * for a batch of 1,000 rows that is half of the time of JSON, and a fifth less than array literals.
 *
 * @see https://github.com/postgres/postgres/blob/master/src/backend/utils/adt/arrayfuncs.c (array_recv)
 */
export function textArray (texts: ReadonlyArray<string | null>): Buffer {
  let length = headerLength
  for (const text of texts) length += 4 + (text === null ? 0 : Buffer.byteLength(text))
  const buffer = Buffer.allocUnsafe(length)
  buffer.writeInt32BE(1, 0) // dimensions
  buffer.writeInt32BE(1, 4) // there may be nulls
  buffer.writeInt32BE(textOid, 8)
  buffer.writeInt32BE(texts.length, 12)
  buffer.writeInt32BE(1, 16) // lower bound
  let at = headerLength
  for (const text of texts) {
    const size = text === null ? -1 : buffer.write(text, at + 4)
    buffer.writeInt32BE(size, at)
    at += 4 + Math.max(size, 0)
  }
  return buffer
}
