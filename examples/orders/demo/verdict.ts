import { setTimeout as delay } from 'node:timers/promises'
import type { Order } from '../order.js'
import { differences } from './differences.js'
import type { History } from './history.js'
import { timeOfDay } from './narrator.js'

export interface VerdictOptions {
  slots: number
  /** Slot length, milliseconds. */
  every: number
  history: History
  orderServiceUrl: string
  /** Any of the servers. */
  serverUrl: string
  whoRan: (run: string) => string | undefined
  say: (line: string) => void
  signal: AbortSignal
}

/** A run that began at the very end of its slot is still given this long, milliseconds. */
const late = 10_000

/** Lets `slots` full slots go by and looks at what came of them. @returns whether all is as promised */
export async function reachVerdict (options: VerdictOptions): Promise<boolean> {
  const { slots, every, history, say, signal } = options
  // the first run fetches everything; if it reaches into the next slot, that one is not a slot like the others
  const deadline = Date.now() + 3 * every
  while (!await history.anySucceeded()) {
    if (Date.now() > deadline) throw new Error(`no run succeeded in ${3 * every / 1000} seconds`)
    await delay(200, undefined, { signal })
  }
  const first = Math.ceil(Date.now() / every) * every
  const end = first + slots * every
  say(`${slots} full slot${slots === 1 ? '' : 's'}, from ${timeOfDay(first)} to ${timeOfDay(end)}, then the check`)

  let good = true
  for (let slot = first; slot < end; slot += every) {
    await until(slot + every, signal)
    const line = await slotVerdict(slot, options)
    say(`slot ${timeOfDay(slot)}: ${line.text}`)
    good &&= line.good
  }

  const frozen = await ask<{ settled_at: string }>('POST', `${options.orderServiceUrl}/admin/freeze`, signal)
  say('the order service changes nothing any more; one last sync once everything is visible')
  await until(Date.parse(frozen.settled_at), signal)
  await syncOnceMore(options)

  const truth = await ask<Order[]>('GET', `${options.orderServiceUrl}/admin/orders`, signal)
  const found = differences(truth, await history.orders())
  for (const line of found.slice(0, 10)) say(`  ${line}`)
  say(found.length === 0
    ? `orders: all ${truth.length} in PostgreSQL equal those of the service, field by field`
    : `orders: ${found.length} of ${truth.length} differ`)
  return good && found.length === 0
}

async function slotVerdict (slot: number, { every, history, whoRan, signal }: VerdictOptions): Promise<{ good: boolean, text: string }> {
  let runs = await history.runsOf(slot)
  while (!runs.some(({ state }) => state === 'succeeded') && Date.now() < slot + every + late) {
    await delay(200, undefined, { signal })
    runs = await history.runsOf(slot)
  }
  const succeeded = runs.filter(({ state }) => state === 'succeeded')
  const list = runs.map(({ id, state, trigger }) => `${whoRan(id) ?? 'somebody'} ${state} (${trigger})`).join(', ')
  return succeeded.length === 1
    ? { good: true, text: `one succeeded run: ${list}` }
    : { good: false, text: `${succeeded.length} succeeded runs instead of one${list === '' ? '' : `: ${list}`}` }
}

/** A run that began after everything was visible. One that is under way began before, so it is waited for. */
async function syncOnceMore ({ every, history, serverUrl, signal }: VerdictOptions): Promise<void> {
  const deadline = Date.now() + 2 * every
  let run: string | undefined
  let last = ''
  while (Date.now() < deadline) {
    if (run === undefined) {
      const answer = await ask<{ runId?: string, reason?: string }>('POST', `${serverUrl}/orders/refresh`, signal)
      run = answer.runId
      last = answer.reason ?? last
    } else {
      const state = await history.stateOf(run)
      if (state === 'succeeded') return
      if (state !== undefined) {
        last = state
        run = undefined
      }
    }
    await delay(250, undefined, { signal })
  }
  throw new Error(`the last sync did not succeed in time (${last === '' ? 'still running' : last})`)
}

async function until (at: number, signal: AbortSignal): Promise<void> {
  // a timer may fire a moment early
  while (Date.now() < at) await delay(Math.max(1, at - Date.now()), undefined, { signal })
}

async function ask<T> (method: string, url: string, signal: AbortSignal): Promise<T> {
  const response = await fetch(url, { method, signal: AbortSignal.any([signal, AbortSignal.timeout(15_000)]) })
  return await response.json() as T
}
