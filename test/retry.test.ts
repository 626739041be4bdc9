import t from 'tap'
import { TransientSyncError } from '../lib/transient.js'
import { levels, setStage } from './helpers/host.js'
import { startPostgres } from './helpers/postgres.js'
import { until } from './helpers/until.js'

const HOUR = 3_600_000
const MINUTE = 60_000
const cluster = await startPostgres(t)
const fails = async (): Promise<never> => { throw new Error('no') }

/** How long the slot rests after its last failure, milliseconds. */
const rest = ({ not_before: notBefore, failed_at: failedAt }: any): number => notBefore - failedAt

t.test('attempts are counted over all processes of a slot', async t => {
  const stage = await setStage(t, cluster)
  const one = await stage.host({ sync: fails })
  const other = await stage.host({ sync: fails })
  await stage.clock.at('2025-03-10T10:00:00Z')
  await one.sync.runOnce()
  await stage.clock.pass(2 * MINUTE)
  await other.sync.runOnce()
  await stage.clock.pass(3 * MINUTE)
  await one.sync.runOnce()
  t.strictSame((await stage.history()).map(({ attempt, trigger, state }) => [attempt, trigger, state]),
    [[1, 'schedule', 'failed'], [2, 'retry', 'failed'], [3, 'retry', 'failed']])
})

t.test('no process tries again before its time', async t => {
  const stage = await setStage(t, cluster)
  const one = await stage.host({ sync: fails, retry: { delay: '4m' } })
  const other = await stage.host({ retry: { delay: '4m' } })
  await stage.clock.at('2025-03-10T10:00:00Z')
  await one.sync.runOnce()
  await stage.clock.pass(3 * MINUTE - 1)
  t.match(await other.sync.runOnce(), { outcome: 'not-due', reason: 'waiting' })
  await stage.clock.pass(2 * MINUTE + 1)
  t.match(await other.sync.runOnce(), { outcome: 'succeeded', run: { attempt: 2, trigger: 'retry' } })
})

t.test('a new slot counts its attempts from one', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({ sync: fails })
  await stage.clock.at('2025-03-10T10:00:00Z')
  await sync.runOnce()
  await stage.clock.at('2025-03-10T11:00:00Z')
  t.match(await sync.runOnce(), { run: { attempt: 1, trigger: 'schedule' } })
})

t.test('the rest between attempts doubles up to its limit', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({ sync: fails, retry: { delay: '1m', maxDelay: '3m' } })
  await stage.clock.at('2025-03-10T10:00:00Z')
  for (const full of [MINUTE, 2 * MINUTE, 3 * MINUTE]) {
    await sync.runOnce()
    const rested = rest(await stage.state())
    t.ok(rested >= 0.75 * full && rested <= 1.25 * full, `${rested} ms for ${full} ms`)
    await stage.clock.pass(rested)
  }
})

t.test('a retry rests no longer than its slot lasts', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({ sync: fails })
  await stage.clock.at('2025-03-10T10:59:50Z')
  await sync.runOnce()
  t.strictSame((await stage.state()).not_before, new Date('2025-03-10T11:00:00Z'))
})

t.test('a loop tries again by itself as soon as it may', async t => {
  const stage = await setStage(t, cluster)
  await stage.clock.at('2025-03-10T10:00:00Z')
  let calls = 0
  const loop = stage.looping({ sync: async () => { if (++calls < 3) throw new Error('no') } })
  await loop.rests()
  t.equal(await loop.rests(), rest(await stage.state()))
  await loop.look()
  await loop.look()
  t.strictSame((await stage.history()).map(({ attempt, trigger, state }) => [attempt, trigger, state]),
    [[1, 'schedule', 'failed'], [2, 'retry', 'failed'], [3, 'retry', 'succeeded']])
  const now = await stage.clock.now()
  t.equal(await loop.rests(), Date.parse('2025-03-10T11:00:00Z') - now.getTime() + 1, 'and then rests until the next slot')
})

t.test('a loop sees that another process failed, and tries again when its time has come', async t => {
  const stage = await setStage(t, cluster)
  await stage.clock.at('2025-03-10T10:00:00Z')
  const other = await stage.host({ sync: fails })
  await other.sync.runOnce()
  const loop = stage.looping()
  await loop.rests()
  t.match(await loop.sync.status(), { lastLook: { outcome: 'not-due', reason: 'waiting' }, hold: 'waiting', due: false })
  await loop.look()
  t.match(await stage.history(), [{ attempt: 1 }, { attempt: 2, state: 'succeeded' }])
})

t.test('without retries a failed slot waits for the next', async t => {
  const stage = await setStage(t, cluster)
  await stage.clock.at('2025-03-10T10:00:00Z')
  const loop = stage.looping({ sync: fails, retry: false })
  t.equal(await loop.rests(), HOUR + 1)
  t.equal((await loop.sync.status()).hold, 'spent')
  await loop.look()
  t.match(await stage.history(), [{ attempt: 1, trigger: 'schedule' }, { attempt: 1 }])
})

t.test('when the retries are spent a loop waits for the next slot', async t => {
  const stage = await setStage(t, cluster)
  await stage.clock.at('2025-03-10T10:00:00Z')
  const loop = stage.looping({ sync: fails, retry: { limit: 1 } })
  await loop.rests()
  await loop.look()
  const now = await stage.clock.now()
  t.equal(await loop.rests(), Date.parse('2025-03-10T11:00:00Z') - now.getTime() + 1)
  t.equal((await stage.history()).length, 2)
})

t.test('a newly booted process tries once more when the retries are spent', async t => {
  const stage = await setStage(t, cluster)
  await stage.clock.at('2025-03-10T10:00:00Z')
  const loop = stage.looping({ sync: fails, retry: { limit: 1 } })
  await loop.rests()
  await loop.look()
  const booted = stage.looping({ sync: fails, retry: { limit: 1 } })
  await booted.rests()
  const now = await stage.clock.now()
  t.equal(await booted.rests(), Date.parse('2025-03-10T11:00:00Z') - now.getTime() + 1, 'and then rests as all do')
  t.match((await stage.history()).slice(2), [{ attempt: 3, trigger: 'retry' }])
})

t.test('a run by hand that fails is no attempt', async t => {
  const stage = await setStage(t, cluster)
  let failing = true
  const { sync } = await stage.host({ sync: async () => { if (failing) throw new Error('no') } })
  await stage.clock.at('2025-03-10T10:00:00Z')
  await sync.runOnce({ force: true })
  failing = false
  t.match(await sync.runOnce(), { outcome: 'succeeded', run: { attempt: 1, trigger: 'schedule' } })
})

t.test('what a service asked for is a lower bound of the rest', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({ sync: () => { throw new TransientSyncError('slow down', { retryAfter: '20m' }) } })
  await stage.clock.at('2025-03-10T10:00:00Z')
  await sync.runOnce()
  t.equal(rest(await stage.state()), 20 * MINUTE)
})

t.test('what a service asked for counts as a cause as well', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({ sync: () => { throw new Error('page 3', { cause: new TransientSyncError('slow down', { retryAfter: '20m' }) }) } })
  await stage.clock.at('2025-03-10T10:00:00Z')
  t.match(await sync.runOnce(), { run: { error: { transient: true } } })
  t.equal(rest(await stage.state()), 20 * MINUTE)
})

t.test('what a service asked for does not shorten the rest', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({ sync: () => { throw new TransientSyncError('slow down', { retryAfter: 1 }) } })
  await stage.clock.at('2025-03-10T10:00:00Z')
  await sync.runOnce()
  t.ok(rest(await stage.state()) >= 45_000)
})

t.test('what a service asked for holds beyond the slot', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({ sync: () => { throw new TransientSyncError('slow down', { retryAfter: '2h' }) } })
  await stage.clock.at('2025-03-10T10:30:00Z')
  await sync.runOnce()
  await stage.clock.at('2025-03-10T12:29:59Z')
  t.match(await sync.runOnce(), { outcome: 'not-due', reason: 'waiting' })
  await stage.clock.at('2025-03-10T12:30:00Z')
  t.match(await sync.runOnce(), { outcome: 'failed', run: { attempt: 1 } })
})

t.test('what a service asked for holds when there are no retries', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({ retry: false, sync: () => { throw new TransientSyncError('slow down', { retryAfter: '90m' }) } })
  await stage.clock.at('2025-03-10T10:00:00Z')
  await sync.runOnce()
  await stage.clock.at('2025-03-10T11:00:00Z')
  t.match(await sync.runOnce(), { outcome: 'not-due', reason: 'waiting' })
})

t.test('a failure is handed to the host once a slot', async t => {
  const stage = await setStage(t, cluster)
  const told: unknown[] = []
  const { sync } = await stage.host({ sync: fails, onError: (error, run) => { told.push([(error as Error).message, run.slot!.getUTCHours()]) } })
  await stage.clock.at('2025-03-10T10:00:00Z')
  await sync.runOnce()
  await stage.clock.pass(10 * MINUTE)
  await sync.runOnce()
  await stage.clock.at('2025-03-10T11:00:00Z')
  await sync.runOnce()
  t.strictSame(told, [['no', 10], ['no', 11]])
})

t.test('a failure is handed to one of two processes of a slot', async t => {
  const stage = await setStage(t, cluster)
  let told = 0
  const options = { sync: fails, onError: () => { told++ } }
  const hosts = [await stage.host(options), await stage.host(options)]
  await stage.clock.at('2025-03-10T10:00:00Z')
  for (const { sync } of hosts) {
    t.match(await sync.runOnce(), { outcome: 'failed' })
    await stage.clock.pass(10 * MINUTE)
  }
  t.equal(told, 1)
})

t.test('a failure that is recorded without its session is handed over once a slot as well', async t => {
  const stage = await setStage(t, cluster)
  let told = 0
  const { sync } = await stage.host({
    sync: async run => { await run.query('select pg_sleep(600)') },
    timeout: 50,
    abandonAfter: 50,
    onError: () => { told++ }
  })
  await stage.clock.at('2025-03-10T10:00:00Z')
  t.match(await sync.runOnce(), { outcome: 'timed-out', run: { attempt: 1 } })
  await stage.clock.pass(10 * MINUTE)
  await until(async () => (await sync.runOnce()).outcome === 'timed-out')
  t.equal(told, 1)
})

t.test('what a service asked for holds for a failure that is recorded without its session', async t => {
  const stage = await setStage(t, cluster)
  const { sync } = await stage.host({ sync: () => { throw new TransientSyncError('slow down', { retryAfter: '90m' }) } })
  await stage.clock.at('2025-03-10T10:00:00Z')
  await sync.runOnce()
  await stage.clock.at('2025-03-10T12:00:00Z')
  // the first insert of the end fails, and with it the session ends; the second, through the pool, is taken
  await stage.query(`
    create sequence ${stage.schema}.tries;
    create function ${stage.schema}.refuse() returns trigger language plpgsql as $$
      begin
        if nextval('${stage.schema}.tries') = 1 then raise 'refused'; end if;
        return new;
      end $$;
    create trigger refuse before insert on ${stage.schema}.run for each row execute function ${stage.schema}.refuse()`)
  t.match(await sync.runOnce(), { outcome: 'failed' })
  t.strictSame((await stage.state()).not_before, new Date('2025-03-10T13:30:00Z'))
})

t.test('a transient failure is a warning and not handed to the host', async t => {
  const stage = await setStage(t, cluster)
  let told = 0
  const { sync, log } = await stage.host({ sync: () => { throw Object.assign(new Error('busy'), { statusCode: 503 }) }, onError: () => { told++ } })
  t.match(await sync.runOnce(), { run: { error: { message: 'busy', statusCode: 503, transient: true } } })
  t.match(log.said('sync failed'), [{ level: levels.warn, err: { message: 'busy' } }])
  t.equal(told, 0)
})

t.test('a failure after a transient one of the same slot is handed to the host', async t => {
  const stage = await setStage(t, cluster)
  const told: unknown[] = []
  const errors: Error[] = [new TransientSyncError('busy'), new Error('broken')]
  const { sync } = await stage.host({ sync: () => { throw errors.shift() }, onError: error => { told.push((error as Error).message) } })
  await stage.clock.at('2025-03-10T10:00:00Z')
  await sync.runOnce()
  await stage.clock.pass(10 * MINUTE)
  await sync.runOnce()
  t.strictSame(told, ['broken'])
})

t.test('any other failure is logged as an error', async t => {
  const stage = await setStage(t, cluster)
  const { sync, log } = await stage.host({ sync: fails })
  t.match(await sync.runOnce(), { run: { error: { name: 'Error', message: 'no' } } })
  t.match(log.said('sync failed'), [{ level: levels.error, err: { message: 'no' }, sync: stage.name, trigger: 'schedule', attempt: 1 }])
})

t.test('the host may judge what is transient', async t => {
  const stage = await setStage(t, cluster)
  let told = 0
  const { sync } = await stage.host({ sync: fails, isTransient: error => (error as Error).message === 'no', onError: () => { told++ } })
  t.match(await sync.runOnce(), { run: { error: { transient: true } } })
  t.equal(told, 0)
})

for (const [what, isTransient] of [
  ['throws', () => { throw new Error('oops') }],
  ['rejects', async () => { throw new Error('oops') }]
] as Array<[string, any]>) {
  t.test(`an isTransient that ${what} is logged and judges nothing`, async t => {
    const stage = await setStage(t, cluster)
    const { sync, log } = await stage.host({ sync: () => { throw new TransientSyncError('busy') }, isTransient })
    t.match(await sync.runOnce(), { outcome: 'failed', run: { error: { transient: true } } })
    t.match(await until(() => log.said('isTransient threw')[0]), { level: levels.error, err: { message: 'oops' } })
  })
}

for (const [what, onError] of [
  ['throws', () => { throw new Error('oops') }],
  ['rejects', async () => { throw new Error('oops') }]
] as Array<[string, any]>) {
  t.test(`an onError that ${what} is logged and harms nothing`, async t => {
    const stage = await setStage(t, cluster)
    const { sync, log } = await stage.host({ sync: fails, onError })
    t.match(await sync.runOnce(), { outcome: 'failed', run: { error: { message: 'no' } } })
    t.match(await until(() => log.said('onError threw')[0]), { level: levels.error, err: { message: 'oops' } })
  })
}

t.test('secrets in an error are neither stored nor logged', async t => {
  const stage = await setStage(t, cluster)
  const { sync, log } = await stage.host({ sync: () => { throw new Error('GET https://api.test/?api_key=sesame failed') } })
  await sync.runOnce()
  t.match(await stage.history(), [{ error: { message: 'GET https://api.test/?api_key=*** failed' } }])
  t.notMatch(JSON.stringify(log.lines), /sesame/)
})
