import { readFileSync } from 'node:fs'
import t from 'tap'
import * as errors from '../lib/errors.js'

const codes = [
  'FST_HOURLY_SYNC_CLOSING',
  'FST_HOURLY_SYNC_CROSS_SITE',
  'FST_HOURLY_SYNC_DUPLICATE',
  'FST_HOURLY_SYNC_INVALID_OPTION',
  'FST_HOURLY_SYNC_INVALID_QUERY',
  'FST_HOURLY_SYNC_INVALID_RESULT',
  'FST_HOURLY_SYNC_LISTENERS',
  'FST_HOURLY_SYNC_LOCK_LOST',
  'FST_HOURLY_SYNC_NAME_REQUIRED',
  'FST_HOURLY_SYNC_NATIVE',
  'FST_HOURLY_SYNC_NESTED',
  'FST_HOURLY_SYNC_NOT_AN_ERROR',
  'FST_HOURLY_SYNC_NOT_JSON',
  'FST_HOURLY_SYNC_NOT_RECORDED',
  'FST_HOURLY_SYNC_NO_POOL',
  'FST_HOURLY_SYNC_NO_RUN',
  'FST_HOURLY_SYNC_OPEN_TRANSACTION',
  'FST_HOURLY_SYNC_OTHER_DATABASE',
  'FST_HOURLY_SYNC_OUTDATED_PG',
  'FST_HOURLY_SYNC_POOLED',
  'FST_HOURLY_SYNC_READ_ONLY',
  'FST_HOURLY_SYNC_RIGHTS',
  'FST_HOURLY_SYNC_ROLLED_BACK',
  'FST_HOURLY_SYNC_ROUTES_UNGUARDED',
  'FST_HOURLY_SYNC_RUN_ENDED',
  'FST_HOURLY_SYNC_SCHEMA',
  'FST_HOURLY_SYNC_SCHEMA_TAKEN',
  'FST_HOURLY_SYNC_TIMEOUT',
  'FST_HOURLY_SYNC_TRANSACTION_ENDED',
  'FST_HOURLY_SYNC_UNANSWERED',
  'FST_HOURLY_SYNC_UNAVAILABLE',
  'FST_HOURLY_SYNC_UNKNOWN',
  'FST_HOURLY_SYNC_UNOBSERVED',
  'FST_HOURLY_SYNC_UPSERT_GENERATED_COLUMN',
  'FST_HOURLY_SYNC_UPSERT_INVALID_OPTION',
  'FST_HOURLY_SYNC_UPSERT_INVALID_ROW',
  'FST_HOURLY_SYNC_UPSERT_INVALID_ROWS',
  'FST_HOURLY_SYNC_UPSERT_INVALID_VALUE',
  'FST_HOURLY_SYNC_UPSERT_MISSING_COLUMN',
  'FST_HOURLY_SYNC_UPSERT_MIXED_ROWS',
  'FST_HOURLY_SYNC_UPSERT_NO_INDEX',
  'FST_HOURLY_SYNC_UPSERT_NULL_KEY',
  'FST_HOURLY_SYNC_UPSERT_OUTSIDE_INDEX',
  'FST_HOURLY_SYNC_UPSERT_REFUSED_ROW',
  'FST_HOURLY_SYNC_UPSERT_UNDEFINED_VALUE',
  'FST_HOURLY_SYNC_UPSERT_UNKNOWN_COLUMN',
  'FST_HOURLY_SYNC_UPSERT_UNKNOWN_TABLE'
]

t.test('the codes are these, and each is exported under its own name', async t => {
  t.strictSame(Object.keys(errors).sort(), codes)
  for (const [name, Kind] of Object.entries(errors)) t.equal((new (Kind as new (...args: any[]) => Error & { code: string })('a', 'b', 1, 'd')).code, name)
})

t.test('what a caller did wrong is a TypeError', async t => {
  t.type(new errors.FST_HOURLY_SYNC_INVALID_OPTION('every', 'a duration', "'x'"), TypeError)
  t.type(new errors.FST_HOURLY_SYNC_UNKNOWN('a', "'b'"), TypeError)
  t.type(new errors.FST_HOURLY_SYNC_NAME_REQUIRED("'a', 'b'"), TypeError)
  t.type(new errors.FST_HOURLY_SYNC_INVALID_QUERY('null'), TypeError)
  t.type(new errors.FST_HOURLY_SYNC_INVALID_RESULT('cursor', 'a'), TypeError)
})

t.test('a message fills in what it was given', async t => {
  t.equal(new errors.FST_HOURLY_SYNC_INVALID_OPTION('every', 'at least 1000 ms', '5').message, "option 'every' should be at least 1000 ms, instead got 5")
  t.equal(new errors.FST_HOURLY_SYNC_TIMEOUT(50).message, 'the run took longer than its timeout of 50 ms')
  t.match(new errors.FST_HOURLY_SYNC_SCHEMA('hourly_sync', 'missing', 1, "'migrate' is off").message, "schema 'hourly_sync' are missing, version 1 is needed and 'migrate' is off")
})

t.test('the error that was behind it is its cause', async t => {
  const cause = new Error('terminated')
  t.equal(new errors.FST_HOURLY_SYNC_LOCK_LOST('terminated', { cause }).cause, cause)
  t.equal(new errors.FST_HOURLY_SYNC_UNOBSERVED('query', { cause }).cause, cause)
  t.equal(new errors.FST_HOURLY_SYNC_READ_ONLY('it is a replica', { cause }).cause, cause)
})

t.test('a percent sign in what it was given is left as it is', async t => {
  t.equal(new errors.FST_HOURLY_SYNC_LOCK_LOST('100%s %d').message, 'the lock of the run is lost: 100%s %d')
})

t.test('the README has a line for each code, and for no other', async t => {
  const readme = readFileSync(new URL('../README.md', import.meta.url), 'utf8')
  t.strictSame([...new Set([...readme.matchAll(/^\| *`(FST_HOURLY_SYNC_\w+)`/gm)].map(([, code]) => code))].sort(), [...codes, 'FST_HOURLY_SYNC_TRANSIENT'].sort())
})
