import pg from 'pg'
import type { Order } from '../order.js'
import { orderOf, type OrderRow, readPage } from '../orders-table.js'

export interface RunRow {
  id: string
  state: string
  trigger: string
}

export interface History {
  anySucceeded: () => Promise<boolean>
  /** Every run recorded for a slot, oldest first. */
  runsOf: (slot: number) => Promise<RunRow[]>
  /** How a run ended; `undefined` while it has not. */
  stateOf: (run: string) => Promise<string | undefined>
  orders: () => Promise<Order[]>
  close: () => Promise<void>
}

const runsOfSlot = `
select id, state, trigger from hourly_sync.run
where name = 'order-sync' and slot = to_timestamp($1::float8 / 1000)
order by started_at`

/** SQLSTATE */
const undefinedTable = '42P01'

const someSuccess = "select 1 from hourly_sync.run where name = 'order-sync' and state = 'succeeded' limit 1"

/** What the servers wrote, read past them: a check must not ask the one it checks. */
export async function openHistory (databaseUrl: string): Promise<History> {
  const client = new pg.Client({ connectionString: databaseUrl, application_name: 'demo' })
  client.on('error', () => {}) // the next statement tells
  await client.connect()
  return {
    anySucceeded: async () => {
      try {
        return (await client.query(someSuccess)).rows.length > 0
      } catch (error) {
        if ((error as { code?: string }).code === undefinedTable) return false // they are made with the first look
        throw error
      }
    },
    runsOf: async slot => (await client.query<RunRow>(runsOfSlot, [slot])).rows,
    stateOf: async run => (await client.query<RunRow>('select state from hourly_sync.run where id = $1', [run])).rows[0]?.state,
    orders: async () => (await client.query<OrderRow>(readPage, ['', 1_000_000])).rows.map(orderOf),
    close: async () => await client.end()
  }
}
