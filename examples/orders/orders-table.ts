import type { Order } from './order.js'
import { orderFields } from './order.js'

/**
 * No parameters. One message, so one transaction: the lock lasts until its end, and of several servers that boot at
 * once one makes the table and the others find it (`if not exists` alone fails when two do it at the same time).
 */
export const createTable = `
select pg_advisory_xact_lock(hashtext('orders table'));
create table if not exists orders (
  external_id text primary key,
  customer text not null,
  status text not null,
  total numeric(12, 2) not null,
  currency text not null,
  item_count integer not null,
  paid boolean not null,
  note text,
  tags jsonb not null,
  created_at timestamptz not null,
  updated_at timestamptz not null
)`

const columns = orderFields.join(', ')

/** How `run.upsert` saves a page. It may come twice, and an old one after a newer one: neither changes what is newer. */
export const saving = { key: ['external_id'], newerBy: 'updated_at', columns: [...orderFields] }

/** $1 key to start behind, or '', $2 rows -> orders, sorted by key. */
export const readPage = `select ${columns} from orders where external_id > $1 order by external_id limit $2`

/** $1 key -> the order. */
export const readOne = `select ${columns} from orders where external_id = $1`

/** An order as pg returns it. */
export type OrderRow = Omit<Order, 'created_at' | 'updated_at'> & { created_at: Date, updated_at: Date }

/** The order as the API had it. */
export function orderOf (row: OrderRow): Order {
  return { ...row, created_at: row.created_at.toISOString(), updated_at: row.updated_at.toISOString() }
}
