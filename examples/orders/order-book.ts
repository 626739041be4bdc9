import type { Order } from './order.js'
import { seededRandom } from './random.js'

export interface OrderBookOptions {
  seed: number
  /** Epoch milliseconds. Everything the book holds at the start was changed before it. */
  startsAt: number
  /** Orders at the start. */
  initialOrders: number
  /** Milliseconds between two instants at which something changes. */
  changeEvery: number
  /** A change stamped T is seen from T + `visibleAfter` on, as behind a replica or a cache. */
  visibleAfter: number
}

export interface OrderBook {
  /** The orders as a caller sees them at `now`. Time never runs backwards here: an earlier `now` shows the latest view. */
  visible: (now: number) => Order[]
  /** Nothing changes after `now`. @returns epoch milliseconds from which the last change is visible */
  freeze: (now: number) => number
}

const customers = ['Ada Lovelace', 'Łukasz Żak', 'María-José Ñíguez', '山田 花子', "Shay O'Neil", 'Zoë "Zee" Brönte']
const notes = [null, '', 'leave at the door', 'größte Sorgfalt, bitte — 50 %', 'שלום, תודה', '🎁 with 👩‍👩‍👧 card\nsecond line',
  'back\\slash, "quotes", {braces}, \ttab', 'e\u0301 is not \u00e9']
const currencies = ['EUR', 'USD', 'JPY', 'INR']
const statuses = ['open', 'paid', 'shipped', 'cancelled'] as const
const labels = ['gift', 'express', 'b2b', 'größe:XL', '🌱', 'a,b', 'null']

/**
 * Orders that are created and changed as time goes by: every `changeEvery` milliseconds a few of them, all stamped
 * with that one instant, so that pages need more than the stamp to tell them apart.
 *
 * There is no timer: each look plays what has happened since the last one, so a given clock gives given orders.
 */
export function openOrderBook (options: OrderBookOptions): OrderBook {
  const { startsAt, changeEvery, visibleAfter } = options
  const random = seededRandom(options.seed)
  const pick = <T>(from: readonly T[]): T => from[Math.floor(random() * from.length)] as T
  const latest: Order[] = []
  const seen = new Map<string, Order>()
  let pending: Array<{ order: Order, visibleAt: number }> = []
  let changes = 0
  let frozenAt = Infinity

  function create (at: number): Order {
    const stamp = new Date(at).toISOString()
    const order: Order = {
      external_id: `ORD-${String(latest.length + 1).padStart(6, '0')}`,
      customer: pick(customers),
      status: 'open',
      total: (random() * 10_000).toFixed(2),
      currency: pick(currencies),
      item_count: 1 + Math.floor(random() * 20),
      paid: false,
      note: pick(notes),
      tags: labels.filter(() => random() < 0.25),
      created_at: stamp,
      updated_at: stamp
    }
    latest.push(order)
    return order
  }

  function change (index: number, at: number): Order {
    const status = pick(statuses)
    const order: Order = {
      ...latest[index] as Order,
      status,
      total: (random() * 10_000).toFixed(2),
      item_count: 1 + Math.floor(random() * 20),
      paid: status === 'paid' || status === 'shipped',
      note: pick(notes),
      updated_at: new Date(at).toISOString()
    }
    latest[index] = order
    return order
  }

  function happen (at: number): void {
    const known = latest.length
    const changed = new Set<number>()
    for (let left = 1 + Math.floor(random() * 3); left > 0; left--) {
      const index = Math.floor(random() * known)
      if (random() < 0.3 || known === 0 || changed.has(index)) { // one order has one state at one instant
        pending.push({ order: create(at), visibleAt: at + visibleAfter })
      } else {
        changed.add(index)
        pending.push({ order: change(index, at), visibleAt: at + visibleAfter })
      }
    }
  }

  function advance (now: number): void {
    for (let at = startsAt + (changes + 1) * changeEvery; at <= Math.min(now, frozenAt); at += changeEvery) {
      changes++
      happen(at)
    }
    const due = pending.filter(({ visibleAt }) => visibleAt <= now)
    for (const { order } of due) seen.set(order.external_id, order)
    pending = pending.slice(due.length) // oldest first, as they happened
  }

  const minute = 60_000
  for (let count = 0; count < options.initialOrders; count++) {
    // an old system stamps by the minute, so many share one
    const ago = visibleAfter + minute * (1 + Math.floor((options.initialOrders - count) / 7))
    const order = create(Math.floor((startsAt - ago) / minute) * minute)
    seen.set(order.external_id, order)
  }

  return {
    visible: now => {
      advance(now)
      return [...seen.values()]
    },
    freeze: now => {
      advance(now)
      frozenAt = Math.min(frozenAt, now)
      return Math.max(now, ...pending.map(({ visibleAt }) => visibleAt))
    }
  }
}
