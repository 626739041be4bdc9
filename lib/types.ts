/** The public types: plain interfaces, by what they are about. */
export type * from './types/history.js'
export type * from './types/options.js'
export type * from './types/run.js'
export type * from './types/sync.js'
export type * from './types/words.js'
export type { Upsert, UpsertError, UpsertOptions, UpsertResult, UpsertRows } from './upsert.js'
