import type { Clock } from './clock.js'

/** How long an answer serves. Milliseconds. */
const FRESH = 500

/**
 * Asks so that one question is in flight at a time, and its answer serves for half a second. A failure serves only those who waited for it.
 *
 * @param version - where it has changed since the question was asked, it is asked anew
 */
export function sharedAnswer<T> (clock: Clock, ask: () => Promise<T>, version: () => number = () => 0): () => Promise<T> {
  let question: { of: number, at: number, answer: Promise<T> } | undefined

  return async () => {
    if (question === undefined || question.of !== version() || clock.elapsed() - question.at > FRESH) {
      const asked = { of: version(), at: Infinity, answer: ask() }
      question = asked
      asked.answer.then(() => { asked.at = clock.elapsed() }, () => { asked.at = -Infinity })
    }
    return await question.answer
  }
}
