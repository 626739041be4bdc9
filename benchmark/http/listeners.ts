// Clients that listen to the events of a server, in a process of their own. They come and go when they are told to, and say what they have heard.
import { type ClientRequest, get } from 'node:http'

const [, , url = '', count = '200'] = process.argv
let open: ClientRequest[] = []
let heard = 0

async function listen (): Promise<ClientRequest> {
  return await new Promise((resolve, reject) => {
    const request = get(url, { agent: false }, response => {
      response.on('data', chunk => { heard += String(chunk).split('event: progress').length - 1 })
      response.on('error', () => {}) // it is we who leave
      response.once('data', () => resolve(request))
    }).on('error', reject)
  })
}

process.on('message', async message => {
  if (message === 'come') {
    heard = 0
    open = await Promise.all(Array.from({ length: Number(count) }, listen))
  } else for (const request of open.splice(0)) request.destroy()
  process.send!({ heard })
})
process.on('disconnect', () => process.exit())
process.send!({ ready: true })
