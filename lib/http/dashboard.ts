import type { FastifyInstance } from 'fastify'
import { Type } from '@sinclair/typebox'
import type { Service } from '../service.js'
import { sharedAnswer } from '../shared-answer.js'
import { answering } from './answering.js'
import { loadAssets } from './assets.js'
import type { Hub } from './hub.js'
import { page, type View } from './page/document.js'
import { PICTURED } from './page/week.js'
import { withSlash } from './prefix.js'
import { type AskedPage, AssetQuery, type documenting, PageQuery, Problem } from './schemas.js'

/** How many runs the list shows, and how many the plots do. */
const LISTED = 20
const DRAWN = 200

/** Nothing but what is served here, no markup that acts, and no frame around it. */
const policy = [
  "default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self'", "connect-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"
].join('; ')

interface Parts {
  service: Service
  documented: ReturnType<typeof documenting>
  hub: Hub
  others: () => View['others']
}

/** The page of a sync and what it loads. */
export function addDashboard (fastify: FastifyInstance, { service, documented, hub, others }: Parts): void {
  const assets = loadAssets()
  const versions = { style: assets['dashboard.css'].version, script: assets['dashboard.js'].version }
  const answers = answering(service.settings)
  // every viewer comes at once for the same when something happens
  const newest = sharedAnswer(service.clock, async () => await gather(service, {}), () => hub.news)

  fastify.get<{ Querystring: AskedPage }>('/', {
    schema: documented({
      summary: 'The dashboard',
      querystring: PageQuery,
      response: {
        200: { description: 'the page', content: { 'text/html': { schema: Type.String() } } },
        302: Type.Null({ description: 'the same with a slash at the end, which its links need' }),
        400: Problem,
        503: Problem
      }
    })
  }, answers(async (request, reply) => {
    const moved = withSlash(request.originalUrl)
    if (moved !== null) return await reply.redirect(moved, 302)
    const { run, before } = request.query
    const view = run === undefined && before === undefined ? await newest() : await gather(service, { run, before })
    return await reply
      .type('text/html; charset=utf-8')
      .header('content-security-policy', policy)
      .send(page({ ...view, others: others(), versions }).text)
  }))

  for (const [name, { type, content }] of Object.entries(assets)) {
    fastify.get<{ Querystring: { v?: string } }>(`/assets/${name}`, {
      schema: documented({
        summary: `What the dashboard loads: ${name}`,
        querystring: AssetQuery,
        response: { 200: { description: name, content: { [type.split(';')[0]!]: { schema: Type.String() } } }, 400: Problem }
      })
    }, async (request, reply) => await reply
      .type(type)
      .header('content-security-policy', "default-src 'none'")
      // with its fingerprint asked for, it stays what it is
      .header('cache-control', request.query.v === undefined ? 'no-cache' : 'private, max-age=31536000, immutable')
      .send(content))
  }
}

async function gather (service: Service, { run, before }: AskedPage): Promise<Omit<View, 'others' | 'versions'>> {
  const { slots } = service.reading
  const status = await service.status()
  const shown = { status, at: new Date(service.clock.now()), every: service.settings.every, paged: before !== undefined }
  // what it says instead is in the status
  if (status.unavailable !== null) return { ...shown, hours: [], runs: [], listed: [], older: false, run: undefined }
  // one after the other, as the status does: a page holds one client of the pool
  const hours = await slots.hours(PICTURED)
  const runs = await service.runs({ limit: DRAWN })
  const page = before === undefined ? runs : await service.runs({ limit: LISTED + 1, before })
  const one = run === undefined ? undefined : await service.run(run)
  return { ...shown, hours, runs, listed: page.slice(0, LISTED), older: page.length > LISTED, run: one }
}
