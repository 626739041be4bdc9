/** The table and the rows of every measurement: ten columns of the types that APIs give. */
export interface Order {
  external_id: string
  customer: string
  status: string
  amount: string
  quantity: number
  paid: boolean
  ordered_at: Date
  updated_at: Date
  note: string | null
  details: { items: number[], channel: string }
}

export const columns = [
  'external_id', 'customer', 'status', 'amount', 'quantity', 'paid', 'ordered_at', 'updated_at', 'note', 'details'
] as const

export const types: Record<typeof columns[number], string> = {
  external_id: 'text',
  customer: 'text',
  status: 'text',
  amount: 'numeric(12,2)',
  quantity: 'integer',
  paid: 'boolean',
  ordered_at: 'timestamptz',
  updated_at: 'timestamptz',
  note: 'text',
  details: 'jsonb'
}

export const createTable = (table: string): string =>
  `create table ${table} (${columns.map(column => `${column} ${types[column]}`).join(', ')}, primary key (external_id))`

/** Row `i` in its `version`; a spread over the key space that is not the order of arrival. */
export function order (i: number, version: number): Order {
  const scattered = (i * 7919) % 1_000_003
  return {
    external_id: `ord_${scattered.toString(36).padStart(6, '0')}`,
    customer: `Customer "${i}" of Müller & Söhne`,
    status: version === 0 ? 'open' : 'shipped',
    amount: (scattered / 100 + version).toFixed(2),
    quantity: i % 40,
    paid: i % 3 === 0,
    ordered_at: new Date(1_700_000_000_000 + i * 1000),
    updated_at: new Date(1_710_000_000_000 + i * 1000 + version),
    note: i % 4 === 0 ? null : `note for the parcel service, no. ${i}`,
    details: { items: [i, i + 1, i + 2], channel: 'web' }
  }
}

export const cases = ['new', 'unchanged', '1 % changed', 'all changed'] as const
export type Case = typeof cases[number]

/** The rows of a case; the stored ones are in version 0. */
export function rowsOf (which: Case, count: number): Order[] {
  return Array.from({ length: count }, (_, i) => order(i, which === 'all changed' || (which === '1 % changed' && i % 100 === 7) ? 1 : 0))
}
