/** What the router does not take literally: it decodes none of these in a static part, and `:` and `*` mean something to it. */
const special = /[#$&+,/:;=?@*()%]+/g

/** Where the routes of a sync are, below the context that registers them. */
export interface Place {
  /** A pattern of the router. */
  pattern: string
  /** The same as a request has it. */
  path: string
  /** The parameters of the pattern, and what each has to be. */
  parts: Record<string, string>
}

/**
 * The place that is made of the name: a request for the percent-encoded name finds it.
 *
 * What has a meaning to the router, or is encoded in a URL and not decoded by it, is a parameter that can only be itself; all else is
 * written as it is, for the router compares it decoded.
 *
 * @param earlier - the names that have their place already: to the router, patterns that differ in nothing but what a parameter has to be are
 * the same, so one of several gets further parameters that have to be empty
 */
export function defaultPlace (name: string, earlier: readonly string[] = []): Place {
  const like = earlier.filter(other => skeleton(other) === skeleton(name)).length
  const parts: Record<string, string> = {}
  let found = 0
  const pattern = name.replaceAll(special, text => {
    const part = `part${++found}`
    const empty = found === 1 ? Array.from({ length: like }, (_, index) => `empty${index + 1}`) : []
    parts[part] = text
    for (const name of empty) parts[name] = ''
    return `:${part}(^${text.replaceAll(/[$+/?*()]/g, '\\$&')}$)${empty.map(name => `:${name}(^$)`).join('')}`
  })
  return { pattern: `/hourly-sync/${pattern}`, path: `/hourly-sync/${encodeURIComponent(name)}`, parts }
}

/** A name as the router tells it from others. */
function skeleton (name: string): string {
  return name.replaceAll(special, '/')
}

/** From one folder to another, as a link that a proxy cannot break by cutting a prefix both have. */
export function relative (from: string, to: string): string {
  const [start, end] = [from, to].map(path => path.split('/').filter(part => part !== '')) as [string[], string[]]
  let shared = 0
  while (shared < start.length && shared < end.length && start[shared] === end[shared]) shared++
  return `./${'../'.repeat(start.length - shared)}${end.slice(shared).map(part => `${part}/`).join('')}`
}

/** Where a request for a folder without its last slash belongs: relative links need the slash. `null` when it is there. */
export function withSlash (url: string): string | null {
  const [path = '', ...query] = url.split('?')
  if (path.endsWith('/')) return null
  return `./${path.slice(path.lastIndexOf('/') + 1)}/${query.length === 0 ? '' : `?${query.join('?')}`}`
}
