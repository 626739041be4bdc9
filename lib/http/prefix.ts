/** What the router does not take literally: it decodes none of these in a static part, and `:` and `*` mean something to it. */
const special = /[#$&+,/:;=?@*()%]+/g

/**
 * The routes of a sync, as a pattern of the router: a request for the percent-encoded name finds them.
 *
 * What has a meaning to the router, or is encoded in a URL and not decoded by it, is a parameter that can only be itself; all else is
 * written as it is, for the router compares it decoded.
 */
export function defaultPattern (name: string): string {
  let parameters = 0
  return `/hourly-sync/${name.replaceAll(special, found => `:part${++parameters}(^${found.replaceAll(/[$+/?*()]/g, '\\$&')}$)`)}`
}

/** The parameters of {@link defaultPattern}, and what each has to be. */
export function patternParts (name: string): Record<string, string> {
  return Object.fromEntries([...name.matchAll(special)].map(([found], index) => [`part${index + 1}`, found]))
}

/** The same as a request has it. */
export function defaultPath (name: string): string {
  return `/hourly-sync/${encodeURIComponent(name)}`
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
