import type { Clock } from './clock.js'

/** How long an answer serves. Milliseconds. */
const FRESH = 500

/** Asks so that one question is in flight at a time, and its answer serves for half a second. A failure serves only those who waited for it. */
export function sharedAnswer<T> (clock: Clock, ask: () => Promise<T>): () => Promise<T> {
  let question: { at: number, answer: Promise<T> } | undefined

  return async () => {
    if (question === undefined || clock.elapsed() - question.at > FRESH) {
      const asked = { at: Infinity, answer: ask() }
      question = asked
      asked.answer.then(() => { asked.at = clock.elapsed() }, () => { question = undefined })
    }
    return await question.answer
  }
}
