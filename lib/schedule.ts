/**
 * The slot that `at` falls in: the last scheduled instant not after `at`.
 *
 * Slots are whole multiples of `every` since the Unix epoch, shifted by `offset`,
 * so daylight saving never removes or repeats one.
 *
 * @param at - epoch milliseconds
 * @param every - slot length, milliseconds
 * @param offset - milliseconds, 0 <= offset < every
 * @returns epoch milliseconds, always <= `at`
 */
export function slotAt (at: number, every: number, offset: number): number {
  return Math.floor((at - offset) / every) * every + offset
}

/** The first slot that begins after `at`. Epoch milliseconds. */
export function nextSlot (at: number, every: number, offset: number): number {
  return slotAt(at, every, offset) + every
}

/**
 * How late into its slot a first attempt may begin and still be called `schedule` and not `catch-up`.
 *
 * @returns whole milliseconds
 */
export function lateAfter (every: number, jitter: number): number {
  return Math.min(Math.floor(every / 2), 120_000) + jitter
}

/**
 * With `catchUp: 'skip'`, how long after its start a slot can first be attempted.
 *
 * @returns whole milliseconds
 */
export function skipAfter (every: number, jitter: number): number {
  return Math.min(Math.floor(every / 2), 300_000) + jitter
}

/**
 * How long to stay away from a database that is not there or not usable: doubling from one second to thirty.
 *
 * @param tries - failed looks in a row, from 1
 * @param chance - 0 <= chance < 1, spreads the processes over half the delay
 * @returns milliseconds
 */
export function awayDelay (tries: number, chance: number): number {
  const full = Math.min(30_000, 1_000 * 2 ** Math.min(tries - 1, 5))
  return Math.round(full * (0.5 + chance / 2))
}

/**
 * How long to wait before the attempt after a failed one: doubling, spread by a quarter to either side.
 *
 * @param attempt - the one that failed, from 1
 * @param delay - before the first retry, milliseconds
 * @param maxDelay - milliseconds
 * @param chance - 0 <= chance < 1
 * @returns milliseconds
 */
export function retryDelay (attempt: number, delay: number, maxDelay: number, chance: number): number {
  const full = Math.min(maxDelay, delay * 2 ** Math.min(attempt - 1, 30))
  return Math.round(full * (0.75 + chance / 2))
}

/** Whether a run that began at `mark.at` has had its timeout, and all the time it is given to stop after it. */
export function isWedged (settings: { timeout: number, abandonAfter: number }, mark: { at: number } | null, now: number): boolean {
  return mark !== null && now - mark.at > settings.timeout + settings.abandonAfter
}
