import { once } from 'node:events'
import { connect as connectHttp2 } from 'node:http2'
import { connect } from 'node:net'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import Fastify from 'fastify'
import t from 'tap'
import { streamEvents } from '../../lib/http/events.js'
import type { Hub, Listener } from '../../lib/http/hub.js'
import { serveSync } from '../helpers/dashboards.js'
import { setStage } from '../helpers/host.js'
import { httpHost } from '../helpers/http.js'
import { listen } from '../helpers/listen.js'
import { startPostgres } from '../helpers/postgres.js'
import { gate, until } from '../helpers/until.js'

t.setTimeout(120_000)
const cluster = await startPostgres(t)

t.test('start, progress and end of a run are heard, whichever process runs it', async t => {
  const stage = await setStage(t, cluster)
  const [on, out] = [gate(), gate()]
  const other = await stage.host({
    name: 'order-sync',
    sync: async run => {
      run.progress(1_250, 10_000)
      await on.passed
      run.progress(9_000, 10_000)
      await out.passed
    }
  })
  const { url } = await serveSync(t, stage)
  const client = await listen(t, `${url}events`)
  t.equal(client.status, 200)
  t.match(client.headers, { 'content-type': 'text/event-stream; charset=utf-8', 'cache-control': 'no-store', 'x-content-type-options': 'nosniff', 'x-accel-buffering': 'no' })
  await until(() => client.text().startsWith('retry: 3000\n\n'))
  const answer = await other.sync.trigger()
  if (!answer.started) return t.fail('it starts')
  const { runId } = answer
  t.match((await client.next('started')).data, { runId, trigger: 'manual', pid: process.pid, host: String, startedAt: String })
  t.match((await client.next('progress')).data, { runId, done: 1_250, total: 10_000 })
  on.open()
  t.match((await client.next('progress', data => data.done === 9_000)).data, { runId, total: 10_000 })
  const late = await listen(t, `${url}events`)
  t.match((await late.next('progress')).data, { runId, done: 9_000 }, 'who comes late hears how far it is')
  t.match(late.heard[0], { event: 'started', data: { runId } })
  out.open()
  const ended = await client.next('ended')
  t.match(ended, { id: runId, data: { id: runId, state: 'succeeded', trigger: 'manual' } })
  t.equal(client.heard.length, 4, 'and nothing twice')
})

t.test('a run of the very process that tells of it is heard as well', async t => {
  const stage = await setStage(t, cluster)
  const [on, out] = [gate(), gate()]
  const { app, url } = await serveSync(t, stage, {
    sync: async run => {
      await on.passed
      run.progress(7)
      await out.passed
    }
  })
  const client = await listen(t, `${url}events`)
  const answer = await app.triggerSync()
  await client.next('started')
  on.open()
  t.match((await client.next('progress')).data, { done: 7, total: null })
  out.open()
  t.match((await client.next('ended')).id, answer.started && answer.runId)
})

t.test('who comes back hears of the ends that were missed, oldest first', async t => {
  const stage = await setStage(t, cluster)
  const { app, url } = await serveSync(t, stage)
  const ids: string[] = []
  for (let run = 0; run < 3; run++) ids.push((await app.hourlySync.get().runOnce({ force: true })).run!.id)
  const back = await listen(t, `${url}events`, { 'last-event-id': ids[0]! })
  await back.next('ended', data => data.id === ids[2])
  t.strictSame(back.heard.map(({ event, id }) => [event, id]), [['ended', ids[1]], ['ended', ids[2]]])
  const stranger = await listen(t, `${url}events`, { 'last-event-id': 'what nobody knows' })
  await stranger.next('ended', data => data.id === ids[2])
  t.strictSame(stranger.heard.map(({ id }) => id), ids, 'who names none of them hears of all there are')
  const fresh = await listen(t, `${url}events`)
  await until(() => fresh.text() !== '')
  t.strictSame(fresh.heard, [], 'who comes for the first time of none')
})

t.test('a Last-Event-ID has its limit, and a database that is away its answer', async t => {
  const stage = await setStage(t, cluster)
  const { ask, app } = await httpHost(t, stage)
  t.equal((await ask('/events', { headers: { 'last-event-id': 'x'.repeat(101) } })).statusCode, 400)
  ;(app as any).pg.pool.connect = async () => { throw new Error('away') }
  const answer = await ask('/events', { headers: { 'last-event-id': 'x' } })
  t.equal(answer.statusCode, 503)
  t.match(answer.json(), { code: 'FST_HOURLY_SYNC_UNANSWERED' })
  t.equal((await app.inject({ method: 'HEAD', url: `/hourly-sync/${encodeURIComponent(stage.name)}/events` })).statusCode, 404, 'there is no HEAD that would never end')
})

t.test('what hooks of the host have set is sent along', async t => {
  const stage = await setStage(t, cluster)
  const { root, base } = await httpHost(t, stage, {}, { before: app => { app.addHook('onRequest', async (_request, reply) => { reply.header('access-control-allow-origin', 'https://shop.example') }) } })
  const address = await root.listen({ host: '127.0.0.1', port: 0 })
  const { headers } = await listen(t, `${address}${base}/events`)
  t.equal(headers['access-control-allow-origin'], 'https://shop.example')
})

t.test('a process sends its looks only while somebody listens', async t => {
  const stage = await setStage(t, cluster)
  const { app, url } = await serveSync(t, stage)
  await app.hourlySync.get().runOnce({ force: true })
  const pool = (app as any).pg.pool
  const connect = pool.connect.bind(pool)
  let looks = 0
  pool.connect = async () => {
    looks++
    return await connect()
  }
  const clients = await Promise.all(Array.from({ length: 20 }, async () => await listen(t, `${url}events`)))
  const begun = performance.now()
  await until(() => looks >= 3)
  const seconds = (performance.now() - begun) / 1_000
  t.ok(looks <= seconds + 2, `${looks} looks in ${seconds} s, for 20 listeners`)
  for (const client of clients) client.leave()
  await until(async () => await connections(app) === 0)
  const then = looks
  await new Promise(resolve => setTimeout(resolve, 1_300)) // longer than from one look to the next
  t.ok(looks - then <= 1, 'one that was under way when the last left')
})

t.test('close() ends every listener, and does not wait for them', async t => {
  const stage = await setStage(t, cluster)
  const { app, url } = await serveSync(t, stage)
  const clients = await Promise.all(Array.from({ length: 10 }, async () => await listen(t, `${url}events`)))
  const begun = performance.now()
  await app.close()
  await Promise.all(clients.map(async client => await client.ended))
  t.ok(performance.now() - begun < 3_000)
})

/** How many connections a server has. */
async function connections (app: any): Promise<number> {
  return await new Promise((resolve, reject) => app.server.getConnections((error: Error | null, count: number) => error === null ? resolve(count) : reject(error)))
}

t.test('two hundred listeners come and go, and nothing of them stays', async t => {
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc') as () => void
  const stage = await setStage(t, cluster)
  const { app, url } = await serveSync(t, stage)
  const seen: Array<WeakRef<object>> = []
  app.server.on('request', (_request, response) => seen.push(new WeakRef(response)))
  for (let round = 0; round < 2; round++) {
    const clients = await Promise.all(Array.from({ length: 200 }, async () => await listen(t, `${url}events`)))
    await until(() => clients.every(client => client.text() !== ''))
    t.equal(await connections(app), 200)
    for (const client of clients) client.leave()
    await until(async () => await connections(app) === 0)
  }
  t.equal(seen.length, 400)
  const left = await until(async () => {
    collect()
    await new Promise(resolve => setImmediate(resolve))
    const left = seen.filter(response => response.deref() !== undefined).length
    return left <= 4 && { left } // the last ones may still stand in a frame of node's own
  })
  t.ok(left.left <= 4, `${left.left} of 400 answers are still there`)
})

/** A server whose events come from a hub by hand. */
async function byHand (t: any, hub: Partial<Hub>, newest: () => Promise<any[]> = async () => []): Promise<{ url: string, port: number, app: any }> {
  const app = Fastify()
  t.teardown(async () => await app.close())
  const handle = streamEvents({ size: 0, news: 0, add () {}, remove () {}, close () {}, ...hub }, newest)
  app.get('/events', handle)
  const url = await app.listen({ host: '127.0.0.1', port: 0 })
  return { url: `${url}/events`, port: Number(new URL(url).port), app }
}

t.test('a client of HTTP/2 listens as well', async t => {
  const app = Fastify({ http2: true })
  t.teardown(async () => await app.close())
  const written = gate()
  const hub: Hub = {
    size: 0,
    news: 0,
    add: listener => {
      listener.write('data: 1\n\n')
      written.passed.then(() => listener.end())
    },
    remove () {},
    close () {}
  }
  app.get('/events', streamEvents(hub, async () => []) as any)
  const client = connectHttp2(await app.listen({ host: '127.0.0.1', port: 0 }))
  t.teardown(() => client.destroy())
  const stream = client.request({ ':path': '/events' })
  const [headers] = await once(stream, 'response')
  t.match(headers, { ':status': 200, 'content-type': 'text/event-stream; charset=utf-8' })
  stream.setEncoding('utf8')
  t.equal((await once(stream, 'data'))[0], 'data: 1\n\n')
  written.open()
  await once(stream, 'end')
})

t.test('as many may listen as is reasonable, and the next is told when to come back', async t => {
  const { app } = await byHand(t, { size: 500 })
  const answer = await app.inject('/events')
  t.equal(answer.statusCode, 503)
  t.equal(answer.headers['retry-after'], '30')
  t.match(answer.json(), { code: 'FST_HOURLY_SYNC_LISTENERS' })
})

t.test('a client that does not read is let go', async t => {
  const added: Listener[] = []
  const gone = gate()
  const { port } = await byHand(t, { add: listener => { added.push(listener) }, remove: () => gone.open() })
  const socket = connect(port, '127.0.0.1')
  t.teardown(() => socket.destroy())
  socket.on('error', () => {})
  socket.write('GET /events HTTP/1.1\r\nhost: x\r\n\r\n')
  const [listener] = await until(() => added.length === 1 && added)
  let writes = 0
  const chunk = 'x'.repeat(64 * 1_024)
  for (let over = false; !over; writes++) {
    listener!.write(chunk)
    over = await Promise.race([gone.passed.then(() => true), new Promise<boolean>(resolve => setImmediate(() => resolve(false)))])
    if (writes > 1_000) return t.fail('it takes 64 MB')
  }
  t.ok(writes > 4, `after ${writes} times 64 kB, most of them in the socket`)
})

t.test('a client that has not waited for the answer is no listener', async t => {
  const [asked, goOn, added] = [gate(), gate(), [] as Listener[]]
  const { port, app } = await byHand(t, { add: listener => { added.push(listener) } }, async () => {
    asked.open()
    await goOn.passed
    return []
  })
  const socket = connect(port, '127.0.0.1')
  socket.write('GET /events HTTP/1.1\r\nhost: x\r\nlast-event-id: y\r\n\r\n')
  await asked.passed
  socket.destroy()
  await until(async () => await connections(app) === 0)
  goOn.open()
  await new Promise(resolve => setImmediate(resolve))
  t.strictSame(added, [])
})
