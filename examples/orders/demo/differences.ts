import { isDeepStrictEqual } from 'node:util'
import { type Order, orderFields } from '../order.js'

/** What differs between the truth and a copy of it, a line for each order that is missing, extra, or other in a field. */
export function differences (truth: Order[], copy: Order[]): string[] {
  const copied = new Map(copy.map(order => [order.external_id, order]))
  const found: string[] = []
  for (const order of truth) {
    const other = copied.get(order.external_id)
    copied.delete(order.external_id)
    if (other === undefined) {
      found.push(`${order.external_id} is missing`)
      continue
    }
    const fields = orderFields.filter(field => !isDeepStrictEqual(order[field], other[field]))
    if (fields.length > 0) {
      found.push(`${order.external_id} differs: ${fields.map(field =>
        `${field} ${JSON.stringify(other[field])} instead of ${JSON.stringify(order[field])}`).join(', ')}`)
    }
  }
  for (const id of copied.keys()) found.push(`${id} is unknown to the service`)
  return found
}
