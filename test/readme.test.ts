import { readFileSync } from 'node:fs'
import Fastify from 'fastify'
import t from 'tap'
import hourlySync from '../index.js'
import { optionNames } from '../lib/options.js'
import { setStage } from './helpers/host.js'
import { startPostgres } from './helpers/postgres.js'

const read = (path: string): string => readFileSync(new URL(`../${path}`, import.meta.url), 'utf8')
const readme = read('README.md')

t.test('an example that names its file is that file', async t => {
  const examples = [...readme.matchAll(/<!-- example: (\S+) -->\n```ts\n([^]*?)```/g)]
  t.not(examples.length, 0)
  for (const [, path, text] of examples) t.equal(text, read(path!), path!)
})

t.test('the table of options has each option, and no other', async t => {
  const [, table] = /^## Options\n[^]*?^\| option \| default \| meaning \|\n\|.*\n((?:\|.*\n)+)/m.exec(readme)!
  const named = table!.trimEnd().split('\n').flatMap(row => [...row.split('|')[1]!.matchAll(/`(\w+)`/g)].map(([, name]) => name!))
  t.strictSame(named.sort(), [...optionNames].sort())
})

t.test('each part of the file names itself once', async t => {
  const heads = [...readme.matchAll(/^#{1,3} (.+)$/gm)].map(([, head]) => head)
  t.strictSame(heads, [...new Set(heads)])
})

t.test('what "Moving on" calls from elsewhere runs once and ends by itself', async t => {
  const [, text] = /^## Moving on\n[^]*?```ts\n([^]*?)```/m.exec(readme)!
  const stage = await setStage(t, await startPostgres(t))
  const closed: unknown[] = []
  let isClosed = 0
  const build = async (): Promise<unknown> => {
    const app = Fastify()
    app.addHook('onClose', async () => { isClosed++ })
    return await app.register(hourlySync, { name: 'order-sync', schema: stage.schema, pool: stage.pool(), enabled: false, sync: () => {} })
  }
  const AsyncFunction = (async () => {}).constructor as new (...parts: string[]) => (build: unknown, process: { exitCode?: number }) => Promise<void>
  const script = new AsyncFunction('build', 'process', text!)
  for (let time = 1; time <= 2; time++) {
    const worker: { exitCode?: number } = {}
    await script(build, worker)
    closed.push([worker.exitCode, isClosed])
  }
  t.strictSame(closed, [[0, 1], [0, 2]], 'succeeded, then not due')
})
