import type { UpsertRows } from './upsert.js'

/** How long a host may use what a run was given. */
export interface Lifetime {
  readonly over: boolean
  /** Ends all waits of {@link Lifetime.within}, and closes what makes rows. */
  end: () => void
  /** Settles as `work` does, or rejects as soon as the lifetime is over, whatever `work` is still waiting for. */
  within: <T>(work: Promise<T>) => Promise<T>
  /** The same rows; what waits for the next one does not outlive the lifetime. */
  rows: (rows: UpsertRows) => UpsertRows
}

/** @param why - what is rejected with once it is over */
export function createLifetime (why: () => Error): Lifetime {
  const leaving = new Set<() => void>()
  let over = false

  function bounded (iterator: AsyncIterator<object>): AsyncIterator<object> {
    let isClosed = false
    let refuse!: (why: Error) => void // of the row that is waited for
    const close = async (): Promise<IteratorResult<object>> => {
      leaving.delete(leave)
      const wasClosed = isClosed
      isClosed = true
      return (wasClosed ? undefined : await iterator.return?.()) ?? { done: true, value: undefined }
    }
    const leave = (): void => {
      refuse(why())
      close().catch(() => {}) // a generator that is awaiting something does this after that; nobody waits for it
    }
    return {
      // one promise for each row: a race with what ends it would keep something of every row until then
      next: () => new Promise((resolve, reject) => {
        refuse = reject
        leaving.add(leave)
        if (over) return leave()
        Promise.resolve(iterator.next()).then(step => {
          if (step?.done === true) leaving.delete(leave)
          resolve(step)
        }, error => {
          leaving.delete(leave)
          reject(error)
        })
      }),
      return: close
    }
  }

  return {
    get over () { return over },
    end () {
      over = true
      for (const leave of leaving) leave()
    },
    within: async work => await new Promise((resolve, reject) => {
      const leave = (): void => { reject(why()) }
      leaving.add(leave)
      work.then(resolve, reject).finally(() => leaving.delete(leave))
    }),
    rows (rows) {
      const source = rows as Partial<AsyncIterable<object>> | null | undefined
      const iterable = typeof source === 'object' ? source?.[Symbol.asyncIterator] : undefined
      if (typeof iterable !== 'function') return rows // they wait for nothing
      return { [Symbol.asyncIterator]: () => bounded(iterable.call(source)) }
    }
  }
}
