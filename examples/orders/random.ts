/** Numbers in [0, 1), the same ones for the same seed: what looks random in the demo can be repeated in a test. */
export function seededRandom (seed: number): () => number {
  let state = seed | 0
  return () => {
    state = (state + 0x9E3779B9) | 0 // the golden ratio: it visits every state before it comes round
    let bits = Math.imul(state ^ (state >>> 16), 0x85EBCA6B)
    bits = Math.imul(bits ^ (bits >>> 13), 0xC2B2AE35)
    return ((bits ^ (bits >>> 16)) >>> 0) / 2 ** 32
  }
}
