import { setTimeout as rest } from 'node:timers/promises'
import postgres from '@fastify/postgres'
import Fastify, { type FastifyInstance } from 'fastify'
import hourlySync from '../../index.js'

/** A host with a route of its own and these syncs, which tell ten times a second how far they are for as long as they go on. */
export async function hostOf (url: string, names: string[], goesOn = (): boolean => false): Promise<FastifyInstance> {
  const app = Fastify()
  await app.register(postgres, { connectionString: url })
  for (const name of names) {
    await app.register(hourlySync, {
      name,
      enabled: false,
      routes: { public: true },
      sync: async run => {
        for (let done = 0; goesOn() && !run.signal.aborted; done++) {
          run.progress(done, 1_000_000)
          await rest(100)
        }
      }
    })
  }
  app.get('/orders', async () => (await app.pg.query('select id, id % 7 as status from generate_series(1, 50) as id')).rows)
  return app
}
