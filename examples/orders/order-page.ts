import type { Order } from './order.js'

/** Where a page starts: just behind the order with this stamp and key. */
export interface Position {
  updated_at: string
  external_id: string
}

export interface PageQuery {
  /** Epoch milliseconds, the half-open window [since, until); `null` leaves a side open. */
  since: number | null
  until: number | null
  after: Position | null
  limit: number
}

export interface OrderPage {
  orders: Order[]
  /** Opaque; `null` on the last page. */
  next_cursor: string | null
  /** Orders in the whole window, as of this call. */
  total: number
}

/** Orders by (updated_at, external_id). ISO stamps in UTC sort as text. */
function comparePositions (a: Position, b: Position): number {
  if (a.updated_at !== b.updated_at) return a.updated_at < b.updated_at ? -1 : 1
  return a.external_id < b.external_id ? -1 : Number(a.external_id > b.external_id)
}

/**
 * One page of the window. It starts at a position and not at a number, so orders that change between two calls
 * (and thereby move to the end, or out of the window) push no other order over a page's edge.
 */
export function orderPage (orders: Order[], { since, until, after, limit }: PageQuery): OrderPage {
  const inWindow = orders
    .filter(({ updated_at: at }) => (since === null || Date.parse(at) >= since) && (until === null || Date.parse(at) < until))
    .sort(comparePositions)
  const left = after === null ? inWindow : inWindow.filter(order => comparePositions(order, after) > 0)
  const rows = left.slice(0, limit)
  const last = rows.at(-1)
  return {
    orders: rows,
    next_cursor: last !== undefined && left.length > limit ? cursorOf(last) : null,
    total: inWindow.length
  }
}

function cursorOf ({ updated_at: at, external_id: id }: Position): string {
  return Buffer.from(JSON.stringify([at, id])).toString('base64url')
}

/** @returns `null` for what was never a cursor of ours */
export function positionOf (cursor: string): Position | null {
  try {
    const [at, id] = JSON.parse(Buffer.from(cursor, 'base64url').toString()) as unknown[]
    return typeof at === 'string' && typeof id === 'string' ? { updated_at: at, external_id: id } : null
  } catch {
    return null
  }
}
