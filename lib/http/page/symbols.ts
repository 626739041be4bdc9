import { html, type Markup } from './html.js'

/** The shapes that stand beside every word for a state; none is told by its colour alone. */
const shapes: Record<string, Markup> = {
  'on-time': html`<circle cx="8" cy="8" r="3.5" fill="currentColor"/>`,
  'caught-up': html`<circle cx="8" cy="8" r="4.75" fill="none" stroke="currentColor" stroke-width="1.5"/><path d="M8 3.25a4.75 4.75 0 0 0 0 9.5z" fill="currentColor"/>`,
  failed: html`<path d="M4.25 4.25l7.5 7.5m0-7.5l-7.5 7.5" fill="none" stroke="currentColor" stroke-width="2.25" stroke-linecap="round"/>`,
  missing: html`<rect x="3.75" y="3.75" width="8.5" height="8.5" rx="1" fill="none" stroke="currentColor" stroke-width="1.5" stroke-dasharray="2.5 1.75"/>`,
  pending: html`<circle cx="3.75" cy="8" r="1.25" fill="currentColor"/><circle cx="8" cy="8" r="1.25" fill="currentColor"/><circle cx="12.25" cy="8" r="1.25" fill="currentColor"/>`,
  unknown: html`<circle cx="8" cy="8" r="1" fill="currentColor"/>`,
  stopped: html`<rect x="4.25" y="4.25" width="7.5" height="7.5" rx="1" fill="currentColor"/>`
}

/** Defined once a page. */
export function symbols (): Markup {
  return html`<svg class="symbols" width="0" height="0" aria-hidden="true" focusable="false">${Object.entries(shapes).map(([name, shape]) =>
    html`<symbol id="s-${name}" viewBox="0 0 16 16">${shape}</symbol>`)}</svg>`
}

export function symbol (name: string): Markup {
  return html`<svg class="shape" width="16" height="16" aria-hidden="true" focusable="false"><use href="#s-${name}"/></svg>`
}
