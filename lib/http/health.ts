import type { Service } from '../service.js'
import { asError, messageOf, redact } from '../failure.js'

export interface HealthAnswer {
  ok: boolean
  /** When a slot was last served. */
  lastSuccess: Date | null
  /** Milliseconds. */
  age: number | null
  maxAge: number
  unavailable: string | null
}

/** Whether a success is as young as it should be; without any, or without a database that could be asked, it is not known to be. */
export async function health ({ reading, settings }: Service, maxAge: number): Promise<HealthAnswer> {
  try {
    const { now, succeededAt } = await reading.history.health()
    const age = succeededAt === null ? null : now - succeededAt
    return {
      ok: age !== null && age <= maxAge,
      lastSuccess: succeededAt === null ? null : new Date(succeededAt),
      age,
      maxAge,
      unavailable: null
    }
  } catch (error) {
    return { ok: false, lastSuccess: null, age: null, maxAge, unavailable: redact(messageOf(asError(error)), settings.redact) }
  }
}
