import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import { inspect } from 'node:util'
import t from 'tap'
import { asError, endsSession, errorRecord, isTransient, logged, messageOf, redact, retryAfterOf } from '../lib/failure.js'
import { TransientSyncError } from '../lib/transient.js'

const withCode = (code: unknown): Error => Object.assign(new Error('x'), { code })
/** As Node rejects where a name has several addresses. */
const refusedAtTwo = (): Error => Object.assign(
  new AggregateError(['::1', '127.0.0.1'].map(address => Object.assign(new Error(`connect ECONNREFUSED ${address}:443`), { code: 'ECONNREFUSED' }))), { code: 'ECONNREFUSED' })
const withCause = (cause: unknown): Error => new TypeError('fetch failed', { cause })

t.test('isTransient', async t => {
  const transient: Array<[title: string, error: unknown]> = [
    ['a TransientSyncError', new TransientSyncError('x')],
    ...['ECONNRESET', 'ECONNREFUSED', 'ECONNABORTED', 'EPIPE', 'ETIMEDOUT', 'EHOSTUNREACH', 'ENETUNREACH', 'EAI_AGAIN', 'ENOTFOUND',
      'UND_ERR_CONNECT_TIMEOUT', 'UND_ERR_HEADERS_TIMEOUT', 'UND_ERR_BODY_TIMEOUT', 'UND_ERR_SOCKET'].map((code): [string, unknown] => [code, withCode(code)]),
    ...[408, 429, 502, 503, 504].flatMap((status): Array<[string, unknown]> => [
      [`statusCode ${status}`, { statusCode: status }],
      [`status ${status}`, { status }],
      [`response.status ${status}`, { response: { status } }],
      [`response.statusCode ${status}`, { response: { statusCode: status } }]
    ]),
    ['what AbortSignal.timeout() aborts with', new DOMException('The operation was aborted due to timeout', 'TimeoutError')],
    ['what fetch hides in its cause', withCause(withCode('ECONNRESET'))],
    ['what undici throws for 503', Object.assign(withCode('UND_ERR_RESPONSE_STATUS_CODE'), { status: 503, statusCode: 503 })],
    ['a status in the cause of a cause', withCause(withCause({ status: 503 }))],
    ['a TransientSyncError as the cause', withCause(new TransientSyncError('x'))],
    ['a refused connection to several addresses', withCause(Object.assign(new AggregateError([withCode('ECONNREFUSED'), withCode('ECONNREFUSED')]), { code: 'ECONNREFUSED' }))]
  ]
  for (const [title, error] of transient) t.equal(isTransient(error), true, `${title} is`)

  const circle = new Error('x')
  circle.cause = circle
  const deep = Array.from({ length: 10 }).reduce<unknown>(cause => withCause(cause), withCode('ECONNRESET'))
  const lasting: Array<[title: string, error: unknown]> = [
    ['an error', new Error('x')],
    ['a name alone', Object.assign(new Error('x'), { name: 'TransientSyncError' })],
    ...[200, 304, 400, 401, 403, 404, 409, 422, 500, 501, 505].map((status): [string, unknown] => [`status ${status}`, { status }]),
    ['what AbortController.abort() aborts with', new DOMException('This operation was aborted', 'AbortError')],
    ...[401, 403, 404].map((status): [string, unknown] => [`undici's ${status}`, Object.assign(withCode('UND_ERR_RESPONSE_STATUS_CODE'), { status, statusCode: status })]),
    ['a status in a text', { status: '503' }],
    ['a number as the code', withCode(503)],
    ['a unique violation', withCode('23505')],
    ['ENOENT', withCode('ENOENT')],
    ['a message that talks of one', new Error('503 ECONNRESET')],
    ['undefined', undefined],
    ['null', null],
    ['a text', 'ECONNRESET'],
    ['a function', () => {}],
    ['a response of null', { response: null }],
    ['a circle of causes', circle],
    ['a cause deeper than anyone puts it', deep]
  ]
  for (const [title, error] of lasting) t.equal(isTransient(error), false, `${title} is not`)
})

t.test('endsSession', async t => {
  for (const code of ['57P01', '57P02', '57P03', '57P04', '57P05', '25P03', '25P04']) t.equal(endsSession(withCode(code)), true, `${code} does`)
  for (const code of ['57014', '55P03', '23505', '42P01', '40001', '40P01', '25P02', '22P02', '08006', 'ECONNRESET', 8, undefined]) t.equal(endsSession(withCode(code)), false, `${code} does not`)
  t.equal(endsSession(Object.assign(withCode('57P01'), { severity: 'ERROR' })), false, 'a code that somebody raised as an error does not')
  t.equal(endsSession(Object.assign(withCode('57P01'), { severity: 'FATAL' })), true)
  for (const error of [undefined, null, 'ECONNRESET', {}]) t.equal(endsSession(error), false, `${inspect(error)} does not`)
})

t.test('redact takes the secret out and leaves the rest', async t => {
  const table: Array<[text: string, redacted: string]> = [
    ['nothing to hide', 'nothing to hide'],
    ['postgres://app:hunter2@db:5432/orders', 'postgres://***@db:5432/orders'],
    ['cannot reach postgresql://app:hunter2@db/orders, giving up', 'cannot reach postgresql://***@db/orders, giving up'],
    ['https://user:hunter2@api.example.com/v1?page=2', 'https://***@api.example.com/v1?page=2'],
    ['redis://:hunter2@cache:6379', 'redis://***@cache:6379'],
    ['AMQPS://APP:hunter2@MQ', 'AMQPS://***@MQ'],
    ['postgres://app:hun@ter2@db/orders', 'postgres://***@db/orders'],
    ['postgres://app:hun/ter2@db/orders', 'postgres://***@db/orders'],
    ['postgres://app:hunter%402@db/orders?sslmode=require', 'postgres://***@db/orders?sslmode=require'],
    ['a://b:hunter2@c and d://e:hunter2@f', 'a://***@c and d://***@f'],
    ['https://example.com:8080/a', 'https://example.com:8080/a'],
    ['https://example.com/a?b=c', 'https://example.com/a?b=c'],
    ['mail someone@example.com: no', 'mail someone@example.com: no'],
    ['GET /v1?api_key=hunter2&page=2', 'GET /v1?api_key=***&page=2'],
    ['GET /v1?apikey=hunter2', 'GET /v1?apikey=***'],
    ['GET /v1?api-key=hunter2#top', 'GET /v1?api-key=***'],
    ['GET /v1?access_token=hunter2&a=b', 'GET /v1?access_token=***&a=b'],
    ['GET /v1?token=hunter2', 'GET /v1?token=***'],
    ['GET /v1?X-Amz-Signature=hunter2&a=b', 'GET /v1?X-Amz-Signature=***&a=b'],
    ['X-Api-Key: hunter2', 'X-Api-Key: ***'],
    ['x-auth-token: hunter2', 'x-auth-token: ***'],
    ['Authorization: hunter2', 'Authorization: ***'],
    ['Authorization: Bearer hunter2.abc-_~+/==', 'Authorization: ***'],
    ['authorization: Basic aHVudGVyMg==', 'authorization: ***'],
    ['Authorization: Token hunter2', 'Authorization: ***'],
    ['Authorization: ApiKey hunter2', 'Authorization: ***'],
    ["{ authorization: 'Bearer hunter2', accept: '*/*' }", "{ authorization: '***', accept: '*/*' }"],
    ['{"Authorization":"Basic hunter2","accept":"*/*"}', '{"Authorization":"***","accept":"*/*"}'],
    ['Proxy-Authorization: Basic hunter2', 'Proxy-Authorization: ***'],
    ['sent bearer hunter2 and failed', 'sent bearer *** and failed'],
    ['{"password":"hunter2","user":"app"}', '{"password":"***","user":"app"}'],
    ['{"password":"hunter2 with spaces, and a comma","user":"app"}', '{"password":"***","user":"app"}'],
    ["password='hunter2 with spaces' user=app", "password='***' user=app"],
    ['host=db password=hunter2 user=app', 'host=db password=*** user=app'],
    ['{"body":"{\\"client_secret\\":\\"hunter2\\",\\"a\\":1}"}', '{"body":"{\\"client_secret\\":\\"***\\",\\"a\\":1}"}'],
    ['{"password":"hunter\\"2","user":"app"}', '{"password":"***","user":"app"}'],
    ["{ 'x-api-key': [ 'hunter2' ] }", "{ 'x-api-key': [ '***' ] }"],
    ["[ 'Authorization', 'Basic hunter2', 'Accept', '*/*' ]", "[ 'Authorization', '***', 'Accept', '*/*' ]"],
    ['password="hunter2 that has no end', 'password="***'],
    ['PGPASSWORD=hunter2', 'PGPASSWORD=***'],
    ['refreshToken = hunter2; expires', 'refreshToken = ***; expires'],
    ['passwd: hunter2', 'passwd: ***'],
    ['token expired', 'token expired'],
    ['password authentication failed for user "app"', 'password authentication failed for user "app"']
  ]
  for (const [text, redacted] of table) t.equal(redact(text), redacted, text)
})

t.test('redact cuts what is long', async t => {
  t.equal(redact('x'.repeat(2_000)), 'x'.repeat(2_000))
  t.equal(redact('x'.repeat(2_001)), `${'x'.repeat(1_999)}…`)
  t.equal(redact('x'.repeat(1_000_000)).length, 2_000)
})

t.test('a secret that the cut goes through shows none of itself', async t => {
  for (let before = 1_900; before < 2_010; before++) t.notMatch(redact(`${'x'.repeat(before)} https://app:hunter2@db`), 'hunter', `after ${before} letters`)
})

t.test('redact takes out what jsonb cannot hold', async t => {
  t.equal(redact('a\0b'), 'ab')
  t.equal(redact('a\ud83db'), 'a\ufffdb')
  t.equal(redact('\udc00'), '\ufffd')
  t.equal(redact('🚚'), '🚚')
  t.equal(redact(`${'x'.repeat(1_998)}🚚🚚`), `${'x'.repeat(1_998)}\ufffd…`, 'a pair that the cut goes through')
})

t.test('a NUL does not hide a secret', async t => {
  t.notMatch(redact('tok\0en=hunter2'), 'hunter2')
})

t.test('asError', async t => {
  const error = new RangeError('x')
  t.equal(asError(error), error, 'an error is itself')
  for (const thrown of [undefined, null, 'a text', 7, { a: 1 }, Symbol('x'), Object.create(null)]) {
    t.match(asError(thrown), { code: 'FST_HOURLY_SYNC_NOT_AN_ERROR', message: /was thrown, which is not an error$/ }, `${inspect(thrown)} becomes one`)
  }
  t.match(asError(undefined).message, 'undefined', 'it says what was thrown')
  t.match(asError({ reason: 'rate limit' }).message, 'rate limit')
  const unreadable: unknown[] = [
    Object.assign(new Error('x'), { message: Object.create(null) }),
    Object.assign(new Error('x'), { name: Object.create(null) }),
    Object.defineProperty(new Error('x'), 'message', { get () { throw new Error('no') } }),
    { [inspect.custom] () { throw new Error('no') } },
    new Proxy(new Error('x'), { getPrototypeOf () { throw new Error('no') } })
  ]
  unreadable.forEach((thrown, i) => t.match(asError(thrown), { code: 'FST_HOURLY_SYNC_NOT_AN_ERROR', message: /cannot be read/ }, `what cannot be read becomes one (${i})`))
})

t.test('errorRecord', async t => {
  t.strictSame(errorRecord(new RangeError('too far')), { name: 'RangeError', message: 'too far' }, 'keeps name and message, and no stack')
  t.strictSame(errorRecord(Object.assign(new Error('x'), { code: 'ECONNRESET' }), true), { name: 'Error', message: 'x', code: 'ECONNRESET', transient: true })
  t.strictSame(errorRecord(Object.assign(new Error('x'), { code: 7 })), { name: 'Error', message: 'x' }, 'a code that is no text is left out')
  t.strictSame(errorRecord(Object.assign(new Error('x'), { response: { status: 429 } })), { name: 'Error', message: 'x', statusCode: 429 })
  t.strictSame(errorRecord(Object.assign(new Error('at https://a:hunter2@b'), { code: 'token=hunter2', name: 'password=hunter2' })),
    { name: 'password=***', message: 'at https://***@b', code: 'token=***' }, 'shows no secret anywhere')
  t.strictSame(errorRecord(withCause(Object.assign(new Error('connect ECONNREFUSED 127.0.0.1:443'), { code: 'ECONNREFUSED' }))),
    { name: 'TypeError', message: 'fetch failed (connect ECONNREFUSED 127.0.0.1:443)', code: 'ECONNREFUSED' }, 'names the cause, and has its code')
  t.strictSame(errorRecord(new Error('a', { cause: new Error('b', { cause: Object.assign(new Error('c'), { statusCode: 401, code: 'C' }) }) })),
    { name: 'Error', message: 'a (b) (c)', code: 'C', statusCode: 401 }, 'names the cause of a cause')
  t.strictSame(errorRecord(Object.assign(withCause(withCode('INNER')), { code: 'OUTER' })), { name: 'TypeError', message: 'fetch failed (x)', code: 'OUTER' }, 'keeps its own code')
  t.strictSame(errorRecord(new Error('no: y', { cause: new Error('y') })), { name: 'Error', message: 'no: y' }, 'says nothing twice')
  t.strictSame(errorRecord(withCause(refusedAtTwo())),
    { name: 'TypeError', message: 'fetch failed (connect ECONNREFUSED ::1:443; connect ECONNREFUSED 127.0.0.1:443)', code: 'ECONNREFUSED' }, 'names each address that refused')
  t.strictSame(errorRecord(withCause(new Error('at https://a:hunter2@b'))), { name: 'TypeError', message: 'fetch failed (at https://***@b)' }, 'shows no secret of a cause')
  t.strictSame(errorRecord(withCause({ token: 'hunter2' })), { name: 'TypeError', message: 'fetch failed' }, 'leaves out a cause that is no error')
  t.strictSame(errorRecord(withCause(Object.assign(new Error('y'), { message: Object.create(null) }))), { name: 'TypeError', message: 'fetch failed (something that cannot be read)' })
  t.strictSame(errorRecord(new Error('a', { cause: Object.assign(new Error('row 1'), { code: 'FST_HOURLY_SYNC_UPSERT_INVALID_VALUE', cause: new Error('invalid input: "hunter2"') }) })),
    { name: 'Error', message: 'a (row 1)', code: 'FST_HOURLY_SYNC_UPSERT_INVALID_VALUE' }, "leaves out the cause of an upsert's error, which may hold a value")
  t.strictSame(errorRecord(Object.assign(new Error('x'), { message: undefined, name: 7 })), { name: '7', message: 'undefined' }, 'takes a message that is no text')
})

t.test('errorRecord of what fetch rejects with says why', async t => {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  await new Promise(resolve => server.close(resolve))
  const error = await fetch(`http://127.0.0.1:${port}`).catch(error => error)
  t.match(errorRecord(error), { name: 'TypeError', message: `fetch failed (connect ECONNREFUSED 127.0.0.1:${port})`, code: 'ECONNREFUSED' })
})

t.test('messageOf is never empty', async t => {
  t.equal(messageOf(new Error('x')), 'x')
  t.equal(messageOf(refusedAtTwo()), 'connect ECONNREFUSED ::1:443; connect ECONNREFUSED 127.0.0.1:443')
  t.equal(messageOf(new AggregateError([withCode(1), withCode(2)])), 'x', 'says nothing twice')
  t.equal(messageOf(new AggregateError([], '')), 'AggregateError')
  t.equal(messageOf(Object.assign(new Error(''), { code: 'ECONNREFUSED' })), 'ECONNREFUSED')
  t.equal(messageOf(new RangeError('')), 'RangeError')
})

t.test('logged', async t => {
  class RateLimited extends Error {}
  const error = Object.assign(new RateLimited('at https://a:hunter2@b', { cause: new Error('token=hunter2') }), { code: 'E_RATE', config: { headers: { authorization: 'hunter2' } } })
  error.name = 'RateLimited'
  const copy = logged(error)

  t.type(copy, Error, 'is an error')
  t.equal(copy.message, 'at https://***@b', 'has its message without secrets')
  t.equal((copy as { code?: string }).code, 'E_RATE', 'has its code')
  t.equal(copy.cause, 'token=***', 'has the message of its cause without secrets')
  t.equal(copy.name, 'RateLimited', 'has its name')
  t.equal(copy.constructor.name, 'RateLimited', 'has its type, as a serializer looks for it')
  t.match(copy.stack, 'failure.test.ts', 'has its stack')
  t.notMatch(inspect(copy, { depth: 9, showHidden: true }), 'hunter2', 'shows no secret anywhere')
  t.match(error, { message: 'at https://a:hunter2@b', code: 'E_RATE' }, 'leaves the error as it was')

  t.equal(logged(new Error('x', { cause: { token: 'hunter2' } })).cause, "{ token: '***' }", 'a cause that is no error is told in short')
  t.match(logged(withCause(refusedAtTwo())).cause, 'connect ECONNREFUSED ::1:443; connect', 'a cause that gathers errors is told by them')
  t.match(logged(refusedAtTwo()).message, 'connect ECONNREFUSED ::1:443; connect')
  const ofUpsert = (cause: unknown): Error => Object.assign(new Error('row 1', { cause }), { code: 'FST_HOURLY_SYNC_UPSERT_REFUSED_ROW' })
  t.equal(logged(ofUpsert(Object.assign(new Error('duplicate key'), { code: '23505', detail: 'Key (email)=(hunter2) already exists.' }))).cause, '23505', "of the cause of an upsert's error, which may hold a value, its code")
  t.equal(logged(ofUpsert(null)).cause, 'undefined')
  t.equal(logged(new Error('x', { cause: ofUpsert(new Error('hunter2')) })).cause, 'row 1')
  t.notOk('cause' in logged(new Error('x')), 'no cause stays no cause')
  t.notOk('code' in logged(new Error('x')), 'no code stays no code')
  t.equal(logged(new Error('x', { cause: Object.assign(new Error('y'), { message: undefined }) })).cause, 'undefined', 'takes a cause whose message is no text')
  t.match(logged(new Error('x', { cause: Object.assign(new Error('y'), { message: Object.create(null) }) })).cause, 'cannot be read', 'takes a cause whose message cannot be a text')
})

t.test('the rest that is asked for is the longest of an error and its causes', async t => {
  const asks = (retryAfter?: number, cause?: unknown): Error => new TransientSyncError('slow down', { retryAfter: retryAfter ?? null, cause })
  const cases: Array<[error: unknown, ms: number | undefined]> = [
    [undefined, undefined], [new Error('x'), undefined], [asks(), undefined], [asks(0), 0], [asks(7), 7],
    [new Error('page 3', { cause: asks(7) }), 7], [asks(undefined, asks(7)), 7], [asks(7, asks(3)), 7], [asks(3, asks(7)), 7]
  ]
  for (const [error, ms] of cases) t.equal(retryAfterOf(error), ms)
})
