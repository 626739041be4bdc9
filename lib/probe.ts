import type { FastifyBaseLogger } from 'fastify'
import { randomBytes } from 'node:crypto'
import pg, { type ClientBase, type ClientConfig, type Pool } from 'pg'
import { type Clock, wait } from './clock.js'
import type { PoolGate } from './connections.js'
import {
  FST_HOURLY_SYNC_OTHER_DATABASE, FST_HOURLY_SYNC_OUTDATED_PG, FST_HOURLY_SYNC_POOLED, FST_HOURLY_SYNC_READ_ONLY, FST_HOURLY_SYNC_RIGHTS
} from './errors.js'
import { lockHalves } from './lock-key.js'
import type { Settings } from './options.js'
import { backendPid, busyFor, type HolderRow, identifier, missingRights, ours, probeLock, readOnly, type Statements } from './sql.js'

/** How long a notification may take to be heard, milliseconds; on a session of one's own it takes well under ten. */
const HEARD = 2_000

/** How often, and for how long each time, the second client keeps a backend busy while the first says which one is its own. */
const ROUNDS = 6
const BUSY = 15

/** How long the pool may take to say whether it sees a lock, milliseconds. */
const SEEN = 2_000

/** A second connection made the same way as the one that is looked at. */
export type Second = () => ClientBase & { connect: () => Promise<unknown>, end: () => Promise<void> }

/**
 * Whether the lock session can be led at all.
 *
 * @throws FST_HOURLY_SYNC_OUTDATED_PG
 */
export function probeDriver (client: ClientBase): void {
  if (typeof client.getTransactionStatus !== 'function') throw new FST_HOURLY_SYNC_OUTDATED_PG()
}

/**
 * Whether what `client` locks is seen through the pool, which is then of the same database of the same server: found out with a lock of a random key, for
 * neither names nor addresses tell through a pooler, and not every role may ask for more. Leaves nothing behind.
 *
 * @returns whether it is certain: a pool that does not answer in time says nothing
 * @throws FST_HOURLY_SYNC_OTHER_DATABASE
 */
export async function probeDatabase (client: ClientBase, { ask }: PoolGate, { holder, unlock }: Statements): Promise<boolean> {
  const key = randomBytes(8).readBigInt64BE()
  const { classid, objid } = lockHalves(key)
  await client.query(ours(probeLock, [key.toString()]))
  const seen = await ask<HolderRow>(holder, [classid, objid], SEEN).then(({ length }) => length > 0, () => undefined)
  await client.query(ours(unlock, [key.toString()]))
  if (seen === false) throw new FST_HOURLY_SYNC_OTHER_DATABASE()
  return seen === true
}

/**
 * Finds out, without any configuration, whether the session of `client` is its own from one transaction to the next.
 *
 * A client whose process id, told when it connected, is that of the backend that answers, talks to the server directly. Otherwise something
 * stands between. It pools sessions when a notification that another client sends is heard here, for a `listen`
 * belongs to a session; and when, as a second veto, the backend stays the same while the other client keeps backends busy.
 *
 * @param channel - a name of one's own; the same each time, since behind a pooler the `listen` may stay on some backend
 * @throws FST_HOURLY_SYNC_POOLED when sessions are not kept apart
 */
export async function probeSession (client: ClientBase, second: Second, channel: string, clock: Clock): Promise<void> {
  const own = (client as ClientBase & { processID?: number }).processID
  const first = await backendOf(client)
  if (own === first) return
  const other = second()
  other.on('error', () => {}) // it is only a probe's
  try {
    await other.connect()
    if (!await hearsOther(client, other, { first, channel, clock })) return
    for (let round = 0; round < ROUNDS; round++) {
      const [backend] = await Promise.all([backendOf(client), other.query(ours(busyFor, [BUSY / 1_000]))])
      if (backend !== first) throw new FST_HOURLY_SYNC_POOLED(`backend ${first} answered first, then ${backend}`)
    }
  } finally {
    other.end().catch(() => {})
  }
}

async function backendOf (client: ClientBase): Promise<number> {
  const { rows: [row] } = await client.query<{ backend: number }>(ours(backendPid))
  return row!.backend
}

/**
 * Whether what the other client sends is heard here; `false` when that one has to wait, for this client keeps the only session there is.
 *
 * Time counts from when the other client was served: on a busy machine a pooler is long in making its next session.
 *
 * @throws FST_HOURLY_SYNC_POOLED when it was served, and nothing is heard
 */
async function hearsOther (client: ClientBase, other: ClientBase, { first, channel, clock }: { first: number, channel: string, clock: Clock }): Promise<boolean> {
  const heard = new AbortController()
  const listener = (notification: { channel: string }): void => { if (notification.channel === channel) heard.abort() }
  client.on('notification', listener)
  try {
    await client.query(`listen ${identifier(channel)}`)
    const served = other.query(`notify ${identifier(channel)}`)
    served.catch(() => {}) // it is awaited further down
    await Promise.race([served.catch(() => {}), wait(clock, HEARD, heard.signal)])
    if (!heard.signal.aborted && await hasOneToItself(client, first, served)) return false
    await served
    await wait(clock, HEARD, heard.signal)
    if (!heard.signal.aborted) throw new FST_HOURLY_SYNC_POOLED('a notification to this session was not heard')
    return true
  } finally {
    client.removeListener('notification', listener)
    await client.query(`unlisten ${identifier(channel)}`)
  }
}

/**
 * Whether the pooler lets the other client wait while this one is answered again and again, by one backend. Then that backend is kept for this client:
 * a pool of sessions that has no more. Who shares a backend waits for it in turn.
 */
async function hasOneToItself (client: ClientBase, first: number, served: Promise<unknown>): Promise<boolean> {
  let isServed = false
  served.then(() => { isServed = true }, () => { isServed = true })
  for (let turn = 0; turn < ROUNDS; turn++) {
    if (await backendOf(client) !== first) return false
  }
  return !isServed
}

/** A channel that no other process listens on. */
export function probeChannel (): string {
  return `hourly_sync_${randomBytes(8).toString('hex')}`
}

/** Makes the second connection as `pool` makes its own, or as the lock session is made. */
export function secondOf (pool: Pool, lock: ClientConfig | undefined): Second {
  if (lock !== undefined) return () => new pg.Client(lock)
  const { Client = pg.Client, options } = pool as Pool & { Client?: typeof pg.Client }
  return () => new Client(options as ClientConfig)
}

/**
 * Whether the role may do what the plugin does.
 *
 * @throws FST_HOURLY_SYNC_RIGHTS naming what is missing
 */
export async function probeRights (client: ClientBase, schema: string): Promise<void> {
  const { rows } = await client.query<{ missing: string }>(ours(missingRights, [identifier(schema)]))
  if (rows.length > 0) throw new FST_HOURLY_SYNC_RIGHTS(schema, rows.map(row => row.missing).join(', '))
}

/**
 * Whether a primary takes writes of this session; a replica, which takes none, is found by who looks for the tables.
 *
 * @throws FST_HOURLY_SYNC_READ_ONLY when its transactions are read-only by default
 */
export async function probeWrites (client: ClientBase): Promise<void> {
  const { rows: [row] } = await client.query<{ primary: boolean, readonly: boolean }>(ours(readOnly))
  if (row!.primary && row!.readonly) {
    throw new FST_HOURLY_SYNC_READ_ONLY('its transactions are read-only by default (default_transaction_read_only): turn that off for this role and database')
  }
}

/** What is worth a warning about a pool, at boot and without asking the database. */
export function warnAboutPool (pool: Pool, settings: Settings, log: FastifyBaseLogger): void {
  if (settings.lock !== undefined) return
  const { max, maxLifetimeSeconds } = (pool.options ?? {}) as { max?: number, maxLifetimeSeconds?: number }
  if (max === 1) {
    log.warn('the pool has one client, and a run holds it: requests wait for the run, and a sync that queries the pool itself waits for ever')
  }
  if (maxLifetimeSeconds !== undefined && maxLifetimeSeconds > 0 && maxLifetimeSeconds * 1_000 < settings.timeout) {
    log.warn({ maxLifetimeSeconds, timeout: settings.timeout }, 'maxLifetimeSeconds of the pool is shorter than the timeout of the sync')
  }
}
