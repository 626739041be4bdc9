import type { HourRow } from '../../sql/readings.js'
import type { View } from './document.js'
import { html, type Markup } from './html.js'
import { symbol } from './symbols.js'
import { cut, dayName, plural, span, time } from './words.js'

const HOUR = 3_600_000
const DAYS = 7

/** How much the picture is made of, milliseconds: a day more than it shows, for the days of another zone begin elsewhere. */
export const PICTURED = (DAYS + 1) * 24 * HOUR

const words: Record<string, string> = {
  'on-time': 'on time', 'caught-up': 'caught up', failed: 'failed', missing: 'missing', pending: 'not over', unknown: 'no record'
}

/** In this order one of them says what the hour is. */
const order = ['failed', 'missing', 'caught-up', 'on-time', 'pending'] as const

const legend = ['on-time', 'caught-up', 'failed', 'missing', 'pending'] as const

/** The last seven days, an hour a cell. The script moves the cells to the days of the viewer's zone. */
export function week ({ hours, at, every }: View): Markup {
  const known = new Map(hours.map(hour => [Number(hour.hour), hour]))
  const last = Math.floor(at.getTime() / HOUR) * HOUR
  const today = Math.floor(at.getTime() / (24 * HOUR)) * 24 * HOUR
  const days = Array.from({ length: DAYS + 1 }, (_, index) => today - (DAYS - index) * 24 * HOUR)
  const isBegun = (hour: number): boolean => every <= HOUR || known.has(hour)
  const first = today - (DAYS - 1) * 24 * HOUR
  const counts = Object.fromEntries(order.map(state => [state, hours.filter(({ hour }) => Number(hour) >= first).reduce((sum, hour) => sum + countOf(hour, state), 0)]))
  return html`<div class="head"><h2 id="week-title">Last 7 days</h2><ul class="legend" aria-label="What the slots came to">${legend.map(state =>
    html`<li class="${state}">${symbol(state)}${words[state]} <b>${counts[state]}</b></li>`)}<li class="unknown">${symbol('unknown')}no record</li></ul></div>
<p class="hint" id="week-hint">${every <= HOUR ? 'An hour a cell' : `A slot of ${span(every)} stands in the hour it begins in`}; a cell links to the run that says why.</p>
<div class="week" id="week">
<div class="axis" aria-hidden="true"><span></span>${Array.from({ length: 24 }, (_, hour) => html`<span>${String(hour).padStart(2, '0')}</span>`)}</div>
<ol class="days">${days.map((day, index) =>
  html`<li class="day" ${index === 0 ? html`hidden` : null}><h3>${dayName(new Date(day))}</h3><ol class="hours">${Array.from({ length: 24 }, (_, hour) => day + hour * HOUR).map(hour =>
    html`<li data-at="${hour}">${hour > last || !isBegun(hour) ? null : cell(hour, known.get(hour))}</li>`)}</ol></li>`)}</ol>
</div>
<p class="detail" id="detail" hidden></p>`
}

function cell (at: number, hour: HourRow | undefined): Markup {
  const state = hour === undefined ? 'unknown' : order.find(state => countOf(hour, state) > 0)!
  const text = html`${symbol(state)}<span class="sr"><time datetime="${new Date(at).toISOString()}" data-style="hour">${dayName(new Date(at))} ${new Date(at).toISOString().slice(11, 16)} UTC</time> ${hour === undefined ? words.unknown : inWords(hour, state)}</span>`
  return hour?.run == null
    ? html`<span class="cell ${state}" tabindex="0">${text}</span>`
    : html`<a class="cell ${state}" href="?run=${hour.run}#run">${text}</a>`
}

function inWords (hour: HourRow, state: string): Markup {
  const total = order.reduce((sum, state) => sum + countOf(hour, state), 0)
  const what = total === 1 ? words[state]! : order.filter(state => countOf(hour, state) > 0).map(state => `${countOf(hour, state)} ${words[state]!}`).join(', ')
  if (hour.run === null || hour.run_started_at === null) return html`<b>${what}</b>${state === 'missing' ? ': nobody ran it, and no later run has fetched it' : null}`
  const began = new Date(Number(hour.run_started_at))
  const took = span(Number(hour.run_finished_at) - Number(hour.run_started_at))
  const after = hour.failures === 0 || state === 'failed' ? '' : ` after ${plural(hour.failures, 'run')} that did not succeed,`
  const by = state === 'caught-up' ? 'by the run of' : total === 1 ? 'by its run of' : `of ${plural(total, 'slot')}; see the run of`
  return html`<b>${what}</b>${after} ${by} ${time(began)} (${hour.trigger}, ${hour.run_state}, took ${took})${hour.error === null ? null : html`: ${cut(hour.error, 160)}`}`
}

function countOf (hour: HourRow, state: string): number {
  return hour[state.replace('-', '_') as 'failed']
}
