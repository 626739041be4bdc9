import { setTimeout as rest } from 'node:timers/promises'

type Falsy = false | 0 | '' | null | undefined

/**
 * Asks again and again until the answer is truthy, and gives it.
 *
 * @throws when it never was within `limit` milliseconds
 */
export async function until<T> (question: () => T | Promise<T>, what: string, limit = 30_000): Promise<Exclude<T, Falsy>> {
  const end = performance.now() + limit
  for (;;) {
    const answer = await question()
    if (answer) return answer as Exclude<T, Falsy>
    if (performance.now() > end) throw new Error(`not within ${limit} ms: ${what}`)
    await rest(25)
  }
}
