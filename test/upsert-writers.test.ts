import t from 'tap'
import { startPostgres } from './helpers/postgres.js'
import { openUpsert, type Bench } from './helpers/upsert.js'
import { createUpsert, nestedContext } from '../lib/upsert.js'

t.setTimeout(240_000)
const cluster = await startPostgres(t, { deadlock_timeout: '2s' })

interface Scope { teardown: (fn: () => unknown) => void }
let tables = 0
const table = async (definition: string): Promise<string> => {
  const name = `r${++tables}`
  await cluster.query(`create table ${name} (${definition})`)
  return name
}
const open = async (t: Scope): Promise<Bench> => await openUpsert(t, cluster.url())
const isBatch = (text: string): boolean => text.includes('incoming$')

/** Resolves once some session waits for a lock of another. */
async function someoneWaits (): Promise<void> {
  for (;;) {
    const { rowCount } = await cluster.query("select 1 from pg_stat_activity where wait_event_type = 'Lock'")
    if (rowCount !== 0) return
    await new Promise(resolve => setTimeout(resolve, 5)) // the database tells nobody that a session waits
  }
}
const shuffled = <T>(list: readonly T[]): T[] => list.map(value => ({ value, at: Math.random() })).sort((a, b) => a.at - b.at).map(({ value }) => value)

t.test('upserts of ours never deadlock each other, and never violate the unique key', async t => {
  const r = await table('a text, b int, v int, primary key (b, a)')
  const sessions = await Promise.all(Array.from({ length: 4 }, async () => await open(t)))
  const keys = Array.from({ length: 60 }, (_, i) => ({ a: `k${i % 7}`, b: i }))
  let statements = 0
  for (const session of sessions) session.before.hook = ({ text }) => { if (isBatch(text)) statements++ }
  let rounds = 0
  await Promise.all(sessions.map(async ({ upsert, query }, nth) => {
    for (let round = 0; round < 30; round++) {
      // in the order of the key, as theirs: a host that locks in another is below
      if (nth === 0 && round % 5 === 0) await query(`delete from ${r} t using (select a, b from ${r} where b % 3 = 0 order by b, a for update) l where t.b = l.b and t.a = l.a`)
      const counts = await upsert(r, shuffled(keys).map((key, i) => ({ ...key, v: round * 10 + nth + i % 2 })), {
        key: nth % 2 === 0 ? ['a', 'b'] : ['b', 'a'], batch: 30
      })
      if (counts.inserted + counts.updated + counts.unchanged + counts.stale === 60) rounds++
    }
  }))
  t.equal(rounds, 120)
  t.equal(statements, 240, 'none had to be sent again')
  t.equal((await cluster.query(`select 1 from ${r}`)).rowCount, 60)
})

/** A host transaction that holds key 2 and then asks for key 1, while a batch that holds key 1 waits for key 2. */
async function reversed (t: Scope, r: string): Promise<{ release: () => Promise<void>, hasBoth: () => Promise<void> }> {
  const host = await open(t)
  await host.query("set deadlock_timeout = '30s'") // whoever looks first is the victim, and it is to be the upsert
  await host.query('begin')
  await host.query(`update ${r} set v = v + 1 where id = 2`)
  let reply: Promise<unknown> | undefined
  const waiting = someoneWaits().then(() => { reply = host.query(`update ${r} set v = v + 1 where id = 1`) })
  const hasBoth = async (): Promise<void> => {
    await waiting
    await reply
  }
  return {
    hasBoth,
    release: async () => {
      await hasBoth()
      await host.query('commit')
    }
  }
}

t.test('a batch that is the victim of a host writer in the reverse order is sent again', async t => {
  const r = await table('id int primary key, v int')
  await cluster.query(`insert into ${r} values (1, 0), (2, 0)`)
  const session = await open(t)
  let statements = 0
  const { release, hasBoth } = await reversed(t, r)
  session.before.hook = async ({ text }) => {
    if (isBatch(text) && ++statements === 2) await hasBoth() // or it might take the row before the other has woken, and lose again
  }
  const [counts] = await Promise.all([session.upsert(r, [{ id: 2, v: 9 }, { id: 1, v: 9 }], { key: ['id'] }), release()])
  t.same(counts, { inserted: 0, updated: 2, unchanged: 0, stale: 0 })
  t.equal(statements, 2)
  t.same((await cluster.query(`select v from ${r}`)).rows, [{ v: 9 }, { v: 9 }])
})

t.test('inside of a transaction a deadlock is the host\'s to retry', async t => {
  const r = await table('id int primary key, v int')
  await cluster.query(`insert into ${r} values (1, 0), (2, 0)`)
  const session = await open(t)
  await session.query('begin')
  const upsert = createUpsert(nestedContext({ query: async (text, values) => await session.query(text, values) }))
  const { release } = await reversed(t, r)
  await Promise.all([t.rejects(upsert(r, [{ id: 1, v: 9 }, { id: 2, v: 9 }], { key: ['id'] }), { code: '40P01' }), release()])
  await session.query('rollback')
})

t.test('a deadlock and a serialization failure are retried three times, per batch, and not after an abort', async t => {
  const r = await table('id int primary key, v int')
  for (const code of ['40P01', '40001']) {
    const { upsert, before, context, query } = await open(t)
    await query(`truncate ${r}`)
    let statements = 0
    let failures = 3
    before.hook = ({ text }) => {
      if (!isBatch(text)) return
      statements++
      if (failures-- > 0) throw Object.assign(new Error('transient'), { code })
    }
    t.same(await upsert(r, [{ id: 1, v: 1 }], { key: ['id'] }), { inserted: 1, updated: 0, unchanged: 0, stale: 0 })
    t.equal(statements, 4)

    failures = 4
    statements = 0
    await t.rejects(upsert(r, [{ id: 2, v: 1 }], { key: ['id'] }), { code })
    t.equal(statements, 4)

    // each batch has its own three
    await query(`truncate ${r}`)
    statements = 0
    before.hook = ({ text }) => {
      if (isBatch(text) && ++statements % 4 !== 0) throw Object.assign(new Error('transient'), { code })
    }
    t.same(await upsert(r, [1, 2, 3].map(id => ({ id, v: 1 })), { key: ['id'], batch: 1 }), { inserted: 3, updated: 0, unchanged: 0, stale: 0 })
    t.equal(statements, 12)

    const controller = new AbortController()
    context.signal = controller.signal
    t.same(await upsert(r, [{ id: 3, v: 2 }, { id: 3, v: 2 }], { key: ['id'] }), { inserted: 0, updated: 1, unchanged: 1, stale: 0 })
    statements = 0
    controller.abort()
    await t.rejects(upsert(r, [{ id: 4, v: 1 }], { key: ['id'] }), { code })
    t.equal(statements, 1)
    before.hook = () => {}
    t.same(await upsert(r, [{ id: 4, v: 1 }], { key: ['id'] }), { inserted: 1, updated: 0, unchanged: 0, stale: 0 }, 'the last page may be saved after an abort')
  }
})

t.test('under serializable isolation a concurrent writer leads to another try, not to an error', async t => {
  const r = await table('id int primary key, v int')
  const session = await open(t)
  await session.query("set default_transaction_isolation = 'serializable'")
  const host = await open(t)
  await host.query('begin')
  await host.query(`insert into ${r} values (1, 0)`)
  const saved = session.upsert(r, [{ id: 1, v: 1 }], { key: ['id'] })
  await someoneWaits()
  await host.query('commit')
  t.same(await saved, { inserted: 0, updated: 1, unchanged: 0, stale: 0 })
})

t.test('another writer between the filter and the conflict clause is never overwritten by older or equal rows', async t => {
  for (const partitioned of [false, true]) {
    const r = await table('id int primary key, v int, at int')
    const p = `p${tables}`
    await cluster.query(`create table ${p} (id int primary key, v int, at int) partition by range (id)`)
    await cluster.query(`create table ${p}_1 partition of ${p} for values from (0) to (100)`)
    const name = partitioned ? p : r
    const { upsert } = await open(t)
    const race = async (stored: string, row: object, options: object): Promise<unknown> => {
      await cluster.query(`truncate ${name}`)
      const host = await open(t)
      await host.query('begin')
      await host.query(`insert into ${name} values ${stored}`)
      const saved = upsert(name, [row, { id: 50, v: 0, at: 0 }], { key: ['id'], ...options })
      await someoneWaits()
      await host.query('commit')
      await host.client.end()
      const counts = await saved
      return [counts, (await cluster.query(`select v from ${name} where id = 1`)).rows[0].v]
    }
    const row = { id: 1, v: 5, at: 5 }
    t.same(await race('(1, 5, 5)', row, {}), [{ inserted: 1, updated: 0, unchanged: 1, stale: 0 }, 5], 'the same from both')
    t.same(await race('(1, 9, 9)', row, { newerBy: 'at' }), [{ inserted: 1, updated: 0, unchanged: 0, stale: 1 }, 9], 'a newer one')
    t.same(await race('(1, 5, 5)', row, { newerBy: 'at' }), [{ inserted: 1, updated: 0, unchanged: 1, stale: 0 }, 5], 'the same, with versions')
    const [counts, v] = await race('(1, 3, 3)', row, { newerBy: 'at' }) as [object, number]
    t.equal(v, 5, 'an older one is overwritten')
    // without xmax a row that came between counts as inserted
    t.same(counts, partitioned ? { inserted: 2, updated: 0, unchanged: 0, stale: 0 } : { inserted: 1, updated: 1, unchanged: 0, stale: 0 })
  }
})

t.test('a hundred concurrent inserts of the same new keys: one insert each, no error', async t => {
  const r = await table('id int primary key, v int')
  const sessions = await Promise.all(Array.from({ length: 10 }, async () => await open(t)))
  let inserted = 0
  for (let round = 0; round < 10; round++) {
    const all = await Promise.all(sessions.map(async ({ upsert }) =>
      await upsert(r, shuffled(Array.from({ length: 20 }, (_, i) => ({ id: round * 20 + i, v: 1 }))), { key: ['id'] })))
    for (const counts of all) inserted += counts.inserted
  }
  t.equal(inserted, 200)
})
