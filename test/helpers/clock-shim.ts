import type { QueryResult } from 'pg'

/**
 * Bends the server's clock for those sessions whose search path names the shim first, without any hook in the code under test:
 * what calls `clock_timestamp()` unqualified then gets this one.
 */
export interface ClockShim {
  searchPath: string
  /** From now on the clock stands at this instant. */
  at: (instant: string | Date) => Promise<void>
  /** Moves it, standing or going. */
  pass: (ms: number) => Promise<void>
  now: () => Promise<Date>
}

/**
 * The clock begins at ten on a March morning in 2025 and goes, so that no test runs into the end of an hour.
 *
 * @param query - asks the database whose clock it is
 * @param schema - a name that nothing else in it uses
 */
export async function bendClock (query: (text: string, values?: unknown[]) => Promise<QueryResult>, schema = 'shim'): Promise<ClockShim> {
  await query(`
    create schema ${schema};
    create table ${schema}.clock (standing timestamptz, shift interval not null);
    insert into ${schema}.clock values (null, timestamptz '2025-03-10T10:00:00Z' - pg_catalog.clock_timestamp());
    create function ${schema}.clock_timestamp() returns timestamptz language sql volatile as
      'select coalesce(standing, pg_catalog.clock_timestamp() + shift) from ${schema}.clock';`)
  return {
    searchPath: `${schema}, pg_catalog, public`,
    at: async instant => {
      await query(`update ${schema}.clock set standing = $1`, [instant])
    },
    pass: async ms => {
      await query(`update ${schema}.clock set standing = standing + $1 * interval '1 millisecond', shift = shift + $1 * interval '1 millisecond'`, [ms])
    },
    now: async () => {
      const { rows } = await query(`select ${schema}.clock_timestamp() as now`)
      return rows[0].now
    }
  }
}
