import type { HourRow } from '../../sql/readings.js'
import type { RunRecord, Status } from '../../types.js'
import { html, type Markup } from './html.js'
import { now } from './now.js'
import { charts } from './charts.js'
import { oneRun, runs } from './runs.js'
import { symbols } from './symbols.js'
import { week } from './week.js'
import { time } from './words.js'

/** All that the page shows. */
export interface View {
  status: Status
  /** When it was asked for, on the clock of the process. */
  at: Date
  every: number
  hours: HourRow[]
  /** Newest first. */
  runs: RunRecord[]
  /** Those that the list shows, and whether there are older ones. */
  listed: RunRecord[]
  older: boolean
  /** Whether the list is not of the newest. */
  paged: boolean
  /** The one to show in full; `null` when there is none of that id. */
  run: RunRecord | null | undefined
  /** The other syncs of the app, and where their page is, if they have one. */
  others: Array<{ name: string, href: string | undefined }>
  /** Fingerprints of script and style, so that a new version is not taken for an old one. */
  versions: { style: string, script: string }
}

/** One page that reads without its script; the script keeps its sections live by fetching it again. */
export function page (view: View): Markup {
  const { status, at, others, versions } = view
  return html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${status.name} · hourly sync</title>
<link rel="icon" type="image/svg+xml" href="assets/icon.svg">
<link rel="stylesheet" href="assets/dashboard.css?v=${versions.style}">
<script src="assets/dashboard.js?v=${versions.script}" defer></script>
</head>
<body data-now="${at.toISOString()}">
${symbols()}
<a class="skip" href="#now">To the state of the sync</a>
<header>
<div class="title"><p class="kind">Hourly sync</p><h1>${status.name}</h1></div>
<div class="tools">
<p id="live" class="live" hidden>connecting</p>
<fieldset id="zone" class="zone" hidden><legend>Times in</legend><label><input type="radio" name="zone" value="local" checked><span>local time</span></label><label><input type="radio" name="zone" value="utc"><span>UTC</span></label></fieldset>
</div>
</header>
<main>
<section id="now" class="card now" aria-labelledby="now-title">
<div data-live="now">${now(view)}</div>
<div class="act"><button id="sync" type="button" hidden>Sync now</button><p id="answer" role="status"></p></div>
<noscript><p class="hint">As of ${time(at)}. With script enabled, this page keeps itself up to date, shows your local time, and can start a run.</p></noscript>
</section>
${view.run === undefined ? null : html`<section id="run" class="card" aria-labelledby="run-title" tabindex="-1">${oneRun(view.run)}</section>`}
<section class="card" aria-labelledby="week-title" data-live="week">${week(view)}</section>
<section class="card" aria-labelledby="charts-title" data-live="charts">${charts(view)}</section>
<section id="runs" class="card" aria-labelledby="runs-title" data-live="runs">${runs(view)}</section>
${others.length === 0
  ? null
  : html`<nav class="card" aria-labelledby="others-title"><h2 id="others-title">Other syncs of this app</h2><ul class="others">${others.map(({ name, href }) =>
    html`<li>${href === undefined ? html`${name} <span class="hint">has no page</span>` : html`<a href="${href}">${name}</a>`}</li>`)}</ul></nav>`}
</main>
<footer><p>As JSON: <a href="status">status</a>, <a href="runs">runs</a>, <a href="slots">slots</a>, <a href="health">health</a>. Live: <code>events</code>.</p></footer>
</body>
</html>
`
}
