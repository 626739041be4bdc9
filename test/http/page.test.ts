import t from 'tap'
import type { HourRow } from '../../lib/sql/readings.js'
import { page, type View } from '../../lib/http/page/document.js'
import { html } from '../../lib/http/page/html.js'
import { charts } from '../../lib/http/page/charts.js'
import { now } from '../../lib/http/page/now.js'
import { oneRun, runs } from '../../lib/http/page/runs.js'
import { week } from '../../lib/http/page/week.js'
import { amount, cut, numbers, plural, short, span, time, utc } from '../../lib/http/page/words.js'
import type { Json, RunRecord, Status } from '../../lib/types.js'

const HOUR = 3_600_000
const at = new Date('2025-03-10T10:20:00Z')
const date = (text: string): Date => new Date(`2025-03-${text}Z`)

const status: Status = {
  name: 'order-sync',
  target: '',
  enabled: true,
  disabledBecause: null,
  syncing: false,
  holder: null,
  progress: null,
  aborted: null,
  wedged: false,
  unavailable: null,
  lastSuccess: null,
  lastRun: null,
  lastError: null,
  watermark: null,
  backfill: null,
  slot: date('10T10:00:00'),
  nextSlot: date('10T11:00:00'),
  lastSlot: null,
  lastSlotAhead: false,
  behindSlots: 0,
  notBefore: null,
  pausedUntil: null,
  due: false,
  hold: 'served',
  nextLook: null,
  lastLook: null
}

const run: RunRecord = {
  id: '11111111-1111-4111-8111-111111111111',
  name: 'order-sync',
  target: '',
  trigger: 'schedule',
  state: 'succeeded',
  slot: date('10T10:00:00'),
  slice: 1,
  slices: 1,
  attempt: 1,
  since: date('10T08:50:00'),
  until: date('10T10:00:00'),
  startedAt: date('10T10:00:02'),
  finishedAt: date('10T10:00:05'),
  duration: 3_000,
  worker: 'web-1:42',
  stats: null,
  error: null
}

const view: View = {
  status, at, every: HOUR, hours: [], runs: [], listed: [], older: false, paged: false, run: undefined, others: [], versions: { style: 'a', script: 'b' }
}

/** What a reader sees of it. */
const read = (markup: { text: string }): string => markup.text.replaceAll(/<[^>]*>/g, ' ').replaceAll(/\s+/g, ' ').trim()

t.test('what is put into markup is escaped, unless it is markup', async t => {
  t.equal(html`<b title="${'"\'<>&'}">${['<', html`<i>`, 1, null, undefined, true, [['&']]]}</b>`.toString(), '<b title="&quot;&#39;&lt;&gt;&amp;">&lt;<i>1&amp;</b>')
})

t.test('spans of time in words', async t => {
  const table: Array<[ms: number, words: string]> = [
    [-5, '0 ms'], [0.4, '0 ms'], [840, '840 ms'], [999.7, '1000 ms'], [1_000, '1 s'], [2_345, '2.35 s'], [12_440, '12.4 s'], [59_949, '59.9 s'], [60_000, '1 min'], [200_000, '3 min 20 s'],
    [HOUR, '1 h'], [2 * HOUR + 5 * 60_000, '2 h 5 min'], [24 * HOUR, '1 d'], [76 * HOUR, '3 d 4 h']
  ]
  for (const [ms, words] of table) t.equal(span(ms), words)
})

t.test('numbers and instants in words', async t => {
  t.strictSame([amount(14_203.456), short(14_203), plural(1, 'run'), plural(2_000, 'run')], ['14,203.46', '14.2K', '1 run', '2,000 runs'])
  t.strictSame([utc(at), utc(date('10T10:20:05.9'))], ['2025-03-10 10:20 UTC', '2025-03-10 10:20:05 UTC'])
  t.equal(time(null).text, '<span class="none">never</span>')
  t.strictSame([time(at), time(at, 'short'), time(at, 'clock')].map(read), ['2025-03-10 10:20 UTC', '03-10 10:20 UTC', '10:20 UTC'])
  t.strictSame([cut('🚚🚚🚚', 3), cut('🚚🚚🚚🚚', 3)], ['🚚🚚🚚', '🚚🚚…'])
})

t.test('the numbers of stats', async t => {
  const table: Array<[stats: Json, found: Array<[string, number]>]> = [
    [null, []], [7, [['stats', 7]]], ['x', []], [[1], []], [{ saved: 3, at: 'x', none: null, list: [1] }, [['saved', 3]]], [{ orders: { new: 1, old: 2, name: 'x' } }, [['orders.new', 1], ['orders.old', 2]]]
  ]
  for (const [stats, found] of table) t.strictSame(numbers(stats), found, JSON.stringify(stats))
})

t.test('what it does now, in words', async t => {
  const holder = { backend: 1, applicationName: null, address: null, runId: run.id, trigger: 'catch-up', slot: null, startedAt: date('10T10:19:00'), host: 'web-2', pid: 7 } as const
  const nobody = { ...holder, runId: null, trigger: null, startedAt: null, host: null, pid: null }
  const table: Array<[part: Partial<Status>, words: RegExp]> = [
    [{}, /^Idle until 11:00 UTC/],
    [{ hold: null, nextSlot: null }, /^Idle Last success/],
    [{ due: true, hold: null, behindSlots: 1 }, /^Due since 2025-03-10 10:00 UTC , nobody runs it yet.*Behind 1 slot /],
    [{ hold: 'waiting', notBefore: date('10T10:25:00') }, /^Waiting waiting to try again, until 10:25 UTC/],
    [{ hold: 'paused', pausedUntil: date('10T13:00:00') }, /^Waiting paused until the next slot: its runs kept vanishing with their process, until 13:00 UTC/],
    [{ hold: 'spent' }, /^Waiting no retry is left in this slot, until 11:00 UTC/],
    [{ syncing: true, holder }, /^Syncing by web-2:7, for 1 min , catch-up no progress told yet/],
    [{ syncing: true, holder: nobody }, /^Syncing something else holds the lock/],
    [{ syncing: true, holder: null }, /^Syncing something else holds the lock/],
    [{ syncing: true, holder, progress: { done: 1_200, total: null } }, /catch-up 1,200 Last/],
    [{ syncing: true, holder, progress: { done: 0, total: 0 } }, /catch-up 0 of 0 Last/],
    [{ syncing: true, holder, progress: { done: 12, total: 10 } }, /catch-up 12 of 10 Last/],
    [{ unavailable: 'connect failed', behindSlots: null, due: null, hold: null }, /^Unknown the database cannot be asked connect failed Last success unknown Behind unknown Fetched up to unknown/],
    [{ wedged: true }, /its process may be stuck/],
    [{ aborted: 'timed-out' }, /was told to stop, and will end as timed-out/],
    [{ lastSlotAhead: true }, /the clock of the database was set back/],
    [{ lastLook: { at, outcome: 'refused', reason: 'a pooler' } }, /This process may not sync: a pooler/],
    [{ lastSuccess: run, watermark: run.until }, /Last success 2025-03-10 10:00:05 UTC took 3 s .*Fetched up to 2025-03-10 10:00 UTC/],
    [{ nextLook: date('10T10:20:30') }, /looks for due slots next at 10:20:30 UTC/],
    [{ enabled: false, disabledBecause: 'not enabled' }, /does not look for due slots not enabled/],
    [{ backfill: { since: date('01T00:00:00'), until: date('02T00:00:00'), position: date('01T12:00:00') } }, /Backfill 2025-03-01 12:00 UTC of 2025-03-01 00:00 UTC to 2025-03-02 00:00 UTC/],
    [{ lastError: { name: 'Error', message: '<no>', at } }, /Last error 2025-03-10 10:20 UTC Error: &lt;no&gt;$/]
  ]
  for (const [part, words] of table) t.match(read(now({ ...view, status: { ...status, ...part } })), words, JSON.stringify(part).slice(0, 60))
  t.match(now({ ...view, status: { ...status, syncing: true, holder, progress: { done: 12, total: 10 } } }).text, '<progress id="bar" aria-label="Progress of the run" value="10" max="10">')
  t.match(now({ ...view, status: { ...status, syncing: true, holder, progress: { done: 0, total: 0 } } }).text, '<progress id="bar" aria-label="Progress of the run" >')
})

const hour = (at: Date, part: Partial<HourRow>): HourRow => ({
  hour: String(at.getTime()), on_time: 0, caught_up: 0, failed: 0, missing: 0, pending: 0, failures: 0, run: null, trigger: null, run_state: null, run_started_at: null, run_finished_at: null, error: null, ...part
})
const by = { run: run.id, trigger: 'schedule', run_state: 'succeeded', run_started_at: String(at.getTime()), run_finished_at: String(at.getTime() + 2_000), error: null }

t.test('an hour of the week, in words', async t => {
  const place = date('10T09:00:00')
  const table: Array<[part: Partial<HourRow>, words: string]> = [
    [{ on_time: 1, ...by }, 'on time by its run of 2025-03-10 10:20 UTC (schedule, succeeded, took 2 s)'],
    [{ on_time: 1, failures: 2, ...by }, 'on time after 2 runs that did not succeed, by its run of'],
    [{ caught_up: 1, ...by }, 'caught up by the run of'],
    [{ failed: 1, failures: 1, ...by, run_state: 'failed', error: '<oh>' }, 'failed by its run of 2025-03-10 10:20 UTC (schedule, failed, took 2 s): &lt;oh&gt;'],
    [{ missing: 1 }, 'missing : nobody ran it, and no later run has fetched it'],
    [{ pending: 1 }, 'not over'],
    [{ on_time: 2, failed: 1, missing: 1, failures: 1, ...by }, '1 failed, 1 missing, 2 on time of 4 slots; see the run of']
  ]
  for (const [part, words] of table) t.match(read(week({ ...view, hours: [hour(place, part)] })), `Mon 10 Mar 09:00 UTC ${words}`)
  t.match(read(week(view)), 'Mon 10 Mar 09:00 UTC no record')
})

t.test('slots that are longer than an hour stand where they begin', async t => {
  const markup = week({ ...view, every: 6 * HOUR, hours: [hour(date('10T06:00:00'), { on_time: 1, ...by })] })
  t.match(read(markup), 'A slot of 6 h stands in the hour it begins in')
  t.equal(markup.text.split('class="cell ').length - 1, 1)
})

t.test('plots over the time there is a history of', async t => {
  t.match(read(charts(view)), 'No run in the last 7 days.')
  const drawn = (count: number, gap: number, part: (index: number) => Partial<RunRecord> = () => ({})): RunRecord[] =>
    Array.from({ length: count }, (_, index) => ({ ...run, startedAt: new Date(at.getTime() - index * gap), ...part(index) }))
  const short = charts({ ...view, runs: drawn(3, 60_000) })
  t.match(short.text, /data-style="clock">10:00/)
  const long = charts({ ...view, runs: drawn(160, HOUR, index => ({ duration: 400 + index, stats: { rows: 1e6 + index } })) })
  t.match(long.text, /data-style="date">03-09/)
  t.match(read(long), /160 runs, a bar each.* rows latest 1,000,000 median 1,000,080 most 1,000,159/)
  const failed = charts({ ...view, runs: drawn(2, HOUR, () => ({ state: 'failed', duration: 3 * 86_400_000, stats: { rows: 0 } })) })
  t.match(failed.text, /<g class="bad"><title>3 d, failed/)
  t.equal(charts({ ...view, runs: drawn(9, HOUR, () => ({ stats: { a: 1, b: 1, c: 1, d: 1, e: 1, f: 1 } })) }).text.split('<figure').length - 1, 6, 'the duration and five of the numbers')
})

t.test('the list of runs', async t => {
  t.match(read(runs(view)), 'Latest runs No run has ended yet.')
  t.match(read(runs({ ...view, paged: true })), 'Older runs There are none. Latest runs')
  const list = runs({
    ...view,
    older: true,
    listed: [
      { ...run, attempt: 2, slices: 3, slice: 2, stats: { saved: 3 } },
      { ...run, since: null, slot: null, stats: 'all of them' },
      { ...run, state: 'failed', since: date('01T00:00:00'), error: { name: 'Error', message: 'x'.repeat(200) } }
    ]
  })
  const text = read(list)
  t.match(text, 'schedule attempt 2 part 2 of 3 08:50 UTC to 10:00 UTC 3 s saved 3')
  t.match(text, 'everything to 03-10 10:00 UTC 3 s &quot;all of them&quot;')
  t.match(text, /03-01 00:00 UTC to 03-10 10:00 UTC 3 s Error: x{132}… web-1:42/)
  t.match(list.text, `<a href="?before=${run.id}#runs">Older runs</a>`)
  t.match(read(runs({ ...view, listed: [run] })), 'none told')
})

t.test('one run in full', async t => {
  t.match(read(oneRun(null)), 'No such run')
  t.match(read(oneRun({ ...run, slot: null })), 'Slot none, it was a backfill')
  t.match(read(oneRun({ ...run, stats: { a: '<' } })), '{ &quot;a&quot;: &quot;&lt;&quot; }')
  t.match(read(oneRun({ ...run, state: 'failed', error: { name: 'HttpError', message: 'no', code: 'E_NO', statusCode: 503 } })), 'Error HttpError (E_NO), status 503: no')
  t.match(read(oneRun({ ...run, state: 'failed', error: { name: 'Error', message: 'no' } })), 'Error Error: no')
})

t.test('the page of a name that is markup', async t => {
  const { text } = page({ ...view, status: { ...status, name: '<script>' }, run: null, others: [{ name: '<a>', href: './"' }, { name: '<b>', href: undefined }] })
  t.match(text, '<title>&lt;script&gt; · hourly sync</title>')
  t.match(text, '<a href="./&quot;">&lt;a&gt;</a>')
  t.match(text, '&lt;b&gt; <span class="hint">has no page</span>')
})
