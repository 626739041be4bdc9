import type { FastifyInstance, FastifyPluginAsync, FastifyRequest } from 'fastify'
import { FST_HOURLY_SYNC_CROSS_SITE, FST_HOURLY_SYNC_NO_RUN, FST_HOURLY_SYNC_NOT_JSON } from '../errors.js'
import type { Service } from '../service.js'
import type { RunState, Trigger } from '../types.js'
import { answering } from './answering.js'
import { serializer, validator } from './compilers.js'
import { addDashboard } from './dashboard.js'
import { streamEvents } from './events.js'
import { createFeed } from './feed.js'
import { health } from './health.js'
import { createHub, type Hub } from './hub.js'
import type { RouteSettings } from './options.js'
import { defaultPlace, type Place, relative } from './prefix.js'
import {
  type AskedRuns, type AskedSlots, BareHealth, documenting, EventsHeaders, Health, NoBody, NotStarted, Problem, Run, RunId, RunList, Running, RunsQuery, SlotList,
  SlotsQuery, Started, Status
} from './schemas.js'

/** Where each sync of the app has its page, if it has one. */
export type Pages = Map<string, string | undefined>

interface Options {
  service: Service
  routes: RouteSettings
  /** Its pattern is the `prefix` as well. */
  place: Place
  pages: Pages
}

/** @param earlier - names of the syncs that were registered before */
export function placeOf ({ prefix }: RouteSettings, name: string, earlier: readonly string[]): Place {
  return prefix === undefined ? defaultPlace(name, earlier) : { pattern: prefix, path: prefix, parts: {} }
}

/** The routes of one sync: a plugin of their own, so that its hooks reach nothing else of the host. */
export const routes: FastifyPluginAsync<Options> = async (fastify, options) => {
  const { service, routes: settings, place, pages } = options
  const { name } = service
  const path = fastify.prefix.slice(0, fastify.prefix.length - place.pattern.length) + place.path
  pages.set(name, settings.dashboard ? path : undefined)

  fastify.setValidatorCompiler(validator)
  fastify.setSerializerCompiler(serializer)
  fastify.addHook('onRequest', async (_request, reply) => {
    reply.headers({ 'cache-control': 'no-store', 'x-content-type-options': 'nosniff', 'referrer-policy': 'no-referrer' })
  })

  const hub = createHub(() => createFeed(service.reading.history), service.clock)
  const shared = { service, settings, documented: documenting(place.parts), hub }
  if (settings.health.public) addHealth(fastify, shared)
  await fastify.register(async guarded => {
    for (const hook of [settings.onRequest ?? []].flat()) guarded.addHook('onRequest', hook as never)
    for (const hook of [settings.preHandler ?? []].flat()) guarded.addHook('preHandler', hook as never)
    addRuns(guarded, shared)
    addReading(guarded, shared)
    addEvents(guarded, shared)
    if (!settings.health.public) addHealth(guarded, shared)
    if (settings.dashboard) {
      const others = (): Array<{ name: string, href: string | undefined }> => [...pages].filter(([other]) => other !== name)
        .map(([other, page]) => ({ name: other, href: page === undefined ? undefined : relative(path, page) }))
      addDashboard(guarded, { ...shared, others })
    }
  })
}

interface Shared {
  service: Service
  settings: RouteSettings
  documented: ReturnType<typeof documenting>
  hub: Hub
}

/** Starting a run, and the history. */
function addRuns (fastify: FastifyInstance, { service, documented }: Shared): void {
  const answers = answering(service.settings)

  // an empty body is none; other types are refused
  fastify.removeAllContentTypeParsers()
  const parse = fastify.getDefaultJsonParser('error', 'error')
  fastify.addContentTypeParser('application/json', { parseAs: 'string' }, (request, body, done) => {
    if (body === '') done(null, {})
    else parse(request, body as string, done)
  })

  fastify.post('/runs', {
    bodyLimit: 1_024,
    onRequest: async request => { refuseForeign(request) },
    schema: documented({
      summary: 'Start a run, due or not',
      description: 'Answers as soon as the lock is held, without waiting for the run.',
      body: NoBody,
      response: { 202: Started, 400: Problem, 403: Problem, 409: Running, 413: Problem, 415: Problem, 503: NotStarted }
    })
  }, answers(async (_request, reply) => {
    const answer = await service.trigger()
    if (answer.started) return await reply.code(202).send({ started: true, runId: answer.runId })
    const { started, reason, holder = null, message } = answer
    if (reason === 'running') return await reply.code(409).send({ started, reason, holder })
    return await reply.code(503).send({ started, reason, message })
  }))

  fastify.get<{ Querystring: AskedRuns }>('/runs', {
    schema: documented({
      summary: 'The history, newest first',
      querystring: RunsQuery,
      response: { 200: RunList, 400: Problem, 503: Problem }
    })
  }, answers(async request => {
    const { limit, before, state, trigger } = request.query
    const found = await service.runs({ limit: limit + 1, before, state: state as RunState, trigger: trigger as Trigger })
    const runs = found.slice(0, limit)
    return { runs, next: found.length > limit ? runs.at(-1)!.id : null }
  }))

  fastify.get<{ Params: { id: string } }>('/runs/:id', {
    schema: documented({
      summary: 'One run that has ended',
      params: RunId,
      response: { 200: Run, 400: Problem, 404: Problem, 503: Problem }
    })
  }, answers(async request => {
    const run = await service.run(request.params.id)
    if (run === null) throw new FST_HOURLY_SYNC_NO_RUN()
    return run
  }))
}

/**
 * A page of another site can make a browser send a form, with the user's cookies, but neither this type without having asked first nor
 * anything without saying where it comes from.
 */
function refuseForeign ({ headers }: FastifyRequest): void {
  const site = headers['sec-fetch-site']
  if (site !== undefined && !['same-origin', 'same-site', 'none'].includes(String(site))) throw new FST_HOURLY_SYNC_CROSS_SITE()
  if (!/^application\/json\s*(?:;|$)/i.test(headers['content-type'] ?? '')) throw new FST_HOURLY_SYNC_NOT_JSON()
}

function addReading (fastify: FastifyInstance, { service, documented }: Shared): void {
  const answers = answering(service.settings)

  fastify.get('/status', {
    schema: documented({
      summary: 'Who is syncing, how far, and how it stands',
      response: { 200: Status }
    })
  }, answers(async () => await service.status()))

  fastify.get<{ Querystring: AskedSlots }>('/slots', {
    schema: documented({
      summary: 'What every slot came to, oldest first',
      description: 'Slots that begin in [since, until), by default the last seven days; at most 1,000 an answer. With `since` alone the first ones after it.',
      querystring: SlotsQuery,
      response: { 200: SlotList, 400: Problem, 503: Problem }
    })
  }, answers(async request => {
    const { since, until } = request.query
    return await service.slots({ ...(since !== undefined && { since: new Date(since) }), ...(until !== undefined && { until: new Date(until) }) })
  }))
}

function addEvents (fastify: FastifyInstance, { service, documented, hub }: Shared): void {
  fastify.addHook('preClose', async () => { hub.close() }) // or close() would wait for them
  fastify.get('/events', {
    exposeHeadRoute: false, // it would never end
    schema: documented({
      summary: 'What happens, in whichever process, as server-sent events',
      description: '`started` (who runs), `progress` (`{ runId, done, total }`) and `ended` (the run, whose id is the id of the event).',
      headers: EventsHeaders,
      response: { 200: { description: 'a stream of events', content: { 'text/event-stream': { schema: { type: 'string' } } } }, 400: Problem, 503: Problem }
    })
  }, answering(service.settings)(streamEvents(hub, async limit => await service.runs({ limit }))))
}

function addHealth (fastify: FastifyInstance, { service, settings: { maxAge, health: { public: isPublic } }, documented }: Shared): void {
  const schema = isPublic ? BareHealth : Health
  fastify.get('/health', {
    schema: documented({
      summary: 'Whether the last success is young enough, for monitors',
      description: 'Not for liveness or readiness of the server: an outage of the external API would take every server away.',
      response: { 200: schema, 503: schema }
    })
  }, async (_request, reply) => {
    const answer = await health(service, maxAge)
    return await reply.code(answer.ok ? 200 : 503).send(isPublic ? { ok: answer.ok } : answer)
  })
}
