/** One thing at a time, in the order they came. */
export interface Queue {
  /** Runs `work` when all before it have settled. */
  turn: <T>(work: () => Promise<T>) => Promise<T>
  /** Resolves when nothing is under way or waiting. */
  idle: () => Promise<void>
  busy: () => boolean
}

export function createQueue (): Queue {
  let tail: Promise<unknown> = Promise.resolve()
  let count = 0

  return {
    async turn (work) {
      count++
      const before = tail
      const mine = (async () => {
        await before
        return await work()
      })()
      tail = mine.then(() => {}, () => {}) // not what it came to, which would be kept until the next
      try {
        return await mine
      } finally {
        count--
      }
    },
    async idle () {
      // what is under way may itself have added more
      for (let seen; seen !== tail;) {
        seen = tail
        await seen
      }
    },
    busy: () => count > 0
  }
}
