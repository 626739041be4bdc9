import type { Status } from '../../types.js'
import type { View } from './document.js'
import { html, type Markup } from './html.js'
import { symbol } from './symbols.js'
import { amount, plural, span, time } from './words.js'

/** Why a due slot is not being run, in words. */
const holds: Record<string, string> = {
  'first-run': 'waiting for the first slot after installation',
  paused: 'paused until the next slot: its runs kept vanishing with their process',
  vanished: 'paused until the next slot: its runs kept vanishing with their process',
  waiting: 'waiting to try again',
  spent: 'no retry is left in this slot',
  late: 'this slot is too old to be begun'
}

/** What the sync is doing at this moment, and where it stands. */
export function now (view: View): Markup {
  const { status } = view
  return html`${headline(view)}
${status.syncing ? progress(status) : null}
${troubles(status).map(text => html`<p class="trouble">${symbol('failed')}<span>${text}</span></p>`)}
<dl class="facts">
${fact('Last success', status.lastSuccess === null ? (status.unavailable === null ? 'none yet' : 'unknown') : html`${time(status.lastSuccess.finishedAt)} <span class="more">took ${span(status.lastSuccess.duration)}</span>`)}
${fact('Behind', status.behindSlots === null ? 'unknown' : status.behindSlots === 0 ? 'by nothing' : plural(status.behindSlots, 'slot'))}
${fact('Fetched up to', status.unavailable !== null ? 'unknown' : status.watermark === null ? 'nothing yet' : time(status.watermark))}
${fact('Every', span(view.every))}
${fact('This process', status.enabled
  ? html`looks for due slots${status.nextLook === null ? null : html` <span class="more">next at ${time(status.nextLook, 'clock')}</span>`}`
  : html`does not look for due slots <span class="more">${status.disabledBecause}</span>`)}
${status.backfill === null ? null : fact('Backfill', html`${time(status.backfill.position)} <span class="more">of ${time(status.backfill.since)} to ${time(status.backfill.until)}</span>`)}
</dl>
${status.lastError === null ? null : html`<p class="last-error"><strong>Last error</strong> ${time(status.lastError.at)} <span class="message">${status.lastError.name}: ${status.lastError.message}</span></p>`}`
}

function fact (name: string, value: Markup | string): Markup {
  return html`<div><dt>${name}</dt><dd>${value}</dd></div>`
}

function headline ({ status, at }: View): Markup {
  const { holder } = status
  if (status.unavailable !== null) return html`<h2 id="now-title" class="state failed">${symbol('failed')}Unknown <small>the database cannot be asked</small></h2>`
  if (status.syncing) {
    const since = holder?.startedAt ?? null
    return html`<h2 id="now-title" class="state syncing">${symbol('pending')}Syncing <small>${holder?.host == null
      ? 'something else holds the lock'
      : html`by ${holder.host}:${holder.pid}`}${since === null ? null : html`, for <span data-since="${since.toISOString()}">${span(Math.max(0, at.getTime() - since.getTime()))}</span>`}${holder?.trigger == null ? null : html`, ${holder.trigger}`}</small></h2>`
  }
  if (status.due === true) return html`<h2 id="now-title" class="state due">${symbol('missing')}Due <small>since ${time(status.slot)}, nobody runs it yet</small></h2>`
  const end = { waiting: status.notBefore, paused: status.pausedUntil }[status.hold as string] ?? status.nextSlot
  const until = end === null ? null : html`until ${time(end, 'clock')}`
  return status.hold === 'served' || status.hold === null
    ? html`<h2 id="now-title" class="state idle">${symbol('on-time')}Idle <small>${until}</small></h2>`
    : html`<h2 id="now-title" class="state due">${symbol('missing')}Waiting <small>${holds[status.hold]}, ${until}</small></h2>`
}

function progress ({ progress }: Status): Markup {
  const value = progress === null || progress.total === null || progress.total === 0 ? null : Math.min(progress.done, progress.total)
  return html`<div class="progress"><progress id="bar" aria-label="Progress of the run" ${value === null ? null : html`value="${value}" max="${progress!.total}"`}></progress>
<p id="count">${progress === null ? 'no progress told yet' : html`${amount(progress.done)}${progress.total === null ? null : html` of ${amount(progress.total)}`}`}</p></div>`
}

function troubles (status: Status): string[] {
  return [
    status.unavailable,
    status.wedged === true ? 'The run is older than its timeout and the time it is given to stop: its process may be stuck.' : null,
    status.aborted === null ? null : `The run was told to stop, and will end as ${status.aborted}.`,
    status.lastSlotAhead === true ? 'The last slot lies in the future: the clock of the database was set back.' : null,
    status.lastLook?.outcome === 'refused' ? `This process may not sync: ${status.lastLook.reason}` : null
  ].filter(text => text !== null)
}
