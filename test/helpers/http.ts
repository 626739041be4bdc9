import fastifyPostgres from '@fastify/postgres'
import swagger from '@fastify/swagger'
import { Validator } from '@seriousme/openapi-schema-validator'
import { Ajv2020 } from 'ajv/dist/2020.js'
import formats from 'ajv-formats'
import Fastify, { type FastifyInstance, type FastifyServerOptions, type InjectOptions, type LightMyRequestResponse } from 'fastify'
import type { Test } from 'tap'
import hourlySync from '../../index.js'
import type { HourlySyncOptions, RouteOptions } from '../../lib/types.js'
import { captureLog, type Log, type Stage } from './host.js'

/** A host whose sync has routes, and whose every answer is held against the document that @fastify/swagger makes of them. */
export interface HttpHost {
  /** What the plugin is registered on. */
  app: FastifyInstance
  root: FastifyInstance
  log: Log
  /** Where the routes are. */
  base: string
  /** A request, to a path below the routes. The answer has to fit the document. */
  ask: (path: string, options?: InjectOptions) => Promise<LightMyRequestResponse>
  start: (options?: InjectOptions) => Promise<LightMyRequestResponse>
}

interface Options extends Partial<Omit<HourlySyncOptions, 'routes'>> {
  routes?: Partial<RouteOptions>
}

interface Surroundings {
  /** Prefix of the context that registers the plugin. */
  under?: string
  /** Registers more, before the plugin. */
  before?: (app: FastifyInstance) => void | Promise<void>
  /** Further syncs of the app. */
  also?: Array<Partial<HourlySyncOptions>>
  openapi?: '3.0.3' | '3.1.0'
  server?: FastifyServerOptions
}

export async function httpHost (t: Test, stage: Stage, options: Options = {}, { under = '', before, also = [], openapi = '3.1.0', server }: Surroundings = {}): Promise<HttpHost> {
  const log = captureLog()
  const app = Fastify({ logger: log.logger, ...server }) as unknown as FastifyInstance
  t.teardown(async () => await app.close())
  await app.register(swagger, { openapi: { openapi, info: { title: 'host', version: '1.0.0' } } })
  await app.register(fastifyPostgres, stage.poolConfig)
  await before?.(app)
  const shared = { schema: stage.schema, enabled: false, startupDelay: 0, sync: async () => {} }
  let inside = app
  await app.register(async scope => {
    inside = scope
    await scope.register(hourlySync, { name: stage.name, ...shared, ...options, routes: { public: true, ...options.routes } })
    for (const other of also) await scope.register(hourlySync, { ...shared, ...other } as HourlySyncOptions)
  }, { prefix: under })
  await app.ready()
  const document = (app as any).swagger() as Document
  const base = `${under}${options.routes?.prefix ?? `/hourly-sync/${encodeURIComponent(options.name ?? stage.name)}`}`
  const fits = checker(document)
  const ask: HttpHost['ask'] = async (path, request = {}) => {
    const answer = await app.inject({ method: 'GET', url: `${base}${path}`, ...request })
    const wrong = fits(String(request.method ?? 'GET'), `${base}${path}`, answer)
    if (wrong !== undefined) t.fail(`the answer of ${path} fits its schema`, { wrong, body: answer.body.slice(0, 500), status: answer.statusCode })
    return answer
  }
  return { app: inside, root: app, log, base, ask, start: async request => await ask('/runs', { method: 'POST', headers: { 'content-type': 'application/json' }, payload: '{}', ...request }) }
}

interface Document { openapi: string, paths: Record<string, Record<string, { parameters?: Array<{ in: string, name: string }>, responses: Record<string, { description: string, content?: Record<string, { schema: object }> }> }>> }

/** What is wrong with a document, by a validator of the specification. */
export async function faults (document: object): Promise<unknown> {
  const { valid, errors } = await new Validator().validate(structuredClone(document) as Record<string, unknown>)
  return valid ? undefined : errors
}

function checker (document: Document): (method: string, url: string, answer: LightMyRequestResponse) => unknown {
  const ajv = new Ajv2020({ strict: false, allErrors: true });
  (formats as unknown as (ajv: unknown) => void)(ajv)
  const paths = Object.entries(document.paths).map(([path, operations]) => {
    // a parameter is what the name of the sync is made of, or an id
    const pattern = path.split(/\{[^}]*\}/).map(part => encodeURI(part).replaceAll(/[\\^$.*+?()[\]{}|]/g, '\\$&')).join('(?:[^/?]+?)')
    return { path, operations, pattern: new RegExp(`^${pattern}$`), fixed: path.split('{').length }
  }).sort((a, b) => a.fixed - b.fixed)
  return (method, url, answer) => {
    const found = paths.find(({ pattern, operations }) => pattern.test(url.split('?')[0]!) && method.toLowerCase() in operations)
    if (found === undefined) return `no path of the document is like ${method} ${url}: ${paths.map(({ path }) => path).join(' ')}`
    const response = found.operations[method.toLowerCase()]!.responses[answer.statusCode]
    if (response === undefined) return `${found.path} does not say that it answers ${answer.statusCode}`
    const type = String(answer.headers['content-type'] ?? '').split(';')[0]!
    const media = response.content?.[type]
    if (media === undefined) return answer.body === '' ? undefined : `${found.path} ${answer.statusCode} does not say that it answers ${type}`
    const value = type === 'application/json' ? answer.json() : answer.body
    return ajv.validate(strict(media.schema), value) ? undefined : ajv.errors
  }
}

/** The same schema, of which no property may be missing in the document. */
function strict (schema: any): any {
  if (Array.isArray(schema)) return schema.map(strict)
  if (typeof schema !== 'object' || schema === null) return schema
  const inner = Object.fromEntries(Object.entries(schema).map(([name, value]) => [name, strict(value)]))
  return schema.type === 'object' && 'properties' in schema ? { additionalProperties: false, ...inner } : inner
}
