import type { Json } from '../../types.js'
import { html, type Markup } from './html.js'

const SECOND = 1_000
const MINUTE = 60 * SECOND
const HOUR = 60 * MINUTE
const DAY = 24 * HOUR

/** `840 ms`, `12.4 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`. */
export function span (ms: number): string {
  const long = (big: number, bigUnit: string, small: number, smallUnit: string): string => {
    const whole = Math.floor(ms / big)
    const rest = Math.floor((ms - whole * big) / small)
    return rest === 0 ? `${whole} ${bigUnit}` : `${whole} ${bigUnit} ${rest} ${smallUnit}`
  }
  if (ms < SECOND) return `${Math.max(0, Math.round(ms))} ms`
  if (ms < 59.95 * SECOND) return `${trimmed(ms / SECOND, ms < 10 * SECOND ? 2 : 1)} s`
  if (ms < HOUR) return long(MINUTE, 'min', SECOND, 's')
  return ms < DAY ? long(HOUR, 'h', MINUTE, 'min') : long(DAY, 'd', HOUR, 'h')
}

// made once: to make one takes longer than all it formats on a page
const inFull = new Intl.NumberFormat('en-US', { maximumFractionDigits: 2 })
const compact = new Intl.NumberFormat('en-US', { notation: 'compact', maximumFractionDigits: 1 })
const weekday = new Intl.DateTimeFormat('en-GB', { weekday: 'short', day: 'numeric', month: 'short', timeZone: 'UTC' })

function trimmed (value: number, digits: number): string {
  return String(Number(value.toFixed(digits)))
}

/** `14,203` */
export function amount (value: number): string {
  return inFull.format(value)
}

/** `14.2k`, for an axis. */
export function short (value: number): string {
  return compact.format(value)
}

/** `1 run`, `2 runs` */
export function plural (count: number, word: string): string {
  return `${amount(count)} ${word}${count === 1 ? '' : 's'}`
}

/** `2026-11-30 14:00:05 UTC`, without the seconds when they are none. */
export function utc (at: Date): string {
  const [day, time] = at.toISOString().split('T') as [string, string]
  return `${day} ${time.slice(0, 5)}${time.slice(5, 8) === ':00' ? '' : time.slice(5, 8)} UTC`
}

/** `Mon 30 Nov`, in UTC. */
export function dayName (at: Date): string {
  return weekday.format(at)
}

/** How an instant is written: in full, in the same year, or on the same day. */
type Style = 'full' | 'short' | 'clock'

/** An instant; the page's script shows it in the zone of who looks, and what is here is then its title. */
export function time (at: Date | null, style: Style = 'full'): Markup {
  if (at === null) return html`<span class="none">never</span>`
  const whole = utc(at)
  return html`<time datetime="${at.toISOString()}" data-style="${style}" title="${whole}">${whole.slice({ full: 0, short: 5, clock: 11 }[style])}</time>`
}

/** The numbers of a run's stats, by their names: those at the top, and one below. */
export function numbers (stats: Json): Array<[name: string, value: number]> {
  if (typeof stats === 'number') return [['stats', stats]]
  if (typeof stats !== 'object' || stats === null || Array.isArray(stats)) return []
  return Object.entries(stats).flatMap(([name, value]): Array<[string, number]> => {
    if (typeof value === 'number') return [[name, value]]
    if (typeof value !== 'object' || value === null || Array.isArray(value)) return []
    return Object.entries(value).filter((entry): entry is [string, number] => typeof entry[1] === 'number').map(([inner, number]) => [`${name}.${inner}`, number])
  })
}

/** A text no longer than so many characters. */
export function cut (text: string, length: number): string {
  const characters = [...text]
  return characters.length <= length ? text : `${characters.slice(0, length - 1).join('')}…`
}
