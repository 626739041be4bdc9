import { connect, createServer, type AddressInfo, type Socket } from 'node:net'
import type { Test } from 'tap'

export interface CuttingProxy {
  port: number
  /**
   * What happens, once, to the next message of a client that contains this text. `'after'`: the server gets it, and the connection is cut when it
   * has answered, without the answer. `'never'`: the server does not get it, and nobody hears of it.
   */
  cut: (text: string, when: 'after' | 'never') => void
  /** From now on new connections hear nothing of the server, until they are let through. */
  hold: () => void
  letThrough: () => void
}

/** A proxy before PostgreSQL that loses an answer, or a question, at a chosen moment. */
export async function startCuttingProxy (t: Test, target: number): Promise<CuttingProxy> {
  const sockets = new Set<Socket>()
  let cut: { text: string, when: 'after' | 'never' } | undefined
  let held: Socket[] | undefined

  const server = createServer(client => {
    if (held === undefined) forward(client)
    else held.push(client.on('error', () => {}))
  })

  function forward (client: Socket): void {
    const upstream = connect(target, '127.0.0.1')
    let state: 'open' | 'answering' | 'mute' = 'open'
    for (const socket of [client, upstream]) {
      sockets.add(socket)
      socket.on('error', () => {})
      socket.on('close', () => {
        sockets.delete(socket)
        client.destroy()
        upstream.destroy()
      })
    }
    client.on('data', chunk => {
      if (cut !== undefined && chunk.includes(cut.text)) {
        state = cut.when === 'after' ? 'answering' : 'mute'
        cut = undefined
      }
      if (state !== 'mute') upstream.write(chunk)
    })
    upstream.on('data', chunk => {
      if (state === 'open') client.write(chunk)
      else if (state === 'answering') client.destroy()
    })
  }
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  t.teardown(async () => {
    for (const socket of [...sockets, ...held ?? []]) socket.destroy()
    await new Promise(resolve => server.close(resolve))
  })
  return {
    port: (server.address() as AddressInfo).port,
    cut: (text, when) => { cut = { text, when } },
    hold: () => { held = [] },
    letThrough () {
      for (const client of held ?? []) forward(client)
      held = undefined
    }
  }
}
