import { addRow, createBatch, isAsAdded, keyAt, type Batch, type RowsShape } from './batch.js'
import { loadCatalog, type Catalog } from './catalog.js'
import { FST_HOURLY_SYNC_UPSERT_INVALID_ROW, FST_HOURLY_SYNC_UPSERT_OUTSIDE_INDEX } from './errors.js'
import { explain, isFault } from './fault.js'
import { escapeTable } from './identifiers.js'
import { checkArbiters, planFor, type Plan } from './plan.js'
import { textArrays, type Block } from './text-array.js'
import type { Statements, UpsertContext } from './context.js'
import type { UpsertOptions } from './options.js'

export interface UpsertResult {
  inserted: number
  updated: number
  /** Rows that equal what is stored, and those that a later row of the same key replaces before it is saved. */
  unchanged: number
  /** Rows that are older, by `newerBy`, than what is stored or came with them. */
  stale: number
}

/** What one call saves, and where. */
export interface Target extends RowsShape {
  /** of this call, which has one batch under way */
  block: Block
  options: UpsertOptions
  names: string[]
}

export interface Saver {
  planOf: (target: Target) => Promise<Plan>
  save: (batch: Batch, target: Target) => Promise<UpsertResult>
  /** The same batch for the table as it is by now; or `refusal` again, where that is no other. */
  renew: (batch: Batch, target: Target, refusal: unknown) => Promise<Batch>
}

/** A table as the catalog described it, and what happened to it since through this session. */
export interface Known {
  catalog: Catalog
  plans: Map<string, Plan>
  inserted: number
  /** how often the catalog was read */
  reads: number
}

interface Counts {
  same: boolean
  inserted: number
  updated: number
  sent: number
  stale: number
}

/** deadlock_detected, serialization_failure: the batch was rolled back and may simply be sent again. */
const transient = new Set(['40P01', '40001'])
const maxRetries = 3

/**
 * What comes of a table that was altered or replaced since its catalog was read: undefined table, column, type or
 * function, a wrong type, no such index, a column that has become a generated one, no such prepared statement.
 */
const outdated = new Set(['42P01', '42703', '42704', '42883', '42804', '42P10', '428C9', '26000'])

/**
 * After two batches of nothing but new and changed rows the next goes without the look that finds those that are neither: as a rule it would find none.
 * Not when it begins as one of them did: a page that comes again is to cost the database nothing. So many of them are remembered.
 */
const changesRemembered = 1_000

/** What outlives a call in a session: what it knows of tables, by the name they were called, and a block that no call uses. */
export interface Memory { tables: Map<string, Known>, block: Block }

export const createMemory = (): Memory => ({ tables: new Map(), block: {} })

/** Saves batches through one session. */
export function createSaver (context: UpsertContext, { tables }: Memory): Saver {
  async function knownOf (table: string, again = false): Promise<Known> {
    const before = tables.get(table)
    if (before !== undefined && !again) return before
    const escaped = escapeTable(table)
    const { query } = context
    const catalog = query === undefined
      ? await context.transaction(tx => loadCatalog(tx, escaped, table))
      : await loadCatalog({ query }, escaped, table)
    const known = { catalog, plans: new Map(), inserted: 0, reads: (before?.reads ?? 0) + 1 }
    tables.set(table, known)
    return known
  }

  /** The statement for the first `count` rows of a batch, to be sent through a session. */
  function statementOf (batch: Batch, { table, block }: Target, { inserted, reads }: Known): (session: Statements, count: number) => Promise<Counts> {
    const { plan: { catalog, index, statement, canBeDirect, changes }, texts, rows, numbers, repeats } = batch
    const { text, name } = statement(repeats, canBeDirect && changes.size >= 2 && !changes.has(keyAt(batch, 0)))
    // a prepared plan outlives the size of the table it was made for: a new one for each fourfold growth
    const prepared = `${name}_${reads}_${Math.floor(Math.log2(1 + inserted / 256) / 2)}`
    const whole = textArrays(texts, block)
    return async (session, count) => {
      const values = count === rows.length ? whole : textArrays(texts.map(column => column.slice(0, count)))
      const { rows: [row] } = await session.query(text, [...values, catalog.table, catalog.oid, catalog.shape], prepared)
      if (row.outside !== '0') {
        throw new FST_HOURLY_SYNC_UPSERT_OUTSIDE_INDEX(`${numbers[0]} to ${numbers.at(-1)}`, table, index.name, String(index.predicate))
      }
      return {
        same: row.same === 'true',
        inserted: Number(row.inserted),
        updated: Number(row.written) - Number(row.inserted),
        sent: Number(row.sent),
        stale: Number(row.stale)
      }
    }
  }

  async function saveOnce (batch: Batch, target: Target, known: Known): Promise<Counts> {
    const send = statementOf(batch, target, known)
    const { query } = context
    const count = batch.rows.length
    // only a partial index asks for a look at what was written, which may then have to be taken back
    const run = async (): Promise<Counts> => query !== undefined && batch.plan.index.predicate === null
      ? await send({ query }, count)
      : await context.transaction(tx => send(tx, count))
    try {
      const counts = await run()
      if (counts.sent <= counts.inserted + counts.updated) return counts
      // another writer came between the filter and the conflict clause: ask again which rows it made stale
      const { inserted, updated, stale } = await run()
      return { ...counts, inserted: counts.inserted + inserted, updated: counts.updated + updated, stale }
    } catch (error) {
      if (isFault(error) && context.signal?.aborted !== true) throw await explain(error, batch, target.table, context, send).catch(() => error)
      throw error
    }
  }

  async function save (batch: Batch, target: Target): Promise<UpsertResult> {
    let retries = context.nested === true ? 0 : maxRetries
    let rereads = 1
    let known = await knownOf(target.table)
    for (;;) {
      try {
        const { same, inserted, updated, stale } = await saveOnce(batch, target, known)
        if (same) {
          known.inserted += inserted
          remember(batch, inserted + updated === batch.rows.length)
          return { inserted, updated, unchanged: Math.max(batch.rows.length - inserted - updated - stale, 0), stale }
        }
      } catch (error) {
        const { code } = error as { code: string }
        if (transient.has(code) && retries-- > 0 && context.signal?.aborted !== true) continue
        if (!outdated.has(code) || rereads-- === 0) throw error
      }
      // the name now means another table than the one whose catalog was read, or its columns are others; nothing was written
      known = await knownOf(target.table, true)
      batch = rebatch(batch, await checked(planIn(known, target), target), target)
    }
  }

  async function renew (batch: Batch, target: Target, refusal: unknown): Promise<Batch> {
    const { oid, shape } = batch.plan.catalog
    const { catalog, ...known } = await knownOf(target.table, true).catch(() => { throw refusal })
    if (catalog.oid === oid && catalog.shape === shape) throw refusal
    return rebatch(batch, await checked(planIn({ catalog, ...known }, target), target), target)
  }

  async function planOf (target: Target): Promise<Plan> {
    const before = tables.get(target.table)
    try {
      return await checked(planIn(before ?? await knownOf(target.table), target), target)
    } catch (error) {
      if (before === undefined) throw error
      return await checked(planIn(await knownOf(target.table, true), target), target) // the column or the index that is missing may have been made since
    }
  }

  async function checked (plan: Plan, { table }: Target): Promise<Plan> {
    if (plan.arbiters === null) return plan
    const { rows } = await context.transaction(async tx => await tx.query(plan.arbiters as string))
    checkArbiters(plan, table, rows.map(row => row['QUERY PLAN']))
    plan.arbiters = null // once
    return plan
  }

  return { planOf, save, renew }
}

/** The rows of a batch once more, as another plan has them. @throws when one is not what it was: it can be read once only */
function rebatch (batch: Batch, plan: Plan, target: Target): Batch {
  const { rows, numbers } = batch
  const next = createBatch(plan)
  for (const [at, row] of rows.entries()) {
    if (!isAsAdded(batch, at)) throw new FST_HOURLY_SYNC_UPSERT_INVALID_ROW(numbers[at] as number, 'one that was changed before it was saved')
    addRow(next, row, numbers[at] as number, target)
  }
  return next
}

function remember (batch: Batch, allChanged: boolean): void {
  const { changes } = batch.plan
  if (!allChanged) return changes.clear()
  changes.add(keyAt(batch, 0))
  if (changes.size > changesRemembered) changes.delete(changes.values().next().value as string)
}

function planIn ({ catalog, plans }: Known, { table, names, options }: Target): Plan {
  const { key, index, touch, newerBy } = options
  const id = JSON.stringify([names, key, index, touch, newerBy])
  let plan = plans.get(id)
  if (plan === undefined) {
    plan = planFor(catalog, table, names, options)
    plans.set(id, plan)
  }
  return plan
}
