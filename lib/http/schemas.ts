import { type Static, type TSchema, Type } from '@sinclair/typebox'
import type { FastifySchema } from 'fastify'
import { UUID } from '../checks.js'
import { states, triggers } from '../record.js'

const instant = '^\\d{4}-\\d\\d-\\d\\d(?:T\\d\\d:\\d\\d(?::\\d\\d(?:\\.\\d{1,9})?)?(?:Z|[+-]\\d\\d:\\d\\d))?$'

const Instant = (description?: string): TSchema => Type.Unsafe<Date>({ type: 'string', format: 'date-time', ...(description !== undefined && { description }) })
const orNull = (type: TSchema): TSchema => Type.Union([type, Type.Null()])
const choice = <T extends string>(...values: T[]): TSchema => Type.Union(values.map(value => Type.Literal(value)))
const Id = Type.String({ format: 'uuid' })
const Count = Type.Integer({ minimum: 0 })
const Milliseconds = Type.Number({ description: 'milliseconds' })
const Json = Type.Any({ description: 'JSON of the host' })

const State = choice(...states)
const Trigger = choice(...triggers)

const ErrorRecord = {
  name: Type.String(),
  message: Type.String({ description: 'redacted, and cut' }),
  code: Type.Optional(Type.String()),
  statusCode: Type.Optional(Type.Number()),
  transient: Type.Optional(Type.Boolean())
}

export const Run = Type.Object({
  id: Id,
  name: Type.String(),
  target: Type.String(),
  trigger: Trigger,
  state: State,
  slot: orNull(Instant('null for a backfill')),
  slice: Type.Integer({ minimum: 1 }),
  slices: Type.Integer({ minimum: 1 }),
  attempt: Type.Integer({ minimum: 1 }),
  since: orNull(Instant('null for everything')),
  until: Instant(),
  startedAt: Instant(),
  finishedAt: Instant(),
  duration: Milliseconds,
  worker: Type.String({ description: 'host:pid' }),
  stats: Json,
  error: orNull(Type.Object(ErrorRecord))
}, { description: 'a run that has ended' })

const Holder = Type.Object({
  backend: Type.Integer({ description: 'backend process id of the lock session' }),
  applicationName: orNull(Type.String()),
  address: orNull(Type.String()),
  runId: orNull(Id),
  trigger: orNull(Trigger),
  slot: orNull(Instant()),
  startedAt: orNull(Instant()),
  host: orNull(Type.String()),
  pid: orNull(Type.Integer())
}, { description: 'who holds the lock' })

const Progress = Type.Object({ done: Count, total: orNull(Count) })

export const Status = Type.Object({
  name: Type.String(),
  target: Type.String(),
  enabled: Type.Boolean({ description: 'whether the loop of the process that answers is on' }),
  disabledBecause: orNull(Type.String()),
  syncing: Type.Boolean({ description: 'whether any process is' }),
  holder: orNull(Holder),
  progress: orNull(Progress),
  aborted: orNull(State),
  wedged: orNull(Type.Boolean()),
  unavailable: orNull(Type.String({ description: 'why the database could not be asked; what it would have told is then null' })),
  lastSuccess: orNull(Run),
  lastRun: orNull(Run),
  lastError: orNull(Type.Object({ ...ErrorRecord, at: Instant() })),
  watermark: orNull(Instant()),
  backfill: orNull(Type.Object({ since: Instant(), until: Instant(), position: Instant() })),
  slot: orNull(Instant()),
  nextSlot: orNull(Instant()),
  lastSlot: orNull(Instant()),
  lastSlotAhead: orNull(Type.Boolean()),
  behindSlots: orNull(Count),
  notBefore: orNull(Instant('with hold waiting: until then')),
  pausedUntil: orNull(Instant('with hold paused: until then')),
  due: orNull(Type.Boolean()),
  hold: orNull(choice('served', 'first-run', 'paused', 'waiting', 'spent', 'late', 'vanished')),
  nextLook: orNull(Instant()),
  lastLook: orNull(Type.Object({ at: Instant(), outcome: Type.String(), reason: orNull(Type.String()) }))
})

export const SlotList = Type.Object({
  every: Milliseconds,
  slots: Type.Array(Type.Object({
    slot: Instant(),
    state: choice('on-time', 'caught-up', 'failed', 'missing', 'pending', 'unknown'),
    run: orNull(Id),
    runs: Count,
    failures: Count
  }))
})

export const RunList = Type.Object({
  runs: Type.Array(Run),
  next: orNull(Type.String({ format: 'uuid', description: 'what to give as before for the next page; null on the last' }))
})

export const Started = Type.Object({ started: Type.Literal(true), runId: Id }, { description: 'it holds the lock, and has begun' })
export const Running = Type.Object({ started: Type.Literal(false), reason: Type.Literal('running'), holder: orNull(Holder) }, { description: 'a run is under way, here or in another process' })
export const NotStarted = Type.Object({
  started: Type.Literal(false),
  reason: choice('not-configured', 'closing', 'unavailable', 'refused'),
  message: Type.Optional(Type.String())
}, { description: 'it cannot be started now' })

export const Health = Type.Object({
  ok: Type.Boolean(),
  lastSuccess: orNull(Instant()),
  age: orNull(Milliseconds),
  maxAge: Milliseconds,
  unavailable: orNull(Type.String())
})
export const BareHealth = Type.Object({ ok: Type.Boolean() })

/** As Fastify answers errors. */
export const Problem = Type.Object({ statusCode: Type.Integer(), error: Type.String(), message: Type.String(), code: Type.Optional(Type.String()) })

export const RunsQuery = Type.Object({
  limit: Type.Integer({ minimum: 1, maximum: 100, default: 20 }),
  before: Type.Optional(Type.String({ pattern: UUID, description: 'id of a run: only older ones' })),
  state: Type.Optional(State),
  trigger: Type.Optional(Trigger)
}, { additionalProperties: false })

export const SlotsQuery = Type.Object({
  since: Type.Optional(Type.String({ pattern: instant, maxLength: 40, description: 'ISO 8601, with a zone' })),
  until: Type.Optional(Type.String({ pattern: instant, maxLength: 40, description: 'ISO 8601, with a zone' }))
}, { additionalProperties: false })

export const PageQuery = Type.Object({
  run: Type.Optional(Type.String({ pattern: UUID, description: 'a run to show in full' })),
  before: Type.Optional(Type.String({ pattern: UUID, description: 'id of a run: the list shows older ones' }))
})

export const AssetQuery = Type.Object({ v: Type.Optional(Type.String({ maxLength: 64 })) })
export const EventsHeaders = Type.Object({ 'last-event-id': Type.Optional(Type.String({ maxLength: 100, description: 'id of the last run whose end was heard of' })) })
export const NoBody = Type.Object({}, { additionalProperties: false })

/** Any text: what is no id is the id of no run. */
export const RunId = { id: Type.String({ minLength: 1, maxLength: 100 }) }

/** What a route takes and answers, and the words for it that @fastify/swagger shows. */
interface Documented extends FastifySchema {
  summary: string
  description?: string
  params?: Record<string, TSchema>
}

/** @param parts - the parameters that the name of the sync is made of, and what each has to be */
export function documenting (parts: Record<string, string>): (schema: Documented) => FastifySchema {
  const fixed = Object.fromEntries(Object.entries(parts).map(([name, value]) => [name, Type.String({ enum: [value] })]))
  return ({ params, ...schema }) => ({ tags: ['hourly-sync'], ...schema, params: Type.Object({ ...fixed, ...params }) }) as FastifySchema
}

export type AskedRuns = Static<typeof RunsQuery>
export type AskedSlots = Static<typeof SlotsQuery>
export type AskedPage = Static<typeof PageQuery>
