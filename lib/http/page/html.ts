/** Markup that may be put into other markup as it is. */
export class Markup {
  constructor (readonly text: string) {}
  toString (): string { return this.text }
}

type Part = Markup | string | number | boolean | null | undefined | Part[]

const entities: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' }

/** Marked up as written; what is put in is escaped, unless it is markup itself. `null`, `undefined` and booleans are nothing. */
export function html (texts: TemplateStringsArray, ...parts: Part[]): Markup {
  return new Markup(texts.reduce((whole, text, index) => `${whole}${shown(parts[index - 1])}${text}`))
}

function shown (part: Part): string {
  if (part instanceof Markup) return part.text
  if (Array.isArray(part)) return part.map(shown).join('')
  if (part === null || part === undefined || typeof part === 'boolean') return ''
  return String(part).replaceAll(/[&<>"']/g, character => entities[character]!)
}
