/** Stands for the client of a slow API: pages of the orders that changed in `[since, until)`. */
export async function * fetchOrders ({ until, signal }: { since: Date | null, until: Date, signal: AbortSignal }) {
  for (let page = 1; page <= 3; page++) {
    signal.throwIfAborted()
    yield [1, 2].map(row => ({ external_id: `order-${page}-${row}`, status: 'paid', updated_at: until }))
  }
}
