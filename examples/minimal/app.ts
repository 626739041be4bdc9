import postgres from '@fastify/postgres'
import Fastify from 'fastify'
import hourlySync from 'fastify-hourly-sync'
import { fetchOrders } from './orders.js'

const app = Fastify({ logger: true })
await app.register(postgres, { connectionString: process.env.DATABASE_URL })
await app.register(hourlySync, {
  name: 'order-sync',
  enabled: process.env.AUTO_SYNC === 'true',
  requires: { ORDER_API_KEY: process.env.ORDER_API_KEY },
  sync: async (run) => {
    let saved = 0
    for await (const page of fetchOrders({ since: run.since, until: run.until, signal: run.signal })) {
      await run.upsert('orders', page, { key: ['external_id'], newerBy: 'updated_at' })
      saved += page.length
      run.progress(saved)
    }
    return { stats: { saved } }
  }
})
app.post('/orders/refresh', async (_request, reply) => {
  const { started } = await app.triggerSync()
  return reply.code(started ? 202 : 409).send({ started })
})
app.get('/orders', async () => (await app.pg.query('select * from orders order by external_id limit 100')).rows)

// the grace before a kill must be longer than `closeTimeout`, 5 s
for (const signal of ['SIGTERM', 'SIGINT']) process.once(signal, () => app.close())
await app.listen({ port: Number(process.env.PORT ?? 3000) })
