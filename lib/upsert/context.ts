import { releaseSavepoint, rollbackToSavepoint, savepoint } from './sql.js'

/** What upsert needs of a session or of an open transaction. */
export interface Statements {
  /**
   * @param name - to prepare the statement under; a session that ignores it costs a plan for each batch, which
   * for pages of 50 rows is half of the time
   */
  query: (text: string, values?: unknown[], name?: string) => Promise<{ rows: any[], rowCount: number | null }>
}

export interface UpsertContext {
  /** Runs `fn` in one short transaction of the lock session; rejects when the lock is lost. */
  transaction: <T>(fn: (tx: Statements) => Promise<T>) => Promise<T>
  /** One statement of the lock session outside of a transaction; saves `begin` and `commit`, two round trips for each batch. */
  query?: Statements['query']
  /** Ends the retries and the search for the row at fault, nothing else: a host may save its last page after an abort. */
  signal?: AbortSignal
  /** Inside of an open transaction: no retries, and no batch is collected while another is under way. */
  nested?: boolean
}

/**
 * The context of `tx.upsert`: each batch under a savepoint, so that a batch fails whole and the host's
 * transaction can go on. A deadlock or a serialization failure there is the host's to retry.
 */
export function nestedContext (tx: Statements, signal?: AbortSignal): UpsertContext {
  return {
    nested: true,
    signal,
    transaction: async fn => {
      await tx.query(savepoint)
      try {
        const result = await fn(tx)
        await tx.query(releaseSavepoint)
        return result
      } catch (error) {
        await tx.query(rollbackToSavepoint).catch(() => {}) // the first error is the one to tell
        throw error
      }
    }
  }
}
