import pg from 'pg'
import { createUpsert, type Upsert } from '../../lib/upsert.js'
import { columns, types, type Order } from './orders.js'

/** Saves rows, `page` of them in one statement where it has statements of many rows. */
export type Save = (client: pg.Client, table: string, rows: Order[], page: number) => Promise<void>

const list = columns.join(', ')
const rest = columns.slice(1)
const sets = rest.map(column => `${column} = excluded.${column}`).join(', ')
const distinct = (from: string): string => rest.map(column => `t.${column} is distinct from ${from}.${column}`).join(' or ')
const casts = columns.map(column => `u.${column}::${types[column]}`).join(', ')
const arrays = columns.map((_, i) => `$${i + 1}::text[]`).join(', ')

/** As text, which is what a hand-written statement has to do for json and dates anyway. */
const textOf = (value: unknown): string | null =>
  value === null ? null : value instanceof Date ? value.toISOString() : typeof value === 'object' ? JSON.stringify(value) : String(value)
const byColumn = (rows: Order[]): unknown[] => columns.map(column => rows.map(row => textOf(row[column])))

async function inPages (rows: Order[], page: number, save: (rows: Order[]) => Promise<unknown>): Promise<void> {
  for (let at = 0; at < rows.length; at += page) await save(rows.slice(at, at + page))
}

const rowByRow: Save = async (client, table, rows) => {
  const text = `insert into ${table} (${list}) values (${columns.map((_, i) => `$${i + 1}`).join(', ')}) on conflict (external_id) do update set ${sets}`
  for (const row of rows) await client.query(text, columns.map(column => textOf(row[column])))
}

/** find, compare, save: two round trips for a row that is new or changed, one for any other. */
const likeAnOrm: Save = async (client, table, rows) => {
  const find = `select ${list} from ${table} where external_id = $1`
  const insert = `insert into ${table} (${list}) values (${columns.map((_, i) => `$${i + 1}`).join(', ')})`
  for (const row of rows) {
    const { rows: [stored] } = await client.query<Order>(find, [row.external_id])
    if (stored === undefined) {
      await client.query(insert, columns.map(column => textOf(row[column])))
      continue
    }
    const changed = rest.filter(column => textOf(stored[column]) !== textOf(row[column]) && JSON.stringify(stored[column], keys(stored[column])) !== JSON.stringify(row[column], keys(row[column])))
    if (changed.length === 0) continue
    await client.query(
      `update ${table} set ${changed.map((column, i) => `${column} = $${i + 2}`).join(', ')} where external_id = $1`,
      [row.external_id, ...changed.map(column => textOf(row[column]))])
  }
}
const keys = (value: unknown): string[] | null => typeof value === 'object' && value !== null && !(value instanceof Date) && !Array.isArray(value) ? Object.keys(value).sort() : null

/** The literals formatted into the text, as pg-promise does. */
const multiRowValues: Save = async (client, table, rows, page) => inPages(rows, page, async rows => client.query(
  `insert into ${table} (${list}) values ${rows.map(row => `(${columns.map(column => {
    const text = textOf(row[column])
    return text === null ? 'null' : pg.escapeLiteral(text)
  }).join(',')})`).join(',')} on conflict (external_id) do update set ${sets}`))

const unnestDistinct: Save = async (client, table, rows, page) => inPages(rows, page, async rows => client.query(
  `insert into ${table} as t (${list}) select ${casts} from unnest(${arrays}) as u (${list})
  on conflict (external_id) do update set ${sets} where ${distinct('excluded')}`, byColumn(rows)))

const unnestFilter: Save = async (client, table, rows, page) => inPages(rows, page, async rows => client.query(
  `insert into ${table} as t (${list})
  select ${columns.map(column => `s.${column}`).join(', ')} from (select ${casts} from unnest(${arrays}) as u (${list})) as s (${list})
  left join lateral (select ${distinct('s')} as changed from ${table} as t where t.external_id = s.external_id offset 0) e on true
  where e.changed is not false
  on conflict (external_id) do update set ${sets} where ${distinct('excluded')}`, byColumn(rows)))

/** The practical limit: needs all rows at once, and the right to make temporary tables. */
const copyMerge: Save = async (client, table, rows) => {
  await client.query('begin')
  await client.query(`create temporary table incoming (${columns.map(column => `${column} ${types[column]}`).join(', ')}) on commit drop`)
  await copy(client, `copy incoming (${list}) from stdin`, rows)
  await client.query(
    `insert into ${table} as t (${list})
    select ${columns.map(column => `s.${column}`).join(', ')} from incoming s left join ${table} t on t.external_id = s.external_id
    where t.external_id is null or (${distinct('s')})
    on conflict (external_id) do update set ${sets} where ${distinct('excluded')}`)
  await client.query('commit')
}

/** COPY's text in chunks of 200 rows, a turn of the event loop between two. */
async function copy (client: pg.Client, text: string, rows: Order[]): Promise<void> {
  const escapes: Record<string, string> = { '\\': '\\\\', '\n': '\\n', '\r': '\\r', '\t': '\\t' }
  const line = (row: Order): string => columns.map(column => textOf(row[column])?.replace(/[\\\n\r\t]/g, char => escapes[char] as string) ?? '\\N').join('\t') + '\n'
  const query = new pg.Query(text) as pg.Query & { handleCopyInResponse: (connection: any) => void, callback: (error?: Error | null) => void }
  query.handleCopyInResponse = connection => {
    const stream = async (): Promise<void> => {
      for (let at = 0; at < rows.length; at += 200) {
        connection.sendCopyFromChunk(Buffer.from(rows.slice(at, at + 200).map(line).join('')))
        if (connection.stream.writableNeedDrain === true) await new Promise(resolve => connection.stream.once('drain', resolve))
        else await new Promise(resolve => setImmediate(resolve))
      }
      connection.endCopyFrom()
    }
    stream().catch(error => { connection.sendCopyFail(String(error)) })
  }
  await new Promise<void>((resolve, reject) => {
    query.callback = error => { error == null ? resolve() : reject(error) }
    client.query(query)
  })
}

/** One for a session, as a run has it. */
const sessions = new WeakMap<pg.Client, Upsert>()

function upsertOf (client: pg.Client): Upsert {
  let upsert = sessions.get(client)
  if (upsert === undefined) {
    const query = async (text: string, values?: unknown[], name?: string): Promise<pg.QueryResult> => await client.query({ text, values, name })
    upsert = createUpsert({ query, transaction: async fn => await fn({ query }) })
    sessions.set(client, upsert)
  }
  return upsert
}

const ours: Save = async (client, table, rows, page) => {
  const upsert = upsertOf(client)
  await inPages(rows, page === 0 ? rows.length : page, async rows => await upsert(table, rows, { key: ['external_id'] }))
}

/** The same with another size of batch, all rows in one call. */
const inBatches = (batch: number): Save => async (client, table, rows) => { await upsertOf(client)(table, rows, { key: ['external_id'], batch }) }

export const rivals: Record<string, { save: Save, /** too slow for all rows */ slow?: true, /** takes all rows at once */ whole?: true, /** only beside itself */ alone?: true }> = {
  upsert: { save: ours },
  'row by row': { save: rowByRow, slow: true },
  'select, compare, save': { save: likeAnOrm, slow: true },
  'multi-row values': { save: multiRowValues },
  'unnest, is distinct from': { save: unnestDistinct },
  'unnest, filtered before': { save: unnestFilter },
  'copy and merge': { save: copyMerge, whole: true },
  ...Object.fromEntries([100, 200, 250, 500, 1000, 2000, 5000].map(batch => [`batch of ${batch}`, { save: inBatches(batch), alone: true as const }]))
}
