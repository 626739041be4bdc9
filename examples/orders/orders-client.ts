import { setTimeout as delay } from 'node:timers/promises'
import type { Order } from './order.js'
import type { OrderPage } from './order-page.js'

export interface OrdersRequest {
  baseUrl: string
  key: string
  /** The half-open window of changes; `null` leaves a side open. */
  since: Date | null
  until: Date | null
  signal?: AbortSignal
  /** How to wait. It should reject when the signal aborts, as `run.sleep` does. */
  sleep?: (ms: number) => Promise<unknown>
  /** Rows a page. */
  limit?: number
  /** Milliseconds between an answer and the next call. */
  callEvery?: number
  /** How often one page is asked for before giving up. */
  attempts?: number
}

export interface OrdersProgress {
  rows: Order[]
  /** Rows so far, this page included. */
  done: number
  /** Rows in the whole window, as far as the service knows. */
  total: number
}

/** The order service answered, but not with a page. `statusCode` tells transient from hopeless. */
export class OrderServiceError extends Error {
  override name = 'OrderServiceError'
  statusCode: number

  constructor (statusCode: number, reason: string) {
    super(`order service answered ${statusCode}${reason === '' ? '' : `: ${reason}`}`)
    this.statusCode = statusCode
  }
}

/** One answer must not hang for longer than this, whatever the run's own limit. */
const callTimeout = 15_000

/** Pages of the orders changed in [since, until), asked for as slowly as the service wants it. */
export async function * orders (request: OrdersRequest): AsyncGenerator<OrdersProgress, void, void> {
  const { baseUrl, key, since, until, signal, limit = 200, callEvery = 1000, attempts = 6 } = request
  const sleep = request.sleep ?? ((ms: number) => delay(ms, undefined, { signal }))

  async function call (cursor: string | null, attempt = 1): Promise<OrderPage> {
    const url = new URL('/orders', baseUrl)
    url.searchParams.set('limit', String(limit))
    if (since !== null) url.searchParams.set('updated_since', since.toISOString())
    if (until !== null) url.searchParams.set('updated_until', until.toISOString())
    if (cursor !== null) url.searchParams.set('cursor', cursor)

    signal?.throwIfAborted() // the sleep may not have noticed
    const { response, page, reason } = await answerTo(url)
    if (page !== undefined) return page
    if (attempt >= attempts || ![429, 503].includes(response.status)) throw new OrderServiceError(response.status, reason)
    await sleep(retryAfter(response) ?? callEvery * 2 ** (attempt - 1))
    return await call(cursor, attempt + 1)
  }

  async function answerTo (url: URL): Promise<{ response: Response, page?: OrderPage, reason: string }> {
    // a timer of our own: AbortSignal.timeout inside AbortSignal.any is collected as garbage before it fires
    const limit = new AbortController()
    const late = setTimeout(() => limit.abort(new DOMException(`no answer within ${callTimeout} ms`, 'TimeoutError')), callTimeout)
    try {
      const response = await fetch(url, {
        headers: { 'x-api-key': key },
        signal: signal === undefined ? limit.signal : AbortSignal.any([signal, limit.signal])
      })
      return response.ok ? { response, page: await response.json() as OrderPage, reason: '' } : { response, reason: await reasonIn(response) }
    } finally {
      clearTimeout(late)
    }
  }

  let done = 0
  let cursor: string | null = null
  do {
    if (cursor !== null) await sleep(callEvery)
    const page: OrderPage = await call(cursor)
    done += page.orders.length
    cursor = page.next_cursor
    yield { rows: page.orders, done, total: Math.max(done, page.total) } // the window may have shrunk meanwhile
  } while (cursor !== null)
}

/** The wait that the service asks for, milliseconds; seconds or a date, as HTTP has it. */
function retryAfter (response: Response): number | undefined {
  const header = response.headers.get('retry-after')
  if (header === null) return undefined
  const seconds = Number(header)
  const wait = Number.isNaN(seconds) ? Date.parse(header) - Date.now() : seconds * 1000
  return Number.isNaN(wait) ? undefined : Math.max(0, wait)
}

async function reasonIn (response: Response): Promise<string> {
  const text = await response.text() // read to the end, or the connection is lost
  try {
    const { message } = JSON.parse(text) as { message?: unknown }
    return typeof message === 'string' ? message : ''
  } catch {
    return ''
  }
}
