import t, { type TAP, type Test } from 'tap'
import { axeFindings, launchBrowser, noBrowser, openPage, takePicture, type Watched } from '../helpers/browser.js'
import { serveSync } from '../helpers/dashboards.js'
import { setStage, type Stage } from '../helpers/host.js'
import { startPostgres } from '../helpers/postgres.js'
import { HOUR, mixedRuns, seed } from '../helpers/seed.js'
import { startApi, startServer } from '../helpers/server.js'
import { gate } from '../helpers/until.js'

t.setTimeout(150_000)
const skip = noBrowser
const [cluster, browser] = await Promise.all([startPostgres(t), skip === false ? launchBrowser(t) : undefined as never])

const evil = '<img src=x onerror="alert(1)"></time><script>alert(2)</script> & "this"'

/** A server with a week of mixed history. */
async function serveWeek (t: Test | TAP, message?: string): Promise<{ stage: Stage, url: string }> {
  const stage = await setStage(t, cluster)
  const { app, url } = await serveSync(t, stage, {}, [{ name: 'prices' }, { name: 'stock:eu', routes: { public: true, dashboard: false } }])
  await app.hourlySync.get('order-sync').runOnce({ force: true })
  await stage.query(`delete from ${stage.schema}.run`)
  const now = Date.now()
  await seed(stage.query, stage.schema, 'order-sync', { from: now - 130 * HOUR, runs: mixedRuns(now, 130, message) })
  if (message !== undefined) {
    await stage.query(`update ${stage.schema}.sync set last_failure = jsonb_build_object('name', $1::text, 'message', $1::text, 'at', ${now}, 'state', 'failed')`, [message])
    await stage.query(`update ${stage.schema}.run set stats = jsonb_build_object($1::text, 7), worker = $1 where state = 'succeeded'`, [message])
  }
  return { stage, url }
}

const week = skip === false ? await serveWeek(t) : undefined as never

const live = async ({ page }: Watched): Promise<void> => await page.locator('#live.on').waitFor()

/** Would be gone after a reload. */
const mark = async ({ page }: Watched): Promise<void> => { await page.evaluate(() => { (globalThis as any).marked = true }) }
const isMarked = async ({ page }: Watched): Promise<boolean> => await page.evaluate(() => (globalThis as any).marked === true)

t.test('a week of mixed history, narrow and wide, light and dark', { skip }, async t => {
  const { url } = week
  const watched = await openPage(t, browser, url)
  const { page, complaints } = watched
  await live(watched)
  for (const width of [390, 1440]) {
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.setViewportSize({ width, height: width === 390 ? 844 : 1000 })
      await page.emulateMedia({ colorScheme })
      const look = `${width} px, ${colorScheme}`
      t.strictSame(await axeFindings(page), [], `axe-core finds nothing at ${look}`)
      t.ok(await page.evaluate('document.documentElement.scrollWidth <= innerWidth'), `nothing is cut off at ${look}`)
      await takePicture(page, `week-${width}-${colorScheme}`)
    }
  }
  const states = await page.locator('#week .cell').evaluateAll(cells => cells.map(cell => cell.classList[1]))
  for (const state of ['on-time', 'caught-up', 'failed', 'missing', 'pending', 'unknown']) t.ok(states.includes(state), `the week has a cell that is ${state}`)
  t.ok(states.length > 6 * 24 && states.length <= 7 * 24, 'an hour a cell')
  t.strictSame(complaints, [], 'nothing is complained of')
})

t.test('the page reads without script', { skip }, async t => {
  const { url } = week
  const { page, complaints } = await openPage(t, browser, url, { javaScriptEnabled: false })
  t.match(await page.locator('#now').innerText(), /(Idle|Due)[^]*Last success[^]*UTC[^]*With script enabled/)
  t.equal(await page.locator('#sync').isVisible(), false)
  await page.locator('#week .cell.failed').first().click()
  t.match(await page.locator('#run').innerText(), /Ended as\s+failed[^]*the order service answered 500/)
  await page.getByRole('link', { name: 'Close' }).click()
  await page.getByRole('link', { name: 'Older runs' }).click()
  t.match(await page.locator('#runs').innerText(), 'Older runs')
  t.strictSame(complaints, [])
  await takePicture(page, 'without-script')
})

t.test('Sync now shows progress and then success, and a second click says running', { skip }, async t => {
  const stage = await setStage(t, cluster)
  const [begin, half, end] = [gate(), gate(), gate()]
  const { url } = await serveSync(t, stage, {
    sync: async run => {
      await begin.passed
      run.progress(3_500, 10_000)
      await half.passed
      run.progress(10_000, 10_000)
      await end.passed
      return { stats: { orders: 10_000 } }
    }
  })
  const watched = await openPage(t, browser, url, {}, [409])
  const { page, complaints } = watched
  await live(watched)
  await mark(watched)
  const [button, answer] = [page.getByRole('button', { name: 'Sync now' }), page.locator('#answer')]
  await button.click()
  await answer.filter({ hasText: 'Started.' }).waitFor()
  await page.getByRole('heading', { name: /^Syncing by .*, manual$/ }).waitFor()
  begin.open()
  await page.locator('#count', { hasText: '3,500 of 10,000' }).waitFor()
  t.equal(await page.locator('#bar').evaluate((bar: any) => bar.value / bar.max), 0.35)
  await button.click()
  await answer.filter({ hasText: new RegExp(`Running already, by .*:${process.pid}, since `) }).waitFor()
  await takePicture(page, 'syncing')
  half.open()
  await page.locator('#count', { hasText: '10,000 of 10,000' }).waitFor()
  end.open()
  await answer.filter({ hasText: 'Succeeded after ' }).waitFor()
  await page.getByRole('heading', { name: /^Idle until/ }).waitFor()
  await page.locator('#runs tbody tr', { hasText: 'succeeded' }).filter({ hasText: 'manual' }).filter({ hasText: 'orders 10,000' }).waitFor()
  await page.locator('#week .cell.on-time').waitFor()
  t.ok(await isMarked(watched), 'all without a reload')
  t.strictSame(complaints, [])
})

t.test('a run of another process is seen as it goes, and is what Sync now says', { skip }, async t => {
  const stage = await setStage(t, cluster)
  const api = await startApi(t)
  const other = await startServer(t, { url: cluster.url(), work: { kind: 'steps', url: api.url, steps: 4 }, options: { enabled: false, schema: stage.schema } })
  const { url } = await serveSync(t, stage)
  const watched = await openPage(t, browser, url, {}, [409])
  const { page, complaints } = watched
  await live(watched)
  await mark(watched)
  t.match(await other.call('trigger'), { started: true })
  await page.getByRole('heading', { name: new RegExp(`^Syncing by .*:${other.pid}, for .*, manual$`) }).waitFor()
  for (const done of [1, 2]) {
    (await api.request()).answer()
    await page.locator('#count', { hasText: `${done} of 4` }).waitFor()
  }
  await page.getByRole('button', { name: 'Sync now' }).click()
  await page.locator('#answer', { hasText: new RegExp(`Running already, by .*:${other.pid}, since `) }).waitFor()
  ;(await api.request()).answer()
  ;(await api.request()).answer()
  await page.locator('#answer', { hasText: 'Succeeded after ' }).waitFor()
  await page.locator('#runs tbody tr', { hasText: `:${other.pid}` }).filter({ hasText: 'succeeded' }).waitFor()
  t.ok(await isMarked(watched), 'all without a reload')
  t.strictSame(complaints, [])
})

t.test('markup and script in what a sync has told are text', { skip }, async t => {
  const { url } = await serveWeek(t, evil)
  const watched = await openPage(t, browser, url)
  const { page, complaints } = watched
  page.on('dialog', dialog => {
    complaints.push('a dialog')
    dialog.dismiss()
  })
  await live(watched)
  for (const place of ['.last-error', '#charts-title ~ .charts, [data-live="charts"]', '#runs']) t.match(await page.locator(place).first().textContent(), evil, place)
  await page.locator('#week .cell.failed').first().hover()
  t.match(await page.locator('#detail').textContent(), evil)
  await page.locator('#week .cell.failed').first().click()
  await live(watched)
  t.match(await page.locator('#run').textContent(), evil)
  t.equal(await page.locator('main img, main script, body script').count(), 0)
  t.strictSame(complaints, [])
})

t.test('all of it can be reached and read by keyboard', { skip }, async t => {
  const { url } = week
  const watched = await openPage(t, browser, url)
  const { page, complaints } = watched
  await live(watched)
  const focused = async (): Promise<string> => await page.evaluate("document.activeElement.id + ' ' + document.activeElement.className")
  await page.keyboard.press('Tab')
  t.match(await focused(), 'skip')
  const stops: string[] = []
  for (let stop = 0; stop < 4; stop++) {
    await page.keyboard.press('Tab')
    stops.push(await focused())
  }
  t.match(stops, [/./, /^sync /, /cell/, /./], 'the zone, the button, one cell, the runs')
  const detail = async (): Promise<string> => await page.locator('#detail').innerText()
  const cell = page.locator('#week .cell').last()
  await cell.focus()
  const latest = await detail()
  await page.keyboard.press('ArrowUp')
  const before = await detail()
  t.not(before, latest)
  await page.keyboard.press('ArrowDown')
  t.equal(await detail(), latest, 'a day up and down again')
  await page.keyboard.press('Home')
  await page.keyboard.press('ArrowRight')
  await page.keyboard.press('ArrowLeft')
  t.equal(await page.evaluate('[...document.querySelectorAll("#week .cell")].indexOf(document.activeElement)'), 0)
  await page.locator('#week .cell.caught-up').first().focus()
  t.match(await detail(), /caught up.* by the run of .*, succeeded, took/)
  await page.keyboard.press('Enter')
  await page.locator('#run').waitFor()
  t.match(await focused(), /^run /, 'the run that is shown has the focus')
  t.match(await page.locator('#run').innerText(), /Ended as\s+succeeded/)
  t.strictSame(complaints, [])
})

t.test('times are in the zone of who looks, with UTC at hand, or in UTC', { skip }, async t => {
  const { url } = week
  const watched = await openPage(t, browser, url)
  const { page, complaints } = watched
  await live(watched)
  const began = page.locator('#runs tbody time').first()
  const iso = (await began.getAttribute('datetime'))!
  const local = (zone: string): string => new Date(iso).toLocaleTimeString('en-GB', { timeZone: zone, hourCycle: 'h23' })
  t.match(await began.textContent(), local('Asia/Kolkata'))
  t.equal(await began.getAttribute('title'), `${iso.slice(0, 19).replace('T', ' ')} UTC`)
  await page.getByLabel('UTC', { exact: true }).check()
  t.match(await began.textContent(), `${local('UTC')} UTC`)
  await page.reload()
  await live(watched)
  t.match(await began.textContent(), `${local('UTC')} UTC`, 'which is remembered')
  t.strictSame(complaints, [])
})
