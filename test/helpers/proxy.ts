import { createServer, connect, type Socket } from 'node:net'

/** A TCP proxy that can go silent: it then forwards nothing and closes nothing, like a half-open connection. */
export interface Proxy {
  port: number
  silence: () => void
  /** How many connections came. */
  accepted: () => number
  /** How many of them are not closed. */
  open: () => number
}

interface Scope { teardown: (fn: () => unknown) => void }

export async function startProxy (t: Scope, port: number): Promise<Proxy> {
  const sockets = new Set<Socket>()
  let silent = false
  let accepted = 0
  let open = 0
  const server = createServer({ allowHalfOpen: true }, client => {
    const upstream = connect({ port, host: '127.0.0.1', allowHalfOpen: true })
    accepted++
    open++
    client.once('close', () => { open-- })
    for (const [from, to] of [[client, upstream], [upstream, client]] as const) {
      sockets.add(from)
      from.on('error', () => {})
      from.on('data', chunk => { if (!silent) to.write(chunk) })
      from.on('end', () => { if (!silent) to.end() })
    }
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  t.teardown(async () => {
    for (const socket of sockets) socket.destroy()
    await new Promise(resolve => server.close(resolve))
  })
  return {
    port: (server.address() as { port: number }).port,
    silence: () => { silent = true },
    accepted: () => accepted,
    open: () => open
  }
}
