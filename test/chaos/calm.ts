import { setTimeout as delay } from 'node:timers/promises'
import { type Order, orderFields } from '../../examples/orders/order.js'
import type { Database } from './database.js'
import type { Fleet } from './fleet.js'
import { RECOVERY, SEATS, sync, VISIBLE_AFTER } from './limits.js'
import type { OrderService } from './service.js'

/** How many slots are watched once the syncs have recovered. */
const WATCHED = 5

interface Parts {
  database: Database
  fleet: Fleet
  service: OrderService
  /** Ports of the poolers' own consoles. */
  consoles: Array<(text: string) => Promise<any[]>>
  breach: (what: string) => void
  say: (line: string) => void
  signal: AbortSignal
}

/** By the real clock, for a run that began under a bent one says so in its own stamps. */
const successes = `select extract(epoch from r.slot) * 1000 as at, count(*)::int as runs from hourly_sync.run r
  join public.chaos_log l on l.run = r.id and l.kind = 'start' and l.at >= $1
  where r.state = 'succeeded' group by r.slot order by r.slot`

/** After the storm: what has to be as it was. */
export async function calm ({ database: { ask }, fleet, service, consoles, breach, say, signal }: Parts): Promise<void> {
  /** The first answer that is not undefined, or nothing when the time is up. */
  async function until<T> (ms: number, look: () => Promise<T | undefined>): Promise<T | undefined> {
    for (const end = Date.now() + ms; ;) {
      const found = await look()
      if (found !== undefined || Date.now() > end) return found
      await delay(100, undefined, { signal })
    }
  }

  fleet.calm()
  const from = new Date()
  const first = await until(RECOVERY, async () => (await ask<{ at: string }>(successes, [from]))[0])
  if (first === undefined) return breach(`no run that began in the calm has succeeded within ${RECOVERY} ms`)
  const firstSlot = Number(first.at)
  say(`recovered after ${Date.now() - from.getTime()} ms`)

  // each slot has its own length and one second more for its run
  await delay(Math.max(0, firstSlot + (WATCHED + 1) * sync.every + 1_000 - Date.now()), undefined, { signal })
  const served = new Map((await ask<{ at: string, runs: number }>(successes, [from])).map(({ at, runs }) => [Number(at), runs]))
  for (let slot = firstSlot + sync.every; slot <= firstSlot + WATCHED * sync.every; slot += sync.every) {
    const runs = served.get(slot) ?? 0
    if (runs !== 1) breach(`slot ${new Date(slot).toISOString()} after the recovery was served by ${runs} runs`)
  }

  await service.app.inject({ method: 'POST', url: '/admin/freeze' })
  await delay(VISIBLE_AFTER, undefined, { signal })
  let different = await differences()
  await until(2 * sync.every + 1_500, async () => {
    different = await differences()
    return different.length === 0 ? true : undefined
  })
  for (const what of different.slice(0, 5)) breach(`two slots after the last change, ${what}`)
  if (different.length > 5) breach(`and ${different.length - 5} more orders differ`)

  for (let seat = 0; seat < SEATS; seat++) {
    const server = fleet.at(seat)
    if (server === undefined || !fleet.tell(server, { order: 'stop' })) breach(`nobody serves at seat ${seat}`)
  }
  let left = 'not looked at'
  const idle = await until(15_000, async () => {
    left = await connections()
    return left === '' ? true : undefined
  })
  if (idle === undefined) breach(`with the loops off there are still ${left}`)

  async function differences (): Promise<string[]> {
    const truth = (await service.app.inject('/admin/orders')).json<Order[]>()
    const rows = await ask<Record<keyof Order, unknown>>('select * from public.orders')
    const kept = new Map(rows.map(row => [row.external_id, row]))
    const found = truth.flatMap(order => {
      const row = kept.get(order.external_id)
      if (row === undefined) return [`${order.external_id} of ${order.updated_at} is missing`]
      const fields = orderFields.filter(field => plain(order[field]) !== plain(row[field]))
      return fields.length === 0 ? [] : [`${order.external_id} of ${order.updated_at} differs in ${fields.map(field => `${field} (${plain(row[field])})`).join(', ')}`]
    })
    return rows.length > truth.length ? [...found, `${rows.length - truth.length} orders too many`] : found
  }

  async function connections (): Promise<string> {
    const rows = await ask<{ application_name: string, client_port: number, state: string }>(
      `select application_name, client_port, state from pg_stat_activity
      where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()`)
    const locks = await ask("select pid from pg_locks where locktype = 'advisory'")
    const poolers = new Set<number>()
    const clients: string[] = []
    for (const show of consoles) {
      for (const { local_port: port } of await show('show servers')) poolers.add(Number(port))
      for (const { application_name: name, database } of await show('show clients')) if (database !== 'pgbouncer') clients.push(`${name} at a pooler`)
    }
    const others = rows.filter(row => !poolers.has(row.client_port)).map(row => `${row.application_name} (${row.state})`)
    return [...others, ...clients, ...locks.map(({ pid }) => `an advisory lock of backend ${pid}`)].join(', ')
  }
}

const plain = (value: unknown): string => JSON.stringify(value)

/** Everybody is told to end in order, and has to, by itself. */
export async function closeAll (fleet: Fleet): Promise<void> {
  const alive = fleet.all.filter(({ exit }) => exit === null)
  for (const server of alive) fleet.signal(server, 'SIGTERM')
  await Promise.race([Promise.all(alive.map(({ exited }) => exited)), delay(sync.closeTimeout + 5_000)])
}
