import { Agent, get, type IncomingHttpHeaders } from 'node:http'
import type { Test } from 'tap'
import { until } from './until.js'

export interface Heard { event: string, id?: string, data: any }

/** A client of server-sent events. */
export interface Listening {
  status: number
  headers: IncomingHttpHeaders
  /** All that was heard so far, in order. */
  heard: Heard[]
  /** Resolves with the first such event, once it has come. */
  next: (event: string, fits?: (data: any) => boolean) => Promise<Heard>
  /** As it came. */
  text: () => string
  leave: () => void
  /** Resolves when the stream has ended, whoever ended it. */
  ended: Promise<void>
}

export async function listen (t: Pick<Test, 'teardown'>, url: string, headers: Record<string, string> = {}): Promise<Listening> {
  const agent = new Agent({ keepAlive: true }) // as a browser has it
  return await new Promise((resolve, reject) => {
    const request = get(url, { headers: { accept: 'text/event-stream', ...headers }, agent }, response => {
      const heard: Heard[] = []
      let text = ''
      let rest = ''
      response.setEncoding('utf8')
      response.on('data', (chunk: string) => {
        text += chunk
        rest += chunk
        const blocks = rest.split('\n\n')
        rest = blocks.pop()!
        heard.push(...blocks.map(read).filter(found => found !== undefined))
      })
      response.on('error', () => {}) // it was cut
      resolve({
        status: response.statusCode!,
        headers: response.headers,
        heard,
        next: async (event, fits = () => true) => await until(() => heard.find(found => found.event === event && fits(found.data)), `${event} is heard`),
        text: () => text,
        leave: () => { request.destroy() },
        ended: new Promise(resolve => { response.on('close', resolve) })
      })
    })
    request.on('error', reject)
    t.teardown(() => {
      request.destroy()
      agent.destroy()
    })
  })
}

function read (block: string): Heard | undefined {
  const fields = Object.fromEntries(block.split('\n').map(line => [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(': ') + 2)]))
  return fields.event === undefined ? undefined : { event: fields.event, ...(fields.id !== undefined && { id: fields.id }), data: JSON.parse(fields.data!) }
}
