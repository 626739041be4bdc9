/** What has to be undone, last first; the shape that the test helpers take. */
export interface Scope {
  teardown: (fn: () => unknown) => void
  end: () => Promise<void>
}

export function openScope (): Scope {
  const undo: Array<() => unknown> = []
  let ending: Promise<void> | undefined

  async function end (): Promise<void> {
    for (let fn = undo.pop(); fn !== undefined; fn = undo.pop()) {
      try {
        await fn()
      } catch (error) {
        console.error('while cleaning up:', error)
      }
    }
  }

  return {
    teardown: fn => { undo.push(fn) },
    end: async () => await (ending ??= end())
  }
}
