import type { Test } from 'tap'
import { setStage, type Stage } from './host.js'
import { noPgBouncer, type Pooler, startPgBouncer } from './pgbouncer.js'
import type { Cluster } from './postgres.js'

/** How many sessions the pooler has for a database. */
export const POOLED = 5

/** A stage whose hosts reach a database of their own through a pooler, and directly for the lock. */
export async function setPooledStage (t: Test, cluster: Cluster, pooler: Pooler, database?: string): Promise<Stage> {
  const own = database ?? await cluster.database()
  const stage = await setStage(t, cluster, own, {
    pool: { connectionString: pooler.url(own), options: undefined, application_name: 'pooled' },
    options: { lock: { connectionString: cluster.url(own), application_name: 'direct' } }
  })
  await cluster.query(`alter database ${own} set search_path to ${stage.clock.searchPath}`) // PgBouncer passes no options on
  return stage
}

/** @param set - sets the stage; its hosts reach their database through a pooler when `pooled` */
type Body = (t: Test, set: (database?: string) => Promise<Stage>, pooled: boolean) => Promise<void>
type Make = (title: string, body: Body) => void

/** Why the pooled ones cannot run here, or `false`. */
const skip = process.env.SOAK === 'true' ? noPgBouncer : 'in npm run soak'

/** Makes tests of what holds through PgBouncer in transaction mode, with a direct connection for the lock, and of what holds on a direct connection as well. */
export async function ways (t: Test, cluster: Cluster): Promise<{ pooled: Make, both: Make }> {
  const pooler = skip === false ? await startPgBouncer(t, cluster, 'transaction', POOLED) : undefined
  const direct: Make = (title, body) => {
    t.test(title, async t => await body(t, async database => await setStage(t, cluster, database), false))
  }
  const pooled: Make = (title, body) => {
    t.test(`through PgBouncer, ${title}`, { skip }, async t => await body(t, async database => await setPooledStage(t, cluster, pooler!, database), true))
  }
  return {
    pooled,
    both (title, body) {
      direct(title, body)
      pooled(title, body)
    }
  }
}
