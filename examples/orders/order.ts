/** An order as the external API hands it out. Instants are ISO strings in UTC with milliseconds. */
export interface Order {
  external_id: string
  customer: string
  status: 'open' | 'paid' | 'shipped' | 'cancelled'
  /** A decimal with two places: money is not a binary fraction. */
  total: string
  currency: string
  item_count: number
  paid: boolean
  note: string | null
  tags: string[]
  created_at: string
  updated_at: string
}

/** Every field, in the order in which they are stored and compared. */
export const orderFields = [
  'external_id', 'customer', 'status', 'total', 'currency', 'item_count',
  'paid', 'note', 'tags', 'created_at', 'updated_at'
] as const satisfies ReadonlyArray<keyof Order>
