import t from 'tap'
import { FST_HOURLY_SYNC_POOLED, FST_HOURLY_SYNC_READ_ONLY, FST_HOURLY_SYNC_RIGHTS, FST_HOURLY_SYNC_SCHEMA, FST_HOURLY_SYNC_SCHEMA_TAKEN, FST_HOURLY_SYNC_UNAVAILABLE } from '../lib/errors.js'
import { unknown } from '../lib/history.js'
import { createLookLog } from '../lib/look-log.js'
import { parseOptions } from '../lib/options.js'
import { refusal } from '../lib/refusal.js'
import { createLog } from './helpers/log.js'

const state = (code: string, message = 'as the server says'): Error => Object.assign(new Error(message), { code })

const table: Array<[title: string, thrown: unknown, outcome: 'refused' | 'unavailable', code: string | undefined]> = [
  ['no such table', state('42P01'), 'refused', 'FST_HOURLY_SYNC_SCHEMA'],
  ['no such column', state('42703'), 'refused', 'FST_HOURLY_SYNC_SCHEMA'],
  ['no such schema', state('3F000'), 'refused', 'FST_HOURLY_SYNC_SCHEMA'],
  ['a column of another type', state('42804'), 'refused', 'FST_HOURLY_SYNC_SCHEMA'],
  ['a function that is not there', state('42883'), 'refused', 'FST_HOURLY_SYNC_SCHEMA'],
  ['a schema of something else', new FST_HOURLY_SYNC_SCHEMA_TAKEN('public', 'a table run'), 'refused', 'FST_HOURLY_SYNC_SCHEMA_TAKEN'],
  ['a missing right', state('42501'), 'refused', 'FST_HOURLY_SYNC_RIGHTS'],
  ['a read-only transaction', state('25006'), 'refused', 'FST_HOURLY_SYNC_READ_ONLY'],
  ['a pooler', new FST_HOURLY_SYNC_POOLED('pids differ'), 'refused', 'FST_HOURLY_SYNC_POOLED'],
  ['a replica', new FST_HOURLY_SYNC_READ_ONLY('it is one'), 'refused', 'FST_HOURLY_SYNC_READ_ONLY'],
  ['rights', new FST_HOURLY_SYNC_RIGHTS('s', 'no'), 'refused', 'FST_HOURLY_SYNC_RIGHTS'],
  ['an old schema', new FST_HOURLY_SYNC_SCHEMA('s', 'missing', 1, 'no'), 'refused', 'FST_HOURLY_SYNC_SCHEMA'],
  ['no connection in time', new FST_HOURLY_SYNC_UNAVAILABLE('a connection', 10), 'unavailable', 'FST_HOURLY_SYNC_UNAVAILABLE'],
  ['too many connections', state('53300'), 'unavailable', '53300'],
  ['a server that starts up', state('57P03'), 'unavailable', '57P03'],
  ['a wrong password', state('28P01'), 'unavailable', '28P01'],
  ['a lock timeout', state('55P03'), 'unavailable', '55P03'],
  ['a network error', state('ECONNREFUSED'), 'unavailable', 'ECONNREFUSED'],
  ['an error without a code', new Error('Cannot use a pool after calling end on the pool'), 'unavailable', undefined],
  ['no error at all', 'a text', 'unavailable', 'FST_HOURLY_SYNC_NOT_AN_ERROR']
]

for (const [title, thrown, outcome, code] of table) {
  t.test(`${title} is ${outcome}`, async t => {
    const found = refusal(thrown, 'hourly_sync')
    t.equal(found.outcome, outcome)
    t.equal((found.error as { code?: string }).code, code)
    t.equal(found.reason, found.error.message)
  })
}

t.test('the driver\'s error is the cause of ours', async t => {
  const thrown = state('42501', 'permission denied for table run')
  const { error, reason } = refusal(thrown, 'we"ird')
  t.equal(error.cause, thrown)
  t.match(reason, "schema 'we\"ird'")
  t.match(reason, 'permission denied for table run')
})

t.test('of a database whose every address refuses, the reason and a status say so', async t => {
  const error = Object.assign(new AggregateError([state('ECONNREFUSED', 'connect ECONNREFUSED ::1:5432'), state('ECONNREFUSED', 'connect ECONNREFUSED 127.0.0.1:5432')]), { code: 'ECONNREFUSED' })
  const reason = 'connect ECONNREFUSED ::1:5432; connect ECONNREFUSED 127.0.0.1:5432'
  t.match(refusal(error, 's'), { outcome: 'unavailable', reason })
  t.match(unknown(error, []), { unavailable: reason })
})

t.test('the reason shows no secret', async t => {
  t.notMatch(refusal(new Error('cannot reach postgres://app:hunter2@db/orders'), 's').reason, 'hunter2')
})

t.test('trouble is said once, and that it is over by whatever look comes through', async t => {
  const { log, lines } = createLog()
  const say = createLookLog(parseOptions({ name: 'a', sync () {} }), log)
  const away = { started: false, outcome: 'unavailable', reason: 'away', look: null, refusal: refusal(new Error('away'), 'hourly_sync') } as const
  say(away)
  say(away)
  say({ started: false, outcome: 'not-due', reason: 'served', look: { now: 1, slot: 0, notBefore: null, hold: 'served', mark: null, ahead: null }, refusal: null })
  t.match(lines, [{ level: 'warn', message: 'database unavailable' }, { level: 'info', message: 'sync can work again' }, { level: 'debug', message: 'sync not due' }])
  t.equal(lines.length, 3)
})
