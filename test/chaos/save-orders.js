/** `$1` orders as JSON: inserted, or written over those of the same key. */
export const saveOrders = schema => `insert into ${schema}.orders (external_id, customer, status, total, currency, item_count, paid, note, tags, created_at, updated_at)
  select external_id, customer, status, total, currency, item_count, paid, note, tags, created_at, updated_at
  from jsonb_to_recordset($1::jsonb) as o (external_id text, customer text, status text, total numeric(12, 2), currency text, item_count int, paid boolean, note text,
    tags jsonb, created_at timestamptz, updated_at timestamptz)
  on conflict (external_id) do update set
    customer = excluded.customer, status = excluded.status, total = excluded.total, currency = excluded.currency, item_count = excluded.item_count,
    paid = excluded.paid, note = excluded.note, tags = excluded.tags, created_at = excluded.created_at, updated_at = excluded.updated_at`
