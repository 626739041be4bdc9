/** What does the same job elsewhere, each set up as its own documentation does it, one process's worth. */
import postgres from '@fastify/postgres'
import Fastify, { type FastifyInstance } from 'fastify'
import hourlySync, { type HourlySyncOptions } from '../../dist/index.js'
import { Logger, parseCronItems, run as runWorker } from 'graphile-worker'
import PgBoss from 'pg-boss'

/** A peer that is up. */
export interface Peer {
  /** Leaves idle clients in the pool, as requests do. */
  warm?: () => Promise<unknown>
  /** Starts a run now, and resolves when it is over. */
  trigger?: () => Promise<void>
  close: () => Promise<unknown>
}

export interface Setting {
  url: string
  /** What runs: told at its first line. */
  ran: () => unknown
  applicationName: string
  options?: Partial<HourlySyncOptions>
}

/** A bare server with a pool, which all of them stand on. */
async function server ({ url, applicationName }: Setting): Promise<FastifyInstance> {
  const app = Fastify()
  await app.register(postgres, { connectionString: url, application_name: applicationName })
  return app
}

/** Something that happened once more. */
function signal (): { next: () => Promise<void>, happened: () => void } {
  let waiting: Array<() => void> = []
  return {
    next: async () => await new Promise(resolve => { waiting.push(resolve) }),
    happened () {
      for (const resolve of waiting) resolve()
      waiting = []
    }
  }
}

export const peers: Record<string, (setting: Setting) => Promise<Peer>> = {
  async 'fastify + @fastify/postgres' (setting) {
    const app = await server(setting)
    await app.ready()
    return { close: async () => await app.close() }
  },

  async 'fastify-hourly-sync' (setting) {
    const app = await server(setting)
    const first = signal()
    await app.register(hourlySync, {
      name: 'benchmark',
      enabled: true,
      ...setting.options,
      sync: async () => {
        const work = setting.ran()
        first.happened()
        await work
      }
    })
    await app.ready()
    return {
      warm: async () => await Promise.all([1, 2, 3].map(async () => await app.pg.query('select 1'))),
      async trigger () {
        const begun = first.next()
        const answer = await app.triggerSync()
        if (!answer.started) throw new Error(`not started: ${answer.reason} ${answer.message ?? ''}`)
        await begun
        await answer.finished
      },
      close: async () => await app.close()
    }
  },

  async 'lock by hand' (setting) {
    const app = await server(setting)
    await app.ready()
    return {
      async trigger () {
        const client = await app.pg.connect()
        try {
          const { rows: [row] } = await client.query('select pg_try_advisory_lock(42) as locked')
          if (row.locked === true) setting.ran()
          await client.query('select pg_advisory_unlock(42)')
        } finally {
          client.release()
        }
      },
      close: async () => await app.close()
    }
  },

  async 'pg-boss' (setting) {
    const app = await server(setting)
    await app.ready()
    const boss = new PgBoss({ connectionString: setting.url, application_name: setting.applicationName })
    boss.on('error', () => {})
    const first = signal()
    await boss.start()
    await boss.createQueue('benchmark')
    await boss.work('benchmark', async () => {
      setting.ran()
      first.happened()
    })
    await boss.schedule('benchmark', '0 * * * *')
    return {
      async trigger () {
        const begun = first.next()
        await boss.send('benchmark', {})
        await begun
      },
      async close () {
        await boss.stop({ graceful: false })
        await app.close()
      }
    }
  },

  async 'graphile-worker' (setting) {
    const app = await server(setting)
    await app.ready()
    const url = new URL(setting.url)
    url.searchParams.set('application_name', setting.applicationName)
    const first = signal()
    const runner = await runWorker({
      connectionString: url.href,
      noHandleSignals: true,
      logger: new Logger(() => () => {}),
      taskList: {
        benchmark: () => {
          setting.ran()
          first.happened()
        }
      },
      parsedCronItems: parseCronItems([{ task: 'benchmark', match: '0 * * * *' }])
    })
    return {
      async trigger () {
        const begun = first.next()
        await runner.addJob('benchmark', {})
        await begun
      },
      async close () {
        await runner.stop()
        await app.close()
      }
    }
  }
}
