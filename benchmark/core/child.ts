/** One peer in a process of its own, so that memory and connections are its alone. Told what to do by its parent. */
import { peers, type Peer } from './peers.js'

export interface Order { what: 'open' | 'trigger' | 'memory' | 'close', name: string, url: string, applicationName: string, options?: object, times?: number, cold?: boolean, hang?: boolean }

let peer: Peer
let at = 0
/** From the order to the first line of what runs, milliseconds, each run once. */
async function latencies (times: number, cold: boolean): Promise<number[]> {
  const found: number[] = []
  for (let nth = 0; nth < times; nth++) {
    if (!cold) await peer.warm?.()
    const begun = performance.now()
    await peer.trigger!()
    found.push(at - begun)
  }
  return found
}

async function memory (): Promise<{ heap: number, rss: number }> {
  for (let nth = 0; nth < 3; nth++) {
    globalThis.gc!()
    await new Promise(resolve => setTimeout(resolve, 100)) // finalizers
  }
  const { heapUsed, external, rss } = process.memoryUsage()
  return { heap: heapUsed + external, rss }
}

const works = {
  async open ({ name, url, applicationName, options, hang }: Order) {
    const ran = async (): Promise<void> => {
      at = performance.now()
      if (hang === true) {
        process.send!({ began: Date.now() })
        await new Promise(() => {})
      }
    }
    peer = await peers[name]!({ url, applicationName, ran, ...(options && { options }) })
  },
  trigger: async ({ times, cold }: Order) => await latencies(times!, cold === true),
  memory,
  close: async () => { await peer.close() }
}

process.on('message', (order: Order) => {
  works[order.what](order).then(
    result => process.send!({ result }, () => { if (order.what === 'close') process.exit() }),
    (error: Error) => process.send?.({ error: error.stack }))
})
