import fastifyPostgres from '@fastify/postgres'
import Fastify, { type FastifyBaseLogger, type FastifyInstance } from 'fastify'
import pg from 'pg'
import type { Test } from 'tap'
import hourlySync from '../../index.js'
import { systemClock, type Clock } from '../../lib/clock.js'
import { createPoolGate, type PoolGate } from '../../lib/connections.js'
import { migrationSql } from '../../lib/migrations.js'
import { parseOptions } from '../../lib/options.js'
import { createService, type Service } from '../../lib/service.js'
import type { HourlySync, HourlySyncOptions } from '../../lib/types.js'
import { bendClock, type ClockShim } from './clock-shim.js'
import { handClock, type HandClock } from './hand-clock.js'
import type { Cluster } from './postgres.js'
import { until } from './until.js'

/** One line of the host's log, as pino writes it. */
export interface Line { level: number, msg: string, err?: { type: string, message: string, code?: string }, [field: string]: any }

export const levels = { debug: 20, info: 30, warn: 40, error: 50 }

export interface Log {
  lines: Line[]
  /** The lines with this message. */
  said: (msg: string) => Line[]
  logger: { level: string, stream: { write: (line: string) => void } }
}

export function captureLog (): Log {
  const lines: Line[] = []
  return {
    lines,
    said: msg => lines.filter(line => line.msg === msg),
    logger: { level: 'debug', stream: { write: line => { lines.push(JSON.parse(line)) } } }
  }
}

/** A logger of its own, for rooms that are tested without an app. */
export function loggerOf (log: Log): FastifyBaseLogger {
  return Fastify({ logger: log.logger }).log
}

/** A server of the host, in this process. Several of them are as many processes to PostgreSQL. */
export interface Host {
  app: FastifyInstance
  sync: HourlySync
  log: Log
  pool: pg.Pool
}

/** One sync without an app, for what needs a clock of its own. */
export interface Bare {
  sync: Service
  log: Log
  pool: pg.Pool
  gate: PoolGate
}

/** One sync whose loop goes by hand. */
export interface Looping extends Bare {
  hands: HandClock
  /** Resolves when the loop waits for its next look; how long that is, milliseconds. */
  rests: () => Promise<number>
  /** Lets the time until the next look pass, for the server and the process alike, and waits for what comes of it. */
  look: () => Promise<void>
}

/** What a test shares between its hosts. */
export interface Stage {
  /** Name of the sync. */
  name: string
  schema: string
  clock: ClockShim
  /** Settings of a pool whose sessions have the bent clock. */
  poolConfig: pg.PoolConfig
  /** Options of the plugin that go with such a pool. */
  options: Partial<HourlySyncOptions>
  host: (options?: Partial<HourlySyncOptions>, pool?: pg.PoolConfig) => Promise<Host>
  /** The same sync assembled by hand. */
  bare: (options?: Partial<HourlySyncOptions>, clock?: Clock, pool?: pg.PoolConfig, gate?: PoolGate) => Bare
  looping: (options?: Partial<HourlySyncOptions>, pool?: pg.PoolConfig) => Looping
  /** A pool alone, with the bent clock. */
  pool: (config?: pg.PoolConfig) => pg.Pool
  query: (text: string, values?: unknown[]) => Promise<pg.QueryResult>
  /** The history, oldest first. */
  history: () => Promise<any[]>
  /** The row of the sync. */
  state: () => Promise<any>
  /** How many sessions hold the lock of the sync. */
  holders: () => Promise<number>
}

let stages = 0

/** What is not as in most tests. */
interface Setting {
  /** How hosts connect to the database. */
  pool?: pg.PoolConfig
  options?: Partial<HourlySyncOptions>
  /** Whether the tables are left to the first look, which makes them on a session that has run nothing yet: that is dear. */
  empty?: boolean
}

/** A schema, a clock and a name for one test. */
export async function setStage (t: Test, cluster: Cluster, database?: string, through: Setting = {}): Promise<Stage> {
  const number = ++stages
  const name = t.name.slice(0, 100)
  const schema = `sync_${number}`
  const query: Stage['query'] = async (text, values) => await cluster.query(text, values, database)
  const clock = await bendClock(query, `shim_${number}`)
  if (through.empty !== true) await query(`set search_path to ${clock.searchPath}; ${migrationSql(schema)} reset search_path`)
  const poolConfig: pg.PoolConfig = {
    connectionString: cluster.url(database), options: `-c search_path=${clock.searchPath.replaceAll(' ', '')}`, application_name: `host_${number}`, max: 6, ...through.pool
  }
  const pool: Stage['pool'] = config => {
    const made = new pg.Pool({ ...poolConfig, ...config })
    made.on('error', () => {})
    t.teardown(async () => { if (!made.ended) await made.end() })
    return made
  }

  function bare (options?: Partial<HourlySyncOptions>, clock: Clock = systemClock, config?: pg.PoolConfig, shared?: PoolGate): Bare {
    const log = captureLog()
    const logger = loggerOf(log)
    const gate = shared ?? createPoolGate(pool(config), clock, logger)
    const sync = createService(parseOptions({ name, schema, enabled: true, startupDelay: 0, sync: async () => {}, ...through.options, ...options }), logger, clock)
    sync.open(gate)
    t.teardown(async () => await sync.close())
    return { sync, log, gate, pool: gate.pool }
  }

  return {
    name,
    schema,
    clock,
    poolConfig,
    options: through.options ?? {},
    query,
    pool,
    async host (options, config) {
      const log = captureLog()
      const app = Fastify({ logger: log.logger })
      t.teardown(async () => await app.close())
      await app.register(fastifyPostgres, { ...poolConfig, ...config })
      await app.register(hourlySync, { name, schema, enabled: false, startupDelay: 0, sync: async () => {}, ...through.options, ...options })
      await app.ready()
      return { app, log, sync: app.hourlySync.get(options?.name ?? name), pool: (app as any).pg.pool }
    },
    bare,
    looping (options, config) {
      const hands = handClock()
      const made = bare({ heartbeat: '1h', ...options }, hands, config) // by hand, time passes faster than the server can answer
      const rests = async (): Promise<number> => (await until(async () => (await made.sync.status()).nextLook)).getTime() - hands.now()
      made.sync.start()
      return {
        ...made,
        hands,
        rests,
        async look () {
          const ms = await rests()
          await clock.pass(ms)
          await hands.advance(ms)
          await rests()
        }
      }
    },
    history: async () => (await query(`select * from ${schema}.run order by finished_at, started_at`)).rows,
    state: async () => (await query(`select * from ${schema}.sync where name = $1`, [name])).rows[0],
    holders: async () => {
      const { rows } = await query(`select count(*)::int as count from pg_locks
        where locktype = 'advisory' and granted and objsubid = 1
          and (classid::bigint << 32 | objid::bigint) = (select lock_key from ${schema}.sync where name = $1)`, [name])
      return rows[0].count
    }
  }
}
