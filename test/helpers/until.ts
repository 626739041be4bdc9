/**
 * Resolves with the first truthy answer of `condition`, asked again and again.
 *
 * @param patience - milliseconds, generous: it only decides how long a failing test takes
 */
export async function until<T> (condition: () => T | Promise<T>, patience = 20_000): Promise<Exclude<T, undefined | null | false | 0>> {
  const end = performance.now() + patience
  for (;;) {
    const answer = await condition()
    if (answer) return answer as Exclude<T, undefined | null | false | 0>
    if (performance.now() > end) throw new Error(`not within ${patience} ms: ${condition.toString()}`)
    await new Promise(resolve => setTimeout(resolve, 20)) // between two questions
  }
}
