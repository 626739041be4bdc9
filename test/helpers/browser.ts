import { existsSync, mkdirSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type Browser, type BrowserContextOptions, chromium, type Page } from 'playwright-core'
import type { Test } from 'tap'

const program = process.env.CHROMIUM ?? '/usr/bin/chromium'

/** Given to `skip` of each test, so that the report names those that could not be made. */
export const noBrowser = existsSync(program) ? false : `there is no ${program}`

/** Written by the tests, for people; git ignores it. */
const pictures = fileURLToPath(new URL('../screenshots', import.meta.url))

/** The real thing, without what it would like to ask the world. Gone with the test. */
export async function launchBrowser (t: Pick<Test, 'teardown'>): Promise<Browser> {
  const browser = await chromium.launch({
    executablePath: program,
    args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync']
  })
  t.teardown(async () => await browser.close())
  return browser
}

/** A page, and all that it complains of. */
export interface Watched {
  page: Page
  /** Errors of the console and of scripts, violations of the content security policy, requests to other hosts, answers that are errors. */
  complaints: string[]
}

/** @param allowed - statuses of error that the test wants to see */
export async function openPage (t: Pick<Test, 'teardown'>, browser: Browser, url: string, options: BrowserContextOptions = {}, allowed: number[] = []): Promise<Watched> {
  const context = await browser.newContext({ viewport: { width: 1440, height: 1000 }, timezoneId: 'Asia/Kolkata', ...options })
  t.teardown(async () => await context.close())
  const page = await context.newPage()
  const complaints: string[] = []
  const { host } = new URL(url)
  page.on('console', message => {
    const expected = allowed.some(status => message.text().includes(`status of ${status} `))
    if (['error', 'warning'].includes(message.type()) && !expected) complaints.push(`console: ${message.text()}`)
  })
  page.on('pageerror', error => complaints.push(`script: ${error.message}`))
  page.on('request', request => { if (new URL(request.url()).host !== host) complaints.push(`request to ${request.url()}`) })
  page.on('response', response => { if (response.status() >= 400 && !allowed.includes(response.status())) complaints.push(`${response.status()} of ${response.url()}`) })
  await page.exposeFunction('reportViolation', (text: string) => complaints.push(`policy: ${text}`))
  await page.addInitScript("addEventListener('securitypolicyviolation', event => reportViolation(event.violatedDirective + ' ' + event.blockedURI))")
  await page.goto(url)
  return { page, complaints }
}

/** The whole page as a picture in `test/screenshots/`. */
export async function takePicture (page: Page, name: string): Promise<void> {
  mkdirSync(pictures, { recursive: true })
  await page.screenshot({ path: join(pictures, `${name}.png`), fullPage: true, animations: 'disabled' })
}

const axe = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')

/** What axe-core finds wrong, by its rules and their places; the policy of the page lets a debugger in. */
export async function axeFindings (page: Page): Promise<string[]> {
  await page.evaluate(axe)
  const found = await page.evaluate(async () => await (globalThis as any).axe.run({ resultTypes: ['violations'] }))
  return found.violations.flatMap((violation: any) => violation.nodes.map((node: any) => `${violation.id} (${violation.impact}): ${node.target.join(' ')}: ${node.failureSummary}`))
}
