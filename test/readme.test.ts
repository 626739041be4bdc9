import { readFileSync } from 'node:fs'
import t from 'tap'
import { optionNames } from '../lib/options.js'

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
