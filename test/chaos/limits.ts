/** How the syncs are set, and what may be expected of them. Milliseconds. */
export const sync = {
  name: 'chaos',
  every: 2_000,
  startupDelay: 200,
  standby: 500,
  heartbeat: 1_000,
  timeout: 12_000,
  abandonAfter: 3_000,
  closeTimeout: 3_000,
  overlap: 8_000,
  retry: { limit: 3, delay: 200, maxDelay: 1_000 }
}

/** How long the proof of a lock waits for its answer before the lock counts as lost: twice five seconds. */
export const PROOF_LIMIT = 10_000

/** What a process needs to notice what it has been told, on a machine that is busy with this harness. */
export const SLACK = 2_000

/** After the storm: until a run that began in the calm has succeeded. A database that was away is asked again within half a minute at most. */
export const RECOVERY = 30_000

/** The order service: a change shows this much after its stamp. Less than the overlap, or the syncs could not see it. */
export const VISIBLE_AFTER = 500

/** Servers, each on a place of its own. */
export const SEATS = 6
