import pg from 'pg'
import { createUpsert, type Statements, type Upsert, type UpsertContext } from '../../lib/upsert.js'

interface Scope { teardown: (fn: () => unknown) => void }

/** A statement as a context was asked to send it. */
export interface Sent { text: string, name: string | undefined }

export interface Bench {
  client: pg.Client
  upsert: Upsert
  context: UpsertContext
  /** what was sent, oldest first */
  sent: Sent[]
  /** called before each statement of upsert; may throw or wait */
  before: { hook: (sent: Sent, nth: number) => unknown }
  query: (text: string, values?: unknown[]) => Promise<pg.QueryResult>
}

/** A client, and an upsert whose session it is. */
export async function openUpsert (t: Scope, url: string, more: Partial<UpsertContext> = {}): Promise<Bench> {
  const client = new pg.Client({ connectionString: url })
  client.on('error', () => {})
  await client.connect()
  t.teardown(async () => client.end())

  const sent: Sent[] = []
  const before: Bench['before'] = { hook: () => {} }
  const query: Statements['query'] = async (text, values, name) => {
    sent.push({ text, name })
    await before.hook({ text, name }, sent.length)
    return await client.query({ text, values, name })
  }
  // a queue, as the lock session has one
  let tail: Promise<unknown> = Promise.resolve()
  const inTurn = <T>(fn: () => Promise<T>): Promise<T> => {
    const turn = tail.then(fn)
    tail = turn.catch(() => {})
    return turn
  }
  const context: UpsertContext = {
    query: async (text, values, name) => inTurn(async () => query(text, values, name)),
    transaction: async fn => inTurn(async () => {
      await client.query('begin')
      try {
        const result = await fn({ query })
        await client.query('commit')
        return result
      } catch (error) {
        await client.query('rollback')
        throw error
      }
    }),
    ...more
  }
  return { client, upsert: createUpsert(context), context, sent, before, query: async (text, values) => client.query(text, values) }
}

let schemas = 0

/** The same with a schema of its own, in which the statements have made what the test needs. */
export async function openSchema (t: Scope, url: string, ...statements: string[]): Promise<Bench & { schema: string }> {
  const bench = await openUpsert(t, url)
  const schema = `test_${++schemas}`
  for (const statement of [`create schema ${schema}`, `set search_path = ${schema}`, ...statements]) await bench.query(statement)
  return { ...bench, schema }
}
