import { type Clock, wait } from '../clock.js'
import { awayDelay } from '../schedule.js'
import type { RunRecord } from '../types.js'
import type { Feed, Told } from './feed.js'

/** One client that listens. */
export interface Listener {
  write: (text: string) => void
  end: () => void
}

/** Looks while somebody listens, and never otherwise. */
export interface Hub {
  readonly size: number
  /** Grows whenever listeners are told something, and with the first of them: what was read before may be old. */
  readonly news: number
  /** @param missed - runs whose end it has not heard of, oldest first */
  add: (listener: Listener, missed: RunRecord[]) => void
  remove: (listener: Listener) => void
  /** Ends every listener, and takes no more. */
  close: () => void
}

/** How many may listen. */
export const MOST_LISTENERS = 500

/** From the end of a look to the next, milliseconds. */
const PACE = 1_000

/** So many looks without a word, and one is said that means nothing: proxies cut what is silent. */
const SILENCE = 15

/** How many are written to before requests get their turn. */
const AT_ONCE = 25

export function createHub (createFeed: () => Feed, clock: Clock): Hub {
  const listeners = new Set<Listener>()
  let feed: Feed | undefined
  let stop: AbortController | undefined
  let closed = false
  let news = 0

  async function look (signal: AbortSignal): Promise<void> {
    const own = feed = createFeed()
    let silent = 0
    for (let away = 0; !signal.aborted;) {
      try {
        const told = await own.next()
        away = 0
        silent = told.length === 0 ? silent + 1 : 0
        if (told.length > 0) {
          news++ // before they come and ask
          await say(told.map(format).join(''), signal)
        } else if (silent % SILENCE === 0) await say(':\n\n', signal)
      } catch {
        away++ // the status says what is wrong with the database
      }
      await wait(clock, away === 0 ? PACE : awayDelay(away, 0.5), signal)
    }
  }

  async function say (text: string, signal: AbortSignal): Promise<void> {
    let written = 0
    for (const listener of [...listeners]) {
      if (signal.aborted) return
      if (listeners.has(listener)) listener.write(text)
      if (++written % AT_ONCE === 0) await new Promise(resolve => setImmediate(resolve))
    }
  }

  function remove (listener: Listener): void {
    listeners.delete(listener)
    if (listeners.size > 0) return
    stop?.abort()
    stop = feed = undefined
  }

  return {
    get size () { return listeners.size },
    get news () { return news },
    add (listener, missed) {
      if (closed) return listener.end()
      const told: Told[] = [...missed.map((data): Told => ({ event: 'ended', data })), ...feed?.now() ?? []]
      // one chunk that says how soon to come back
      listener.write(`retry: 3000\n\n${told.map(format).join('')}`)
      listeners.add(listener)
      if (stop !== undefined) return
      news++ // what happened before the first look is told to nobody
      stop = new AbortController()
      look(stop.signal)
    },
    remove,
    close () {
      closed = true
      for (const listener of [...listeners]) {
        remove(listener)
        listener.end()
      }
    }
  }
}

/** As server-sent events are written; the id is that of the last run that has ended. */
function format ({ event, data }: Told): string {
  return `event: ${event}\n${event === 'ended' ? `id: ${data.id}\n` : ''}data: ${JSON.stringify(data)}\n\n`
}
