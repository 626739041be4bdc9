import { connect, createServer, type Socket } from 'node:net'

/** A stretch of network between a process and PostgreSQL. */
export interface Proxy {
  readonly port: number
  /** Every connection breaks, and for the next `ms` no new one is made. */
  cut: (ms: number) => void
  /** Nothing passes any more, either way, and nobody is told: not even that the other side is gone. */
  freeze: () => void
  /** Everything held back is delivered, or all of it is lost with its connections. */
  thaw: (late: boolean) => void
  close: () => Promise<void>
}

export async function startProxy (target: number): Promise<Proxy> {
  const links = new Set<Socket>()
  let waiting: Socket[] = []
  let frozen = false
  let closedUntil = 0

  /** Both ends, each telling the other what it hears. */
  function link (near: Socket): void {
    const far = connect({ port: target, host: '127.0.0.1', allowHalfOpen: true })
    for (const [from, to] of [[near, far], [far, near]] as const) {
      links.add(from)
      from.setNoDelay(true)
      from.on('data', data => { to.write(data) })
      from.on('end', () => { to.end() })
      from.on('error', () => {})
      from.on('close', () => {
        links.delete(from)
        if (!frozen) to.destroy()
      })
    }
    if (frozen) far.pause()
  }

  const server = createServer({ allowHalfOpen: true, pauseOnConnect: true }, socket => {
    socket.on('error', () => {})
    if (performance.now() < closedUntil) socket.resetAndDestroy()
    else if (frozen) waiting.push(socket) // as far as it can tell, it is connected
    else {
      link(socket)
      socket.resume()
    }
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))

  function drop (): void {
    for (const socket of [...links, ...waiting]) socket.resetAndDestroy()
    waiting = []
  }

  return {
    port: (server.address() as { port: number }).port,
    cut (ms) {
      closedUntil = performance.now() + ms
      drop()
    },
    freeze () {
      frozen = true
      for (const socket of links) socket.pause()
    },
    thaw (late) {
      frozen = false
      if (!late) return drop()
      const held = waiting
      waiting = []
      for (const socket of links) socket.resume()
      for (const socket of held) {
        link(socket)
        socket.resume()
      }
    },
    async close () {
      frozen = false
      drop()
      await new Promise(resolve => server.close(resolve))
    }
  }
}
