import type { FastifyReply, FastifyRequest } from 'fastify'
import { FST_HOURLY_SYNC_LISTENERS } from '../errors.js'
import { NEWEST } from '../sql/readings.js'
import type { RunRecord } from '../types.js'
import { type Hub, type Listener, MOST_LISTENERS } from './hub.js'

/** What a client may leave unread before it is let go, bytes. */
const UNREAD = 256 * 1_024

/** Answers with a stream that the hub writes to, from after the run that the client names as the last it has heard of. */
export function streamEvents (hub: Hub, newest: (limit: number) => Promise<RunRecord[]>): (request: FastifyRequest, reply: FastifyReply) => Promise<FastifyReply> {
  return async (request, reply) => {
    const last = request.headers['last-event-id']
    const missed = typeof last === 'string' && last !== '' ? since(last, await newest(NEWEST)) : []
    if (hub.size >= MOST_LISTENERS) {
      reply.header('retry-after', 30)
      throw new FST_HOURLY_SYNC_LISTENERS(MOST_LISTENERS)
    }
    reply.hijack()
    const { raw } = reply
    if (raw.destroyed) return reply // it has not waited
    const listener: Listener = {
      write (text) {
        // a client that does not read must not fill the memory
        if (raw.writableLength > UNREAD) raw.destroy()
        else raw.write(text)
      },
      end: () => { raw.end() }
    }
    raw.on('error', () => {}) // it is gone, which is no error of ours
    raw.on('close', () => hub.remove(listener))
    raw.writeHead(200, {
      ...reply.getHeaders() as Record<string, string>, // what hooks of the host have set
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-store',
      // or close() would wait for the client to let its connection go; HTTP/2 has no such header
      ...(request.raw.httpVersionMajor === 1 && { connection: 'close' }),
      'x-accel-buffering': 'no'
    })
    hub.add(listener, missed)
    return reply
  }
}

/** The runs that ended after that one, oldest first; all of them when it is not among them. */
function since (id: string, newest: RunRecord[]): RunRecord[] {
  const inOrder = newest.toSorted((a, b) => a.finishedAt.getTime() - b.finishedAt.getTime())
  return inOrder.slice(inOrder.findIndex(run => run.id === id) + 1)
}
