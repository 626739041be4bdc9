import t from 'tap'
import Fastify from 'fastify'
import hourlySync from '../../index.js'
import { serveSync } from '../helpers/dashboards.js'
import { faults, httpHost } from '../helpers/http.js'
import { setStage } from '../helpers/host.js'
import { listen } from '../helpers/listen.js'
import { startPostgres } from '../helpers/postgres.js'
import { HOUR, mixedRuns, seed, type Seeded } from '../helpers/seed.js'
import { gate, until } from '../helpers/until.js'

t.setTimeout(240_000) // there are many
const cluster = await startPostgres(t)
const nobody = '11111111-1111-4111-8111-111111111111'
const json = { 'content-type': 'application/json' }

/** A route of each kind. */
const everything = ['/', '/assets/dashboard.css', '/assets/dashboard.js', '/assets/icon.svg', '/status', '/runs', `/runs/${nobody}`, '/slots', '/health', '/events']

t.test('routes without a guard are refused while registering', async t => {
  for (const routes of [{}, { dashboard: false }, { onRequest: undefined }, { public: false }, { health: { public: true } }]) {
    const app = Fastify()
    await t.rejects(async () => { await app.register(hourlySync, { name: 'orders', sync: async () => {}, routes }) }, { code: 'FST_HOURLY_SYNC_ROUTES_UNGUARDED' })
    await app.close()
  }
})

t.test('routes are checked like every option', async t => {
  const table: Array<[routes: any, option: string]> = [
    [true, 'routes'], [{ public: 1 }, 'routes.public'], [{ public: true, prefix: 'x' }, 'routes.prefix'], [{ public: true, prefix: '/a b' }, 'routes.prefix'],
    [{ onRequest: 'x' }, 'routes.onRequest'], [{ onRequest: [] }, 'routes.onRequest'], [{ preHandler: [() => {}, 1] }, 'routes.preHandler'],
    [{ public: true, maxAge: '1 fortnight' }, 'routes.maxAge'], [{ public: true, health: true }, 'routes.health'], [{ public: true, health: { open: true } }, 'routes.health.open'],
    [{ public: true, dashbord: false }, 'routes.dashbord'], [{ public: true, dashboard: 'no' }, 'routes.dashboard']
  ]
  for (const [routes, option] of table) {
    const app = Fastify()
    await t.rejects(async () => { await app.register(hourlySync, { name: 'orders', sync: async () => {}, routes }) }, { code: 'FST_HOURLY_SYNC_INVALID_OPTION', message: `option '${option}'` })
    await app.close()
  }
})

t.test('there are no routes unless they are asked for', async t => {
  const stage = await setStage(t, cluster)
  const { app } = await stage.host()
  t.equal((await app.inject(`/hourly-sync/${encodeURIComponent(stage.name)}/status`)).statusCode, 404)
})

for (const hook of ['onRequest', 'preHandler'] as const) {
  t.test(`an ${hook} guard covers every route, and nothing else of the host`, async t => {
    const stage = await setStage(t, cluster)
    const guard = async (request: any, reply: any): Promise<any> => {
      if (request.headers.authorization !== 'yes') return reply.code(401).send({ no: true })
    }
    const { app, base } = await httpHost(t, stage, { routes: { public: false, [hook]: guard } }, { before: app => { app.get('/open', async () => 'ok') } })
    for (const path of everything) {
      const { statusCode, body } = await app.inject(`${base}${path}`)
      t.equal(statusCode, 401, path)
      t.equal(body, '{"no":true}', path)
    }
    t.equal((await app.inject({ method: 'POST', url: `${base}/runs`, headers: json, payload: '{}' })).statusCode, 401)
    t.equal((await app.inject(`${base}/status`)).headers['cache-control'], 'no-store')
    t.equal((await app.inject({ url: `${base}/status`, headers: { authorization: 'yes' } })).statusCode, 200)
    t.equal((await app.inject('/open')).statusCode, 200)
  })
}

t.test('several guards all have a say', async t => {
  const stage = await setStage(t, cluster)
  const seen: string[] = []
  const { ask } = await httpHost(t, stage, {
    routes: { public: false, onRequest: [async () => { seen.push('a') }, (_request, _reply, done) => { seen.push('b'); done() }], preHandler: async () => { seen.push('c') } }
  })
  await ask('/status')
  t.strictSame(seen, ['a', 'b', 'c'])
})

t.test('a public health says no more than whether all is well, and is alone outside the guard', async t => {
  const stage = await setStage(t, cluster)
  const { app, ask, base } = await httpHost(t, stage, { routes: { public: false, onRequest: async (_request: any, reply: any) => await reply.code(401).send({}), health: { public: true } } })
  const answer = await ask('/health')
  t.equal(answer.statusCode, 503)
  t.strictSame(answer.json(), { ok: false })
  t.equal((await app.inject(`${base}/status`)).statusCode, 401)
  await app.hourlySync.get().runOnce({ force: true })
  const after = await until(async () => {
    const found = await ask('/health')
    return found.statusCode === 200 && found
  })
  t.strictSame(after.json(), { ok: true })
})

t.test('health says no when the last success is older than maxAge', async t => {
  const stage = await setStage(t, cluster)
  const { app, ask } = await httpHost(t, stage, { routes: { maxAge: '2h' } })
  await stage.clock.at('2025-03-10T10:00:00Z')
  t.match((await ask('/health')).json(), { ok: false, lastSuccess: null, age: null, maxAge: 2 * HOUR })
  await app.hourlySync.get().runOnce()
  await stage.clock.at('2025-03-10T12:00:00Z')
  const still = await until(async () => {
    const found = await ask('/health')
    return found.json().age === 2 * HOUR && found
  })
  t.equal(still.statusCode, 200)
  await stage.clock.at('2025-03-10T12:00:01Z')
  const old = await until(async () => {
    const found = await ask('/health')
    return found.statusCode === 503 && found
  })
  t.strictSame(old.json(), { ok: false, lastSuccess: '2025-03-10T10:00:00.000Z', age: 2 * HOUR + 1_000, maxAge: 2 * HOUR, unavailable: null })
})

t.test('health says no as long as there was no success at all', async t => {
  const stage = await setStage(t, cluster)
  const { app, ask } = await httpHost(t, stage, { sync: async () => { throw new Error('no') } })
  await app.hourlySync.get().runOnce()
  t.match((await ask('/health')).json(), { ok: false, lastSuccess: null, age: null, unavailable: null })
})

t.test('without maxAge health allows two slots and a timeout', async t => {
  const stage = await setStage(t, cluster)
  const { ask } = await httpHost(t, stage, { every: '2h', timeout: '30m' })
  t.equal((await ask('/health')).json().maxAge, 4.5 * HOUR)
})

t.test('a run that is started is told with its id, while it is under way', async t => {
  const stage = await setStage(t, cluster)
  const hold = gate()
  const { start, ask } = await httpHost(t, stage, { sync: async run => { run.progress(3, 10); await hold.passed } })
  const started = await start()
  t.equal(started.statusCode, 202)
  t.match(started.json(), { started: true, runId: /^[\da-f-]{36}$/ })
  const second = await start()
  t.equal(second.statusCode, 409)
  t.match(second.json(), { started: false, reason: 'running', holder: { runId: started.json().runId, pid: process.pid } })
  t.match((await ask('/status')).json(), { syncing: true, progress: { done: 3, total: 10 }, holder: { runId: started.json().runId } })
  t.equal((await ask(`/runs/${started.json().runId}`)).statusCode, 404, 'the history is of what has ended')
  hold.open()
  const ended = await until(async () => {
    const found = await ask(`/runs/${started.json().runId}`)
    return found.statusCode === 200 && found
  })
  t.match(ended.json(), { id: started.json().runId, state: 'succeeded', trigger: 'manual' })
})

t.test('progress of another process is seen, and gone with its run', async t => {
  const stage = await setStage(t, cluster)
  const hold = gate()
  const sync = async (run: any): Promise<void> => {
    run.progress(1_250, 10_000)
    await hold.passed
  }
  const other = await stage.host({ sync })
  const { ask } = await httpHost(t, stage)
  const { started } = await other.sync.trigger()
  t.ok(started)
  t.strictSame(await until(async () => (await ask('/status')).json().progress), { done: 1_250, total: 10_000 })
  hold.open()
  await until(async () => !(await ask('/status')).json().syncing)
  t.equal((await ask('/status')).json().progress, null)
})

t.test('what cannot start says why', async t => {
  const stage = await setStage(t, cluster)
  const { start } = await httpHost(t, stage, { requires: { ORDER_API_KEY: '' } })
  const answer = await start()
  t.equal(answer.statusCode, 503)
  t.strictSame(answer.json(), { started: false, reason: 'not-configured' })
})

t.test('what cannot start for want of a database says so, without its secrets', async t => {
  const stage = await setStage(t, cluster)
  const { start, app } = await httpHost(t, stage, { redact: ['plain.secret'] })
  ;(app as any).pg.pool.connect = async () => { throw new Error('connect postgres://app:hunter2@db failed, plain.secret') }
  const answer = await start()
  t.equal(answer.statusCode, 503)
  t.strictSame(answer.json(), { started: false, reason: 'unavailable', message: 'connect postgres://***@db failed, ***' })
})

t.test('only application/json starts a run', async t => {
  const stage = await setStage(t, cluster)
  const { start, app, base } = await httpHost(t, stage)
  t.equal((await start({ headers: {}, payload: undefined })).statusCode, 415)
  for (const type of ['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data; boundary=x', 'application/jsonp', 'text/json']) {
    t.equal((await app.inject({ method: 'POST', url: `${base}/runs`, headers: { 'content-type': type }, payload: '{}' })).statusCode, 415, type)
  }
  t.equal((await start({ headers: { 'content-type': 'application/json; charset=utf-8' } })).statusCode, 202)
  await until(async () => !await app.isSyncing())
  t.equal((await start({ payload: '' })).statusCode, 202, 'a body is not needed')
})

t.test('a body with something in it is refused', async t => {
  const stage = await setStage(t, cluster)
  const { start } = await httpHost(t, stage)
  for (const payload of ['{"name":"x"}', '[]', '1', '{', '{"__proto__":{}}']) t.equal((await start({ payload })).statusCode, 400, payload)
  t.equal((await start({ payload: `{"a":"${'x'.repeat(2_000)}"}` })).statusCode, 413)
  t.equal((await stage.history().catch(() => [])).length, 0)
})

t.test('a page of another site starts nothing', async t => {
  const stage = await setStage(t, cluster)
  const { start, app } = await httpHost(t, stage)
  for (const site of ['cross-site', 'elsewhere']) {
    const answer = await start({ headers: { ...json, 'sec-fetch-site': site } })
    t.equal(answer.statusCode, 403, site)
    t.match(answer.json(), { code: 'FST_HOURLY_SYNC_CROSS_SITE' })
  }
  t.equal((await start({ headers: { ...json, 'sec-fetch-site': 'same-origin' } })).statusCode, 202)
  await until(async () => !await app.isSyncing())
})

t.test('the status tells what it promises', async t => {
  const stage = await setStage(t, cluster)
  let fails = false
  const { app, ask } = await httpHost(t, stage, { enabled: true, startupDelay: '1h', sync: async () => { if (fails) throw new Error('no') } })
  await stage.clock.at('2025-03-10T10:00:00Z')
  await app.hourlySync.get().runOnce()
  await stage.clock.at('2025-03-10T11:00:00Z')
  fails = true
  await app.hourlySync.get().runOnce()
  const status = (await ask('/status')).json()
  t.match(status, {
    enabled: true,
    syncing: false,
    holder: null,
    progress: null,
    lastSuccess: { state: 'succeeded', slot: '2025-03-10T10:00:00.000Z' },
    lastRun: { state: 'failed', slot: '2025-03-10T11:00:00.000Z' },
    behindSlots: 1,
    nextSlot: '2025-03-10T12:00:00.000Z',
    watermark: '2025-03-10T10:00:00.000Z',
    lastError: { message: 'no', at: '2025-03-10T11:00:00.000Z' }
  })
})

t.test('the history page by page is stable while runs are added', async t => {
  const stage = await setStage(t, cluster)
  const { app, ask } = await httpHost(t, stage)
  await app.hourlySync.get().runOnce({ force: true })
  const now = Math.floor((await stage.clock.now()).getTime() / HOUR) * HOUR
  await stage.query(`delete from ${stage.schema}.run`)
  await seed(stage.query, stage.schema, stage.name, { from: now - 40 * HOUR, runs: Array.from({ length: 25 }, (_, index): Seeded => ({ slot: now - 30 * HOUR + index * HOUR })) })
  const slots: string[] = []
  let next: string | null = null
  for (let page = 0; page === 0 || next !== null; page++) {
    const answer: any = (await ask(`/runs?limit=10${next === null ? '' : `&before=${next}`}`)).json()
    slots.push(...answer.runs.map((run: any) => run.slot))
    next = answer.next
    await seed(stage.query, stage.schema, stage.name, { from: now - 40 * HOUR, runs: [{ slot: now + page * HOUR }] })
  }
  t.strictSame(slots, Array.from({ length: 25 }, (_, index) => new Date(now - 6 * HOUR - index * HOUR).toISOString()))
})

t.test('runs of one state, of one trigger, and of both', async t => {
  const stage = await setStage(t, cluster)
  const { app, ask } = await httpHost(t, stage)
  await app.hourlySync.get().runOnce({ force: true })
  const now = Math.floor((await stage.clock.now()).getTime() / HOUR) * HOUR
  await seed(stage.query, stage.schema, stage.name, { from: now, runs: mixedRuns(now, 60) })
  for (const [query, fits] of [
    ['state=failed', (run: any) => run.state === 'failed'],
    ['trigger=retry', (run: any) => run.trigger === 'retry'],
    ['state=failed&trigger=retry', (run: any) => run.state === 'failed' && run.trigger === 'retry']
  ] as const) {
    const { runs } = (await ask(`/runs?limit=100&${query}`)).json()
    t.ok(runs.length > 0 && runs.every(fits), query)
  }
})

t.test('every query parameter has its limits', async t => {
  const stage = await setStage(t, cluster)
  const { app, ask } = await httpHost(t, stage)
  await app.hourlySync.get().runOnce({ force: true })
  for (const path of [
    '/runs?limit=0', '/runs?limit=101', '/runs?limit=ten', '/runs?limit=1.5', '/runs?limit=-1', '/runs?before=1', "/runs?before=' or true", '/runs?state=running', '/runs?state=failed&state=succeeded',
    '/runs?trigger=', '/runs?offset=1', '/slots?since=yesterday', '/slots?since=2025-13-45T99:99:99Z', '/slots?until=1e9', '/slots?since=2025-01-01T00:00:00Z&until=2026-01-01T00:00:00Z',
    '/?run=1', '/?before=x', `/assets/dashboard.js?v=${'x'.repeat(65)}`
  ]) {
    const answer = await ask(path)
    t.equal(answer.statusCode, 400, path)
    t.notMatch(answer.body, /at .*\.[jt]s:/, 'no stack')
  }
  for (const path of ['/runs?limit=100', `/runs?before=${nobody}`, '/slots?since=2025-01-01', '/slots?until=2025-01-01T00:00:00%2B02:00', '/slots?since=2025-01-01T00:00:00Z&until=2025-01-02T00:00:00Z', `/?before=${nobody}`]) {
    t.equal((await ask(path)).statusCode, 200, path)
  }
})

t.test('a run that is none, and one of another sync, is not found', async t => {
  const stage = await setStage(t, cluster)
  const { app, ask } = await httpHost(t, stage, {}, { also: [{ name: 'other' }] })
  const { run } = await app.hourlySync.get('other').runOnce({ force: true })
  for (const id of [nobody, 'x', '%00', '..%2fstatus', run!.id]) {
    const answer = await ask(`/runs/${id}`)
    t.equal(answer.statusCode, 404, id)
    t.match(answer.json(), { code: 'FST_HOURLY_SYNC_NO_RUN' })
  }
  const page = await ask(`/?run=${run!.id}`)
  t.match(page.body, 'No such run')
})

t.test('a database that cannot be asked is a 503 without its secrets', async t => {
  const stage = await setStage(t, cluster)
  const { app, ask, log } = await httpHost(t, stage)
  await app.hourlySync.get().runOnce({ force: true })
  const { pool } = (app as any).pg
  pool.connect = async () => { throw Object.assign(new Error('connect postgres://app:hunter2@db failed'), { code: 'ECONNREFUSED' }) }
  for (const path of ['/runs', `/runs/${nobody}`, '/slots']) {
    const answer = await ask(path)
    t.equal(answer.statusCode, 503, path)
    t.match(answer.json(), { code: 'FST_HOURLY_SYNC_UNANSWERED' })
    t.notMatch(answer.body, /hunter2|at .*\.[jt]s:/)
  }
  t.match((await ask('/status')).json(), { unavailable: 'connect postgres://***@db failed', lastRun: null })
  t.match((await ask('/health')).json(), { ok: false, unavailable: 'connect postgres://***@db failed' })
  const page = await ask('/')
  t.equal(page.statusCode, 200)
  t.match(page.body, 'the database cannot be asked')
  t.notMatch(JSON.stringify(log.lines), 'hunter2')
})

t.test('the document of the routes is valid', async t => {
  const names = ['order-sync', 'order-sync:42', 'a/b', 'a+b', '주문', '<i>{id}']
  for (const openapi of ['3.0.3', '3.1.0'] as const) {
    const stage = await setStage(t, cluster)
    const { root } = await httpHost(t, stage, { name: 'first' }, { openapi, also: names.map(name => ({ name, routes: { public: true } })) })
    const document = (root as any).swagger()
    t.equal(await faults(document), undefined, openapi)
    t.equal(Object.keys(document.paths).length, 10 * 7, 'a path for each route of each')
  }
})

for (const name of ['order-sync:42', 'a/b', '주문']) {
  t.test(`a sync named ${name} has all its routes`, async t => {
    const stage = await setStage(t, cluster)
    const { ask, start, app, base } = await httpHost(t, stage, { name })
    const { runId } = (await start()).json()
    await until(async () => !await app.isSyncing())
    for (const path of ['/status', '/runs', `/runs/${runId}`, '/slots', '/health', '/', '/assets/dashboard.js']) t.equal((await ask(path)).statusCode, 200, path)
    t.match((await app.inject(base)).headers.location, new RegExp(`^\\./${encodeURIComponent(name).replaceAll('.', '\\.')}/$`))
  })
}

t.test('two syncs in one app have routes of their own, and pages that know each other', async t => {
  const stage = await setStage(t, cluster)
  const { app, ask, start } = await httpHost(t, stage, { name: 'orders' }, { under: '/internal/v1', also: [{ name: 'stock:eu', routes: { public: true, prefix: '/stock/' } }, { name: 'prices' }, { name: '<i>', routes: { public: true, dashboard: false } }] })
  t.equal((await start()).statusCode, 202)
  await until(async () => !await app.isSyncing('orders'))
  t.match((await app.inject('/internal/v1/stock/status')).json(), { name: 'stock:eu', lastRun: null })
  t.match((await ask('/status')).json(), { name: 'orders', lastRun: { name: 'orders' } })
  const { body } = await ask('/')
  t.match(body, '<a href="./../../stock/">stock:eu</a>')
  t.match(body, 'prices <span class="hint">has no page')
  t.match(body, '&lt;i&gt; <span class="hint">has no page')
  const other = await app.inject('/internal/v1/stock/')
  t.match(other.body, '<a href="./../hourly-sync/orders/">orders</a>')
  t.equal((await app.inject('/internal/v1/hourly-sync/%3Ci%3E/')).statusCode, 404)
  t.equal((await app.inject('/hourly-sync/orders/status')).statusCode, 404)
})

t.test('the page is sent with what keeps it to itself', async t => {
  const stage = await setStage(t, cluster)
  const { ask } = await httpHost(t, stage)
  const { headers, body } = await ask('/')
  t.match(headers, { 'cache-control': 'no-store', 'x-content-type-options': 'nosniff', 'referrer-policy': 'no-referrer', 'content-type': 'text/html; charset=utf-8' })
  t.match(headers['content-security-policy'], /^default-src 'none'; script-src 'self'; style-src 'self';/)
  t.notMatch(headers['content-security-policy'], /unsafe/)
  t.notMatch(body, /<script>|<style|\sstyle=|\son[a-z]+=|https?:/, 'nothing inline, nothing from elsewhere')
  for (const [, asset] of body.matchAll(/(?:href|src)="(assets\/[^"]+)"/g)) t.equal((await ask(`/${asset!}`)).statusCode, 200, asset!)
  t.match((await ask('/assets/dashboard.js?v=1')).headers, { 'cache-control': /immutable/, 'content-type': 'text/javascript; charset=utf-8', 'x-content-type-options': 'nosniff' })
  t.match((await ask('/assets/dashboard.css')).headers, { 'cache-control': 'no-cache', 'content-type': 'text/css; charset=utf-8' })
})

t.test('twenty who ask for the page at once cost what one does', async t => {
  const stage = await setStage(t, cluster)
  await (await stage.host()).sync.runOnce()
  const cost = async (viewers: number): Promise<number> => {
    const { app, ask } = await httpHost(t, stage)
    let asked = 0
    ;(app as any).pg.pool.on('acquire', () => { asked++ })
    const pages = await Promise.all(Array.from({ length: viewers }, async () => await ask('/')))
    t.equal(new Set(pages.map(({ body }) => body)).size, 1)
    return asked
  }
  t.equal(await cost(20), await cost(1))
})

t.test('who begins to listen is given no page from before', async t => {
  const stage = await setStage(t, cluster)
  const { app, url } = await serveSync(t, stage)
  await app.hourlySync.get().runOnce()
  const read = async (): Promise<string> => await (await fetch(url)).text()
  t.notMatch(await read(), 'manual')
  const answer = await app.triggerSync()
  t.ok(answer.started && await answer.finished)
  await listen(t, `${url}events`)
  t.match(await read(), 'manual')
})

t.test('secrets are taken out before anything is stored, logged or shown', async t => {
  const stage = await setStage(t, cluster)
  const { app, ask, log } = await httpHost(t, stage, {
    redact: [/KEY-\d+/, 'plain.secret'],
    sync: async () => { throw Object.assign(new Error('GET https://u:hunter2@api/v1?api_key=hunter2 token=hunter2 Authorization: Bearer hunter2 KEY-77 plain.secret'), { code: 'KEY-88' }) }
  })
  await app.hourlySync.get().runOnce({ force: true })
  const hidden = /hunter2|KEY-|plain\.secret/
  t.notMatch(JSON.stringify(await stage.history()), hidden)
  t.notMatch(JSON.stringify(await stage.state()), hidden)
  t.notMatch(JSON.stringify(log.lines), hidden)
  for (const path of ['/status', '/runs', '/', '/slots']) t.notMatch((await ask(path)).body, hidden, path)
  t.match((await ask('/status')).json().lastError.message, 'api_key=***')
})

t.test('what was stored before a pattern was known is not shown either', async t => {
  const stage = await setStage(t, cluster)
  const { app, ask } = await httpHost(t, stage, { redact: ['plain.secret'] })
  await app.hourlySync.get().runOnce({ force: true })
  const now = Math.floor((await stage.clock.now()).getTime() / HOUR) * HOUR
  await seed(stage.query, stage.schema, stage.name, { from: now - 9 * HOUR, runs: [{ slot: now - 3 * HOUR, state: 'failed', error: { name: 'Error', message: 'plain.secret', code: 'plain.secret' } }] })
  for (const path of ['/runs', '/', '/status']) t.notMatch((await ask(path)).body, 'plain.secret', path)
})

t.test('the routes work in a host with a validator and a serializer of its own', async t => {
  const stage = await setStage(t, cluster)
  const { ask, start, app } = await httpHost(t, stage, {}, {
    before: app => {
      app.setValidatorCompiler(() => { throw new Error('this is for Zod') })
      app.setSerializerCompiler(() => { throw new Error('this is for Zod') })
    }
  })
  t.equal((await start()).statusCode, 202)
  await until(async () => !await app.isSyncing())
  t.equal((await ask('/runs?limit=1')).json().runs.length, 1)
})

t.test('the routes work in a host that ignores a slash at the end, and case', async t => {
  const stage = await setStage(t, cluster)
  const { ask, base, app, root } = await httpHost(t, stage, { name: 'order-sync:42' }, { server: { routerOptions: { ignoreTrailingSlash: true, caseSensitive: false, ignoreDuplicateSlashes: true } } })
  await app.hourlySync.get().runOnce({ force: true })
  for (const path of ['/status', '/runs', '/slots']) t.equal((await ask(path)).statusCode, 200, path)
  for (const path of ['/', '/status/']) t.equal((await root.inject(`${base}${path}`)).statusCode, 200, path)
  t.equal((await root.inject(base)).statusCode, 302)
})

t.test('the host answers errors in its own form', async t => {
  const stage = await setStage(t, cluster, undefined, { empty: true })
  const { app, base } = await httpHost(t, stage, {}, { before: app => { app.setErrorHandler(async (error: any, _request, reply) => await reply.code(error.statusCode).send({ mine: error.code })) } })
  const answer = await app.inject(`${base}/runs/${nobody}`)
  t.equal(answer.statusCode, 503, 'there are no tables yet')
  await app.hourlySync.get().runOnce({ force: true })
  t.strictSame((await app.inject(`${base}/runs/${nobody}`)).json(), { mine: 'FST_HOURLY_SYNC_NO_RUN' })
})
