import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'

export interface Asset {
  type: string
  content: Buffer
  /** Changes with the content. */
  version: string
}

/** What the page loads, by the name it has below `assets/`. */
export function loadAssets (): Record<'dashboard.css' | 'dashboard.js' | 'icon.svg', Asset> {
  return {
    'dashboard.css': load('dashboard.css', 'text/css; charset=utf-8'),
    'dashboard.js': load('dashboard.js', 'text/javascript; charset=utf-8'),
    'icon.svg': load('icon.svg', 'image/svg+xml')
  }
}

function load (name: string, type: string): Asset {
  const content = readFileSync(new URL(`./assets/${name}`, import.meta.url))
  return { type, content, version: createHash('sha256').update(content).digest('hex').slice(0, 12) }
}
