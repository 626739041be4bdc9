const headerLength = 20
const textOid = 25
const nullLength = -1
/** Up to here room for the worst case is taken, three bytes for a UTF-16 unit, instead of counting bytes. */
const shortText = 128
/** Up to here writing it unit by unit is faster than a call of `Buffer.write`. */
const tinyText = 24
/** A block larger than this is not kept. */
const keptLength = 1024 * 1024

/** Where texts are packed; used again and again, for blocks of memory are what costs most. */
export interface Block { bytes?: Buffer }

/**
 * Texts as `text[]` parameters in PostgreSQL's binary format, which neither side has to quote or unquote:
 * for a batch of 1,000 rows that is half of the time of JSON, and a fifth less than array literals.
 *
 * @param columns - the texts of each parameter
 * @param block - holds the parameters until the next call that is given it
 * @see https://github.com/postgres/postgres/blob/master/src/backend/utils/adt/arrayfuncs.c (array_recv)
 */
export function textArrays (columns: ReadonlyArray<ReadonlyArray<string | null>>, block: Block = {}): Buffer[] {
  let length = 0
  for (const texts of columns) {
    length += headerLength + 4 * texts.length
    for (const text of texts) {
      if (text !== null) length += text.length <= shortText ? text.length * 3 : Buffer.byteLength(text)
    }
  }
  const bytes = block.bytes !== undefined && block.bytes.length >= length ? block.bytes : Buffer.allocUnsafeSlow(length)
  block.bytes = length <= keptLength ? bytes : undefined
  let at = 0
  return columns.map(texts => {
    const start = at
    at = pack(texts, bytes, start)
    return bytes.subarray(start, at)
  })
}

/** @returns where the next one starts */
function pack (texts: ReadonlyArray<string | null>, bytes: Buffer, start: number): number {
  bytes.writeInt32BE(1, start) // dimensions
  bytes.writeInt32BE(1, start + 4) // there may be nulls
  bytes.writeInt32BE(textOid, start + 8)
  bytes.writeInt32BE(texts.length, start + 12)
  bytes.writeInt32BE(1, start + 16) // lower bound
  let at = start + headerLength
  for (const text of texts) {
    const size = text === null ? nullLength : write(text, bytes, at + 4)
    // by hand: writeInt32BE would be a third of the whole
    bytes[at] = size >>> 24
    bytes[at + 1] = size >>> 16
    bytes[at + 2] = size >>> 8
    bytes[at + 3] = size
    at += text === null ? 4 : 4 + size
  }
  return at
}

/** @returns bytes written */
function write (text: string, bytes: Buffer, at: number): number {
  const { length } = text
  if (length > tinyText) return bytes.write(text, at)
  for (let i = 0; i < length; i++) {
    const unit = text.charCodeAt(i)
    if (unit > 127) return bytes.write(text, at)
    bytes[at + i] = unit
  }
  return length
}
