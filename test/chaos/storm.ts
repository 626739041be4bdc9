import { setTimeout as delay } from 'node:timers/promises'
import { seededRandom } from '../../examples/orders/random.js'
import type { Faults } from './faults.js'
import type { Fleet } from './fleet.js'
import { SEATS } from './limits.js'
import type { Planned } from './schedule.js'

/** What the triggers by hand were answered, each reason with its count, and the runs that were started. */
export interface Triggers {
  answers: Map<string, number>
  started: string[]
}

interface Parts {
  plan: Planned[]
  length: number
  seed: number
  faults: Faults
  fleet: Fleet
  /** Ends the storm before its time. */
  signal: AbortSignal
}

/** Injects what is planned, while people ask for orders and press the button. Resolves when the time is up; what lasts may last on. */
export async function storm ({ plan, length, seed, faults, fleet, signal }: Parts): Promise<{ triggers: Triggers, lasting: Promise<unknown> }> {
  const random = seededRandom(seed ^ 0x5eed)
  const begin = performance.now()
  const triggers: Triggers = { answers: new Map(), started: [] }
  const ended = new AbortController() // not AbortSignal.timeout inside AbortSignal.any, which is collected before it fires
  setTimeout(() => ended.abort(), length)
  signal.addEventListener('abort', () => ended.abort())
  const over = ended.signal
  const pause = async (ms: number): Promise<boolean> => await delay(ms, true, { signal: over }).catch(() => false)
  const urlAt = (): string | undefined => fleet.at(Math.floor(random() * SEATS))?.url

  async function people (): Promise<void> {
    while (await pause(100 + random() * 200)) {
      const url = urlAt()
      if (url !== undefined) fetch(`${url}/orders`, { signal: AbortSignal.timeout(8_000) }).then(async response => await response.text()).catch(() => {})
    }
  }

  async function press (): Promise<void> {
    while (await pause(500 + random() * 2_000)) {
      const url = urlAt()
      if (url !== undefined) trigger(url)
    }
  }

  async function trigger (url: string): Promise<void> {
    let answer: string
    try {
      const response = await fetch(`${url}/trigger`, { method: 'POST', signal: AbortSignal.timeout(15_000) })
      const { started, reason, runId } = await response.json() as { started?: boolean, reason?: string, runId?: string }
      answer = started === undefined ? `status ${response.status}` : started ? 'started' : reason!
      if (runId !== undefined) triggers.started.push(runId)
    } catch {
      answer = 'no answer'
    }
    triggers.answers.set(answer, (triggers.answers.get(answer) ?? 0) + 1)
  }

  const lasting: Array<Promise<void>> = []
  async function inject (): Promise<void> {
    for (const planned of plan) {
      if (!await pause(Math.max(0, planned.at - (performance.now() - begin)))) return
      lasting.push(faults.inject(planned))
    }
  }

  await Promise.all([people(), press(), inject(), pause(length)])
  return { triggers, lasting: Promise.all(lasting) }
}
