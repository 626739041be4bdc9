// A host in a process of its own, that begins and ends a run when it is told to.
import { hostOf } from './host.js'

let goesOn = false
const app = await hostOf(process.env.DATABASE_URL!, ['long'], () => goesOn)
const address = await app.listen({ host: '127.0.0.1', port: 0 })

process.on('message', async message => {
  goesOn = message === 'run'
  if (goesOn) return process.send!({ started: (await app.triggerSync()).started })
  while (await app.isSyncing()) await new Promise(resolve => setTimeout(resolve, 100))
  process.send!({ ended: true })
})
process.on('disconnect', () => process.exit())
process.send!({ address })
