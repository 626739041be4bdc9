import type { Clock } from './clock.js'
import type { PoolGate } from './connections.js'
import type { Context } from './context.js'
import { migrate } from './migrations.js'
import type { Settings } from './options.js'
import { probeChannel, probeDatabase, probeDriver, probeRights, probeSession, probeWrites, secondOf } from './probe.js'
import type { Statements } from './sql.js'

/** What has been seen to with the first connection that came, and is again after it turned out to be otherwise. */
export function createPreparation (settings: Settings, gate: PoolGate, texts: Statements, clock: Clock): Pick<Context, 'prepare' | 'forget'> {
  const second = secondOf(gate.pool, settings.lock)
  const channel = probeChannel()
  const nothing = { tables: false, session: false, database: settings.lock === undefined }
  let ready = { ...nothing }
  return {
    async prepare ({ client }, isForLock) {
      if (isForLock && !ready.session) {
        probeDriver(client)
        await probeSession(client, second, channel, clock)
        await probeWrites(client)
        ready.session = true
      }
      if (isForLock && !ready.database) ready.database = await probeDatabase(client, gate, texts)
      if (!ready.tables) {
        await migrate(client, settings.schema, settings.migrate)
        await probeRights(client, settings.schema)
        ready.tables = true
      }
    },
    forget () { ready = { ...nothing } }
  }
}
