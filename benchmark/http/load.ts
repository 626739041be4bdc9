import { Agent, get } from 'node:http'
import { setTimeout as rest } from 'node:timers/promises'
import { quantile } from './numbers.js'

/** Requests for a URL, of which so many are begun a second whatever the answers take. Gives the 99th percentile, milliseconds from when each was due. */
export async function p99 (url: string, { rate, seconds }: { rate: number, seconds: number }): Promise<number> {
  const agent = new Agent({ keepAlive: true, maxSockets: 50 })
  const taken: number[] = []
  const pending: Array<Promise<void>> = []
  const begun = performance.now()
  for (let index = 0; index < rate * seconds; index++) {
    const due = begun + index * 1_000 / rate
    const left = due - performance.now()
    if (left > 0.5) await rest(left)
    pending.push(new Promise((resolve, reject) => {
      get(url, { agent }, response => {
        response.resume().on('end', () => {
          taken.push(performance.now() - due)
          resolve()
        })
      }).on('error', reject)
    }))
  }
  await Promise.all(pending)
  agent.destroy()
  return quantile(taken, 0.99)
}
