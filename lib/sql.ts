/**
 * Every SQL text of the plugin.
 *
 * Two rules hold for all of them. The clock is the server's, floored to milliseconds and computed as an epoch, so that
 * no session time zone and no host's clock can bend it. And they are sent with {@link ours}, whose parsers are their own: hosts
 * change pg's global ones. Columns are text, int4 or boolean; an int8 is cast to text.
 */
import { type Claim, claimTexts } from './sql/claim.js'
import { type End, endTexts } from './sql/end.js'
import { type Running, runTexts } from './sql/run.js'
import { type State, stateTexts } from './sql/state.js'
import { tables } from './sql/text.js'

/** The texts, for one schema. */
export type Statements = Claim & Running & End & State

export function statements (schema: string): Statements {
  const names = tables(schema)
  return Object.freeze({ ...claimTexts(names), ...runTexts(names), ...endTexts(names), ...stateTexts(names) })
}

export type { BeginRow, ClaimRow } from './sql/claim.js'
export type { FinishRow } from './sql/end.js'
export type { StateRow } from './sql/state.js'
export { backendPid, busyFor, missingRights, probeLock, readOnly } from './sql/probe.js'
export { at, clock, EARLIEST, type HolderRow, holding, identifier, MOST, ms, ours, plain, runColumns, type RunRow } from './sql/text.js'
export { moment } from './sql/judge.js'
