import Fastify from 'fastify'
import fc from 'fast-check'
import t from 'tap'
import { defaultPlace, relative, withSlash } from '../../lib/http/prefix.js'

/** What a router with the routes of one sync answers. */
async function found (name: string, url: string): Promise<boolean> {
  const app = Fastify()
  app.get(`${defaultPlace(name).pattern}/status`, async () => 'ok')
  const { statusCode } = await app.inject(url)
  await app.close()
  return statusCode === 200
}

for (const name of ['order-sync', 'order-sync:42', 'a/b', '주문', 'x*', '*', ':', '::', 'a b', '50%', '%41', 'q?z', 'a#b', 'a(b)+c', "it's", 'a.b-c_d~e', 'a:1%2', '[x]^|{y}\\', 'a:/:b', '"<i>"']) {
  t.test(`the routes of ${name} are found under its percent-encoded name`, async t => {
    t.equal(await found(name, `${defaultPlace(name).path}/status`), true)
  })
}

t.test('any name is found, and no other finds it', async t => {
  const name = fc.string({ minLength: 1, maxLength: 12, unit: 'grapheme' }).filter(text => !/[\p{Cc}\p{Cs}]/u.test(text) && !/^\.\.?$/.test(text))
  await fc.assert(fc.asyncProperty(name, name, async (name, other) => {
    t.equal(await found(name, `${defaultPlace(name).path}/status`), true, name)
    if (name !== other) t.equal(await found(name, `${defaultPlace(other).path}/status`), false, `${name} is not ${other}`)
  }), { numRuns: 60 })
})

t.test('a colon may as well be written as it is', async t => {
  t.equal(await found('order-sync:42', '/hourly-sync/order-sync:42/status'), true)
})

t.test('syncs that differ by what follows a colon have routes side by side', async t => {
  const app = Fastify()
  for (const name of ['order-sync:42', 'order-sync:43', 'order-sync']) app.get(`${defaultPlace(name).pattern}/status`, async () => name)
  for (const name of ['order-sync:42', 'order-sync:43', 'order-sync']) t.equal((await app.inject(`${defaultPlace(name).path}/status`)).body, name)
  await app.close()
})

t.test('names that are the same when encoded or decoded once more have routes side by side', async t => {
  const names = ['a/b', 'a%2Fb', 'a%252Fb', 'a b', 'a%20b', 'a+b', '%41', 'A', 'a:b', 'a::b', 'a%3Ab', 'a:b:c', 'a/b:c', 'a:b/c', ':', '*', '%', '::']
  const app = Fastify()
  for (const [index, name] of names.entries()) app.get(`${defaultPlace(name, names.slice(0, index)).pattern}/status`, async () => name)
  for (const name of names) t.equal((await app.inject(`${defaultPlace(name).path}/status`)).body, name)
  await app.close()
})

t.test('what the parts have to be', async t => {
  t.strictSame(defaultPlace('a:b/*c').parts, { part1: ':', part2: '/*' })
  t.strictSame(defaultPlace('a:b/*c', ['a/b:c', 'a:b', 'a+b+c']).parts, { part1: ':', empty1: '', empty2: '', part2: '/*' })
  t.strictSame(defaultPlace('order-sync', ['order:sync']).parts, {})
})

t.test('a link from one page to another', async t => {
  t.equal(relative('/api/hourly-sync/a', '/api/hourly-sync/b'), './../b/')
  t.equal(relative('/a', '/x/y'), './../x/y/')
  t.equal(relative('/hourly-sync/a', '/hourly-sync/a/b'), './b/')
  t.equal(relative('', '/b'), './b/')
})

t.test('a folder without its slash is sent to the one with it, wherever a proxy has put it', async t => {
  t.equal(withSlash('/hourly-sync/a'), './a/')
  t.equal(withSlash('/hourly-sync/a%3A1?run=1&x=?'), './a%3A1/?run=1&x=?')
  t.equal(withSlash('//evil.example'), './evil.example/')
  t.equal(withSlash('/hourly-sync/a/'), null)
  t.equal(withSlash('/hourly-sync/a/?run=1'), null)
})
