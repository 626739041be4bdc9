import { setTimeout as sleep } from 'node:timers/promises'

/** Waits for a condition, not for a time. The limit is generous: machines that test are busy. */
export async function until<T> (condition: () => T | Promise<T>, limit = 30_000): Promise<NonNullable<T>> {
  const end = performance.now() + limit
  for (;;) {
    const found = await condition()
    if (found) return found
    if (performance.now() > end) throw new Error(`still not so after ${limit} ms: ${condition}`)
    await sleep(10) // so that what is waited for gets its turn
  }
}

/** A promise with its handles, for a test that decides when a sync goes on. */
export function gate<T = void> (): { passed: Promise<T>, open: (value: T) => void } {
  let open = (_value: T): void => {}
  const passed = new Promise<T>(resolve => { open = resolve })
  return { passed, open }
}
