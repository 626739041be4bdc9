import { setTimeout as sleep } from 'node:timers/promises'

/**
 * Resolves with the first truthy answer of `condition`, asked again and again: waits for a condition, not for a time.
 *
 * @param what - said when it never comes true
 * @param limit - milliseconds, generous: it only decides how long a failing test takes
 */
export async function until<T> (condition: () => T | Promise<T>, what = String(condition), limit = 30_000): Promise<Exclude<T, undefined | null | false | 0>> {
  const end = performance.now() + limit
  for (;;) {
    const answer = await condition()
    if (answer) return answer as Exclude<T, undefined | null | false | 0>
    if (performance.now() > end) throw new Error(`still not so after ${limit} ms: ${what}`)
    await sleep(20) // between two questions
  }
}

/** A promise with its handles, for a test that decides when a sync goes on. */
export function gate<T = void> (): { passed: Promise<T>, open: (value: T) => void } {
  let open = (_value: T): void => {}
  const passed = new Promise<T>(resolve => { open = resolve })
  return { passed, open }
}
