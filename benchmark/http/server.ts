// A host in a process of its own, that begins and ends a run when it is told to.
import { hostOf } from './host.js'

const app = await hostOf(process.env.DATABASE_URL!, ['long'])
const address = await app.listen({ host: '127.0.0.1', port: 0 })

process.on('message', async message => {
  if (message === 'run') process.send!({ started: (await app.triggerSync()).started })
})
process.on('disconnect', () => process.exit())
process.send!({ address })
