import t from 'tap'
import { TransientSyncError } from '../lib/transient.js'

t.test('it is an error with a name and a code of its own', async t => {
  const error = new TransientSyncError('rate limited')
  t.type(error, Error)
  t.match(error, { name: 'TransientSyncError', code: 'FST_HOURLY_SYNC_TRANSIENT', message: 'rate limited' })
  t.equal(error.retryAfter, undefined)
  t.notOk('cause' in error)
})

t.test('it carries its cause', async t => {
  const cause = new Error('429')
  t.equal(new TransientSyncError('rate limited', { cause }).cause, cause)
})

for (const [retryAfter, ms] of [[0, 0], [1_500, 1_500], [0.2, 1], [64.57 * 1000, 64_570], [1.005 * 1000, 1_005], [0.57 * 1000, 570], [4.35 * 1000, 4_350], ['90s', 90_000], ['1h', 3_600_000]] as const) {
  t.equal(new TransientSyncError('', { retryAfter }).retryAfter, ms, `retryAfter ${retryAfter} is ${ms} ms`)
}

// a Retry-After header may be a text of seconds, a date, or missing: none of them is a duration
for (const retryAfter of [-1, -0.5, NaN, Infinity, 1e300, '', '120', '1M', 'Wed, 21 Oct 2015 07:28:00 GMT', null, {}]) {
  t.equal(new TransientSyncError('', { retryAfter: retryAfter as string }).retryAfter, undefined, `retryAfter ${JSON.stringify(retryAfter)} is left out`)
}
