import type { ClientConfig } from 'pg'
import { invalid, object, refuseMisspelt, text } from './checks.js'

/** What says where the database is: with none of it the defaults and the environment would, which is hardly what `lock` is for. */
const places = ['connectionString', 'host', 'port', 'stream']

/** What pg knows, and its pool, whose settings a host may hand in with another place. */
const known = [
  ...places, 'user', 'database', 'password', 'ssl', 'sslnegotiation', 'enableChannelBinding', 'scramMaxIterations', 'keepAlive', 'keepAliveInitialDelayMillis',
  'connectionTimeoutMillis', 'statement_timeout', 'query_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout', 'application_name',
  'fallback_application_name', 'client_encoding', 'options', 'types', 'binary', 'pipeline', 'replication', 'connection', 'Promise',
  'max', 'min', 'idleTimeoutMillis', 'log', 'allowExitOnIdle', 'maxUses', 'maxLifetimeSeconds', 'Client', 'onConnect', 'verify'
]

/**
 * The option `lock`. Names that pg does not know are left to it, for a connection string that was parsed may hold any; what looks like a slip is refused.
 *
 * @throws FST_HOURLY_SYNC_INVALID_OPTION
 */
export function lockConfig (value: unknown): Readonly<ClientConfig> {
  const given = object('lock', value)
  for (const name of Object.keys(given)) {
    if (!known.includes(name)) refuseMisspelt(name, known, 'lock.')
  }
  if (given.connectionString !== undefined) text('lock.connectionString', given.connectionString)
  if (places.every(name => given[name] === undefined || given[name] === null)) {
    throw invalid('lock', `settings of pg that say where the database is (${places.join(', ')})`, given)
  }
  return Object.freeze({ ...given })
}
