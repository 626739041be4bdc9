// Clients that listen to the events of a server, in a process of their own. Says how many events they have heard when it is asked.
import { get } from 'node:http'

const [, , url = '', count = '200'] = process.argv
let heard = 0
const open = Array.from({ length: Number(count) }, async () => await new Promise<void>((resolve, reject) => {
  get(url, { agent: false }, response => {
    response.on('data', chunk => { heard += String(chunk).split('event: progress').length - 1 })
    response.once('data', () => resolve())
  }).on('error', reject)
}))
await Promise.all(open)
process.on('message', () => process.send!({ heard }))
process.on('disconnect', () => process.exit())
process.send!({ open: open.length })
