import type { RunRecord } from '../../types.js'
import type { View } from './document.js'
import { html, type Markup } from './html.js'
import { amount, numbers, plural, short, span, utc } from './words.js'

const WIDTH = 384
const HEIGHT = 132
const LEFT = 46
const RIGHT = 6
const TOP = 8
const BOTTOM = 22
const HOUR = 3_600_000

/** How many numbers of the stats are drawn. */
const DRAWN = 5

interface Point { at: number, value: number, run: RunRecord }

/** How long runs took, and what they say they did, over time. */
export function charts ({ runs, at }: View): Markup {
  const end = at.getTime()
  const drawn = runs.filter(run => run.startedAt.getTime() > end - 7 * 24 * HOUR).toReversed()
  const began = Math.min(end - HOUR, drawn[0]?.startedAt.getTime() ?? end)
  const names = [...new Set(drawn.flatMap(run => numbers(run.stats).map(([name]) => name)))].slice(0, DRAWN)
  if (drawn.length === 0) return html`<h2 id="charts-title">Duration and rows</h2><p class="hint">No run in the last 7 days.</p>`
  return html`<div class="head"><h2 id="charts-title">Duration and rows</h2><p class="hint">${plural(drawn.length, 'run')}, a bar each; a cross marks one that did not succeed.</p></div>
<div class="charts">${chart('Duration', drawn.map(run => ({ at: run.startedAt.getTime(), value: run.duration, run })), began, end, span, time)}${names.map(name =>
  chart(name, drawn.flatMap(run => numbers(run.stats).filter(([other]) => other === name).map(([, value]) => ({ at: run.startedAt.getTime(), value, run }))), began, end, amount, short))}</div>`
}

/** An axis has less room than a text. */
const time = (ms: number): string => span(ms).replace(' ms', 'ms').replace(' s', 's').replace(' min', 'm').replace(' h', 'h').replace(' d', 'd')

function chart (name: string, points: Point[], from: number, to: number, inFull: (value: number) => string, onAxis: (value: number) => string): Markup {
  // one that hung until its timeout must not make all others flat
  const good = points.filter(({ run }) => run.state === 'succeeded')
  const top = ceiling(Math.max(...(good.length === 0 ? points : good).map(point => point.value)), onAxis === time)
  const x = (at: number): number => round(LEFT + (at - from) / (to - from) * (WIDTH - LEFT - RIGHT))
  const y = (value: number): number => round(HEIGHT - BOTTOM - Math.min(top, Math.max(0, value)) / top * (HEIGHT - TOP - BOTTOM))
  const width = round(Math.min(8, Math.max(1, (WIDTH - LEFT - RIGHT) / points.length * 0.6)))
  const values = points.map(point => point.value).sort((a, b) => a - b)
  const [latest, median, most] = [points.at(-1)!.value, values[Math.floor(values.length / 2)]!, values.at(-1)!]
  return html`<figure class="chart">
<figcaption><b>${name}</b> <span>latest ${inFull(latest)}</span> <span>median ${inFull(median)}</span> <span>most ${inFull(most)}</span></figcaption>
<svg viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label="${name} of ${plural(points.length, 'run')}: latest ${inFull(latest)}, median ${inFull(median)}, most ${inFull(most)}">
${[0, top / 2, top].map(value => html`<line class="grid" x1="${LEFT}" x2="${WIDTH - RIGHT}" y1="${y(value)}" y2="${y(value)}"/><text class="tick" x="${LEFT - 6}" y="${y(value) + 4}" text-anchor="end">${value === 0 ? '0' : onAxis(value)}</text>`)}
${moments(from, to).map(([at, style]) => html`<line class="grid" x1="${x(at)}" x2="${x(at)}" y1="${HEIGHT - BOTTOM}" y2="${HEIGHT - BOTTOM + 4}"/><text class="tick" x="${x(at)}" y="${HEIGHT - 5}" text-anchor="middle" data-at="${new Date(at).toISOString()}" data-style="${style}">${style === 'date' ? utc(new Date(at)).slice(5, 10) : utc(new Date(at)).slice(11, 16)}</text>`)}
${points.map(({ at, value, run }) => html`<g class="${run.state === 'succeeded' ? 'good' : 'bad'}"><title>${inFull(value)}, ${run.state}, ${utc(new Date(at))}</title><rect x="${round(x(at) - width / 2)}" y="${Math.min(y(value), HEIGHT - BOTTOM - 1)}" width="${width}" height="${Math.max(1, round(HEIGHT - BOTTOM - y(value)))}"/>${run.state === 'succeeded' ? null : html`<path d="M${x(at) - 3} ${Math.max(TOP, y(value) - 6) - 3}l6 6m0-6l-6 6"/>`}</g>`)}
</svg></figure>`
}

function round (value: number): number {
  return Math.round(value * 10) / 10
}

/** The next round number; of a duration, one that a clock would call round. */
function ceiling (value: number, isTime: boolean): number {
  const clock = [1, 2, 4, 10, 20, 40, 60, 120, 240, 600, 1_200, 2_400, 3_600, 7_200, 14_400, 28_800, 86_400].map(seconds => seconds * 1_000)
  const found = isTime && value > 500 ? clock.find(round => round >= value) : undefined
  if (found !== undefined) return found
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)))
  return [1, 2, 4, 6, 8, 10].map(step => step * power).find(round => round >= value)!
}

/** Where the axis of time is marked: days, or hours when it is short. */
function moments (from: number, to: number): Array<[at: number, style: 'date' | 'clock']> {
  const length = to - from
  const step = [HOUR / 6, HOUR / 2, HOUR, 3 * HOUR, 6 * HOUR, 24 * HOUR].find(step => length / step <= 7.5)! // no more than a week is drawn
  const first = Math.ceil((from + length * 0.02) / step) * step
  return Array.from({ length: Math.max(0, Math.floor((to - length * 0.02 - first) / step) + 1) }, (_, index) => [first + index * step, step >= 24 * HOUR ? 'date' : 'clock'])
}
