/** What JSON can carry. */
export type Json = string | number | boolean | null | Json[] | { [key: string]: Json | undefined }

/**
 * What is handed in to be stored as JSON. An `interface` fits as well, of which the compiler cannot say that it has no other properties; what lies inside of
 * an object is looked at when it is stored. The symbols are those of what JSON cannot carry: dates, functions, Maps and Sets, promises.
 */
export type JsonInput = string | number | boolean | null | JsonInput[] | { [key: string]: JsonInput | undefined } | (object & {
  readonly [Symbol.toPrimitive]?: never
  readonly [Symbol.hasInstance]?: never
  readonly [Symbol.toStringTag]?: never
})

/** Milliseconds, or a number with a unit: `'90s'`, `'10m'`, `'1h'`. */
export type Duration = number | string

/** Why a run was made. */
export type Trigger = 'schedule' | 'catch-up' | 'retry' | 'manual' | 'backfill'

/** How a run ended. */
export type RunState = 'succeeded' | 'failed' | 'timed-out' | 'interrupted' | 'lock-lost' | 'vanished'

/** Why an attempt did not become a run; `stopped`: by `stop()`, or by the signal of a backfill, before it had begun. */
export type NotStarted = 'not-due' | 'running' | 'not-configured' | 'closing' | 'stopped' | 'unavailable' | 'refused'

/** What an attempt came to. */
export type Outcome = RunState | NotStarted
