import { inspect, types } from 'node:util'
import { FST_HOURLY_SYNC_NOT_AN_ERROR } from './errors.js'
import { TransientSyncError } from './transient.js'
import type { ErrorRecord } from './types.js'

/** Codes of a network that is in trouble: Node's, undici's, and those of the resolver. */
const network = new Set([
  'ECONNRESET', 'ECONNREFUSED', 'ECONNABORTED', 'EPIPE', 'ETIMEDOUT', 'EHOSTUNREACH', 'EHOSTDOWN', 'ENETUNREACH', 'ENETDOWN', 'EAI_AGAIN', 'ENOTFOUND',
  'UND_ERR_CONNECT_TIMEOUT', 'UND_ERR_HEADERS_TIMEOUT', 'UND_ERR_BODY_TIMEOUT', 'UND_ERR_SOCKET'
])

const passing = new Set([408, 429, 502, 503, 504])

/**
 * SQLSTATEs after which the session is gone.
 *
 * 57P01 terminated by an administrator, 57P02 crash of another backend, 57P03 starting up or shutting down, 57P04 database
 * dropped, 57P05 idle_session_timeout, 25P03 idle_in_transaction_session_timeout, 25P04 transaction_timeout.
 *
 * @see https://www.postgresql.org/docs/current/errcodes-appendix.html
 */
const sessionEnds = new Set(['57P01', '57P02', '57P03', '57P04', '57P05', '25P03', '25P04'])

/** Text longer than this is cut, in characters. */
const LONGEST = 2_000

type Pattern = [RegExp, string]

const named = '(?:api[_-]?key|access[_-]?key|access[_-]?token|refresh[_-]?token|auth[_-]?token|token|secret|client[_-]?secret|password|passwd|pwd|signature|sig)'
/** What stands between a name and its value; quotes may be escaped, where JSON lies in JSON. */
const between = String.raw`(?:\\{0,8}["']?\s*[=:]|\\{0,8}["']\s*,)\s*(?:\[\s*)?`

const secrets: Pattern[] = [
  // a password may hold a raw / or @
  [/\b([a-z][a-z\d+.-]{0,30}:\/\/)[^\s/@:]{0,200}:[^\s@]{0,200}(?:@[^\s/?#@]{0,200}){0,8}@/gi, '$1***@'],
  [new RegExp(String.raw`(authorization${between}\\{0,8}["']?)(?:[\w-]+\s+)?[^\s"',;\\]+`, 'gi'), '$1***'],
  [/\b(bearer\s+)[\w.~+/-]+=*/gi, '$1***'],
  [new RegExp(String.raw`(${named}${between}(["']))(?:\\[^]|(?!\2)[^\\])*`, 'gi'), '$1***'],
  [new RegExp(String.raw`(${named}${between}\\{1,8}(["']))(?:(?!\\{0,8}\2)[^])*`, 'gi'), '$1***'],
  [new RegExp(String.raw`(${named}${between})(?![\\"'[])[^\s"'&,;\\]+`, 'gi'), '$1***']
]

/**
 * Takes secrets out of a text and cuts it, so that it can be stored and shown.
 *
 * @param further - patterns of the host, global; they come first, while the text is as the host wrote it
 */
export function redact (text: string, further: readonly RegExp[] = []): string {
  // cut first as well: the time a pattern takes must not depend on what a server sends
  const patterns = [...further.map((pattern): Pattern => [pattern, '***']), ...secrets]
  const clean = patterns.reduce((rest, [pattern, instead]) => rest.replace(pattern, instead), text.slice(0, 4 * LONGEST).replaceAll('\0', ''))
  const cut = clean.length > LONGEST ? `${clean.slice(0, LONGEST - 1)}…` : clean
  return cut.toWellFormed() // jsonb takes neither NUL nor half of a surrogate pair
}

const UNREADABLE = 'something that cannot be read'

/** Whatever was thrown, as an error that the functions below can read. */
export function asError (thrown: unknown): Error {
  try {
    if (!(thrown instanceof Error || types.isNativeError(thrown))) return new FST_HOURLY_SYNC_NOT_AN_ERROR(inspect(thrown, { depth: 1 }))
    for (const read of [isTransient, errorRecord, logged]) read(thrown)
    return thrown
  } catch { // of a getter, a proxy, an object that cannot be a text
    return new FST_HOURLY_SYNC_NOT_AN_ERROR(UNREADABLE)
  }
}

interface Loose { name?: unknown, code?: unknown, status?: unknown, statusCode?: unknown, response?: { status?: unknown, statusCode?: unknown }, cause?: unknown, errors?: unknown }

/** An error and its causes, outermost first: no more of them than anyone makes, for causes may go in a circle. */
function * chain (error: unknown): Generator<Loose> {
  let at = error
  for (let depth = 0; depth < 5 && typeof at === 'object' && at !== null; depth++) {
    yield at as Loose
    at = (at as Loose).cause
  }
}

function statusOf (error: Loose): number | undefined {
  return [error.statusCode, error.status, error.response?.status, error.response?.statusCode].find(value => typeof value === 'number')
}

/**
 * Whether a failure is expected to pass by itself: a {@link TransientSyncError}, a network error, a `TimeoutError` as `AbortSignal.timeout()` makes one, or an HTTP
 * status of 408, 429, 502, 503 or 504, on the error itself or on one of its causes (`fetch` hides the network's error in `cause`).
 */
export function isTransient (error: unknown): boolean {
  for (const link of chain(error)) {
    if (link instanceof TransientSyncError) return true
    if (link.name === 'TimeoutError') return true
    if (typeof link.code === 'string' && network.has(link.code)) return true
    if (passing.has(statusOf(link) as number)) return true
  }
  return false
}

/** The longest rest that a {@link TransientSyncError} in it asks for, milliseconds. */
export function retryAfterOf (error: unknown): number | undefined {
  const asked = [...chain(error)].map(link => link instanceof TransientSyncError ? link.retryAfter : undefined).filter(ms => ms !== undefined)
  return asked.length === 0 ? undefined : Math.max(...asked)
}

/**
 * Whether the driver's error means that the session is gone, and not just the statement. What the socket tells comes as an event; an error
 * of class 08 may be of a foreign server.
 */
export function endsSession (error: unknown): boolean {
  const { code, severity } = (error ?? {}) as { code?: unknown, severity?: unknown }
  return typeof code === 'string' && sessionEnds.has(code) && severity !== 'ERROR'
}

/** Whether the server itself said so, and goes on: not a network, a limit of ours, or the end of the session. */
export function isAnswer (error: unknown): error is Error {
  return error instanceof Error && 'severity' in error && !endsSession(error)
}

/**
 * The message of an error, never an empty one: of a connection refused at each of several addresses, those of the errors it gathers.
 *
 * @see https://nodejs.org/api/net.html#socketconnectoptions-connectlistener
 */
export function messageOf (error: Error): string {
  const message = String(error.message)
  if (message !== '') return message
  const { errors, code } = error as Loose
  const gathered = Array.isArray(errors) ? [...new Set(errors.slice(0, 10).map(told))].join('; ') : ''
  return gathered || String(code ?? error.name)
}

/** The same of anything, also where it cannot be read. */
function told (thrown: unknown): string {
  try {
    return thrown instanceof Error ? messageOf(thrown) : inspect(thrown, { depth: 0 })
  } catch {
    return UNREADABLE
  }
}

/** An error of upsert says all itself, and its cause may hold a value. */
function tellsAll ({ code }: Loose): boolean {
  return String(code).startsWith('FST_HOURLY_SYNC_UPSERT_')
}

/** The message of an error, and those of its causes: `fetch` says no more than that it failed. */
function reasonOf (error: Error): string {
  let reason = messageOf(error)
  let before = error as Loose
  for (const cause of chain(before.cause)) {
    if (!(cause instanceof Error) || tellsAll(before)) break
    const message = told(cause)
    if (!reason.includes(message)) reason += ` (${message})`
    before = cause
  }
  return reason
}

/** What is kept of an error in the history: redacted, cut, without its stack. Code and status are the outermost that it or a cause has. */
export function errorRecord (error: Error, transient = false, further: readonly RegExp[] = []): ErrorRecord {
  const links = [...chain(error)]
  const code = links.map(({ code }) => code).find(code => typeof code === 'string')
  const statusCode = links.map(statusOf).find(status => status !== undefined)
  return {
    name: redact(String(error.name), further),
    message: redact(reasonOf(error), further),
    ...(code !== undefined && { code: redact(code, further) }),
    ...(statusCode !== undefined && { statusCode }),
    ...(transient && { transient })
  }
}

/** The same in ASCII, which every database can hold. */
export function plainRecord (record: ErrorRecord): ErrorRecord {
  return JSON.parse(JSON.stringify(record).replace(/[^ -~]/g, '?')) as ErrorRecord
}

/** A stored error as it may be shown: it may have been stored before a pattern was known. */
export function shownError<E extends ErrorRecord> (error: E, further: readonly RegExp[]): E {
  return {
    ...error,
    name: redact(error.name, further),
    message: redact(error.message, further),
    ...(error.code !== undefined && { code: redact(error.code, further) })
  }
}

/** An error as it may be logged: with the same redaction as what is stored. */
export function logged (error: Error, further: readonly RegExp[] = []): Error {
  const { code, cause } = error as Loose
  const copy = Object.assign(new Error(redact(messageOf(error), further)), {
    ...(typeof code === 'string' && { code: redact(code, further) }),
    ...(cause !== undefined && { cause: redact(tellsAll(error as Loose) ? String((cause as Loose | null)?.code) : told(cause), further) })
  })
  copy.name = redact(String(error.name), further)
  copy.stack = redact(String(error.stack), further)
  // a log's serializer takes the type from here
  Object.defineProperty(copy, 'constructor', { value: error.constructor, enumerable: false })
  return copy
}
