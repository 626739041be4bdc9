import type { RunRecord } from '../../types.js'
import type { View } from './document.js'
import { html, type Markup } from './html.js'
import { symbol } from './symbols.js'
import { amount, cut, numbers, span, time } from './words.js'

/** How each state of a run is drawn. */
const shapes: Record<string, string> = {
  succeeded: 'on-time', failed: 'failed', 'timed-out': 'failed', interrupted: 'stopped', 'lock-lost': 'failed', vanished: 'missing'
}

/** The runs themselves, newest first. */
export function runs ({ listed, older, paged }: View): Markup {
  return html`<div class="head"><h2 id="runs-title">${paged ? 'Older runs' : 'Latest runs'}</h2></div>
${listed.length === 0
  ? html`<p class="hint">${paged ? 'There are none.' : 'No run has ended yet.'}</p>`
  : html`<table role="table" aria-labelledby="runs-title">
<thead role="rowgroup"><tr role="row"><th role="columnheader" scope="col">Began</th><th role="columnheader" scope="col">Ended as</th><th role="columnheader" scope="col">Why</th><th role="columnheader" scope="col">Window</th><th role="columnheader" scope="col">Took</th><th role="columnheader" scope="col">Result</th><th role="columnheader" scope="col">By</th></tr></thead>
<tbody role="rowgroup">${listed.map(run => html`<tr role="row">
<td role="cell" data-name="Began"><a href="?run=${run.id}#run">${time(run.startedAt, 'short')}</a></td>
<td role="cell" data-name="Ended as">${state(run)}</td>
<td role="cell" data-name="Why" class="why">${run.trigger}${part(run)}</td>
<td role="cell" data-name="Window">${window(run)}</td>
<td role="cell" data-name="Took" class="number">${span(run.duration)}</td>
<td role="cell" data-name="Result">${run.error === null ? stats(run) : html`<span class="message">${cut(`${run.error.name}: ${run.error.message}`, 140)}</span>`}</td>
<td role="cell" data-name="By" class="by">${run.worker}</td>
</tr>`)}</tbody></table>`}
<p class="pages">${paged ? html`<a href="./#runs">Latest runs</a>` : null}${older ? html`<a href="?before=${listed.at(-1)!.id}#runs">Older runs</a>` : null}</p>`
}

/** One run in full. */
export function oneRun (run: RunRecord | null): Markup {
  if (run === null) return html`<div class="head"><h2 id="run-title">No such run</h2><a class="close" href="./">Close</a></div><p class="hint">No run of this sync has that id; perhaps it was pruned, or has not ended yet.</p>`
  const facts: Array<[string, Markup | string | number]> = [
    ['Ended as', state(run)],
    ['Began', time(run.startedAt)],
    ['Ended', time(run.finishedAt)],
    ['Took', span(run.duration)],
    ['Why', html`${run.trigger}${part(run)}`],
    ['Slot', run.slot === null ? 'none, it was a backfill' : time(run.slot)],
    ['Window', window(run, 'full')],
    ['By', run.worker],
    ['Id', html`<a href="runs/${run.id}"><code>${run.id}</code></a>`]
  ]
  return html`<div class="head"><h2 id="run-title">Run of ${time(run.startedAt)}</h2><a class="close" href="./">Close</a></div>
<dl class="facts">${facts.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
${run.error === null ? null : html`<h3>Error</h3><pre class="message">${run.error.name}${run.error.code === undefined ? null : ` (${run.error.code})`}${run.error.statusCode === undefined ? null : `, status ${run.error.statusCode}`}: ${run.error.message}</pre>`}
${run.stats === null ? null : html`<h3>Stats</h3><pre>${JSON.stringify(run.stats, null, 2)}</pre>`}`
}

function state (run: RunRecord): Markup {
  return html`<span class="run-state ${run.state}">${symbol(shapes[run.state]!)}${run.state}</span>`
}

function part (run: RunRecord): Markup {
  return html`${run.attempt > 1 ? html` <span class="more">attempt ${run.attempt}</span>` : null}${run.slices > 1 ? html` <span class="more">part ${run.slice} of ${run.slices}</span>` : null}`
}

function window (run: RunRecord, style?: 'full'): Markup {
  const isShort = run.since !== null && run.until.getTime() - run.since.getTime() < 86_400_000
  const how = style ?? (isShort ? 'clock' : 'short')
  return html`${run.since === null ? 'everything' : time(run.since, how)} to ${time(run.until, how)}`
}

function stats (run: RunRecord): Markup {
  const found = numbers(run.stats)
  if (found.length > 0) return html`${found.slice(0, 5).map(([name, value]) => html`<span class="stat">${name} <b>${amount(value)}</b></span> `)}`
  return run.stats === null ? html`<span class="none">none told</span>` : html`<code>${cut(JSON.stringify(run.stats), 80)}</code>`
}
