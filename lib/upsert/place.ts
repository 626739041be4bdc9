/** Where in a call an error of upsert arose. */
export interface Place {
  /** of the rows in the call, from 1 */
  row: number
  /** where one column is at fault */
  column?: string
}

/** What an upsert rejects with; one of the database that concerns no row has its SQLSTATE as code. */
export interface UpsertError extends Error, Partial<Place> {
  code: string
}

/** The error with its place, for whoever handles it; its message says the same. */
export function placed<E extends Error> (error: E, row: number, column?: string): E & Place {
  return Object.assign(error, { row, ...(column !== undefined && { column }) })
}
