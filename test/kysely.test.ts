import { Kysely, PostgresDialect, sql, type Generated, type PostgresPoolClient } from 'kysely'
import t from 'tap'
import type { ClientFacade, SyncRun } from '../lib/types.js'
import { setStage } from './helpers/host.js'
import { startPostgres } from './helpers/postgres.js'

t.setTimeout(180_000)
const cluster = await startPostgres(t)

interface Database { order: { id: number, status: string, tags: string[] | null, backend: Generated<number> } }

/** As the README shows it. */
function kyselyOf (client: ClientFacade): Kysely<Database> {
  const only = { query: client.query, release () {} } as unknown as PostgresPoolClient
  return new Kysely({ dialect: new PostgresDialect({ pool: { connect: async () => only, end: async () => {} } }) })
}

type Test = Parameters<typeof setStage>[0]

/** One run whose sync is given the builder, and what it left. */
async function runs (t: Test, sync: (db: Kysely<Database>, run: SyncRun) => Promise<unknown>): Promise<{ outcome: any, rows: any[] }> {
  const stage = await setStage(t, cluster)
  await stage.query(`create schema ${stage.schema}_data; create table ${stage.schema}_data.order (id int primary key, status text, tags text[], backend int default pg_backend_pid())`)
  const host = await stage.host({ sync: async run => { await sync(kyselyOf(run.client).withSchema(`${stage.schema}_data`), run) } })
  const outcome = await host.sync.runOnce()
  return { outcome, rows: (await stage.query(`select * from ${stage.schema}_data.order order by id`)).rows }
}

t.test('Kysely reads and writes through the session that holds the lock', async t => {
  let backend: number | undefined
  const { outcome, rows } = await runs(t, async (db, run) => {
    backend = (await run.query('select pg_backend_pid() as pid')).rows[0].pid
    await db.insertInto('order').values([{ id: 1, status: 'open', tags: ['a'] }, { id: 2, status: 'open', tags: null }]).execute()
    const { numUpdatedRows } = await db.updateTable('order').set({ status: 'paid' }).where('id', '=', 1).executeTakeFirstOrThrow()
    t.equal(numUpdatedRows, 1n)
    t.strictSame(await db.selectFrom('order').select(['id', 'status', 'tags']).orderBy('id').execute(),
      [{ id: 1, status: 'paid', tags: ['a'] }, { id: 2, status: 'open', tags: null }])
  })
  t.match(outcome, { outcome: 'succeeded' })
  t.strictSame(rows.map(row => row.backend), [backend, backend])
})

t.test('a transaction of Kysely is committed or rolled back', async t => {
  const { outcome, rows } = await runs(t, async db => {
    await db.transaction().execute(async tx => { await tx.insertInto('order').values({ id: 1, status: 'open', tags: null }).execute() })
    await t.rejects(db.transaction().execute(async tx => {
      await tx.insertInto('order').values({ id: 2, status: 'open', tags: null }).execute()
      throw new Error('no')
    }), { message: 'no' })
  })
  t.match(outcome, { outcome: 'succeeded' })
  t.strictSame(rows.map(({ id }) => id), [1])
})

t.test('queries of Kysely sent at once wait for each other, beside those of the run', async t => {
  const { outcome, rows } = await runs(t, async (db, run) => {
    await Promise.all(Array.from({ length: 10 }, async (_, id) => {
      await db.insertInto('order').values({ id, status: 'open', tags: null }).execute()
      await run.query('select 1')
    }))
  })
  t.match(outcome, { outcome: 'succeeded' })
  t.equal(rows.length, 10)
})

t.test('an error of the database arrives as it is, and the run goes on', async t => {
  const { outcome } = await runs(t, async db => { await t.rejects(sql`select nothing`.execute(db), { code: '42703' }) })
  t.match(outcome, { outcome: 'succeeded' })
})

t.test('after the lock is lost Kysely can write nothing', async t => {
  const { outcome, rows } = await runs(t, async (db, run) => {
    const lost = new Promise(resolve => run.signal.addEventListener('abort', resolve))
    await cluster.query('select pg_terminate_backend($1)', [(await run.query('select pg_backend_pid() as pid')).rows[0].pid])
    await lost
    await t.rejects(db.insertInto('order').values({ id: 1, status: 'open', tags: null }).execute(), { code: 'FST_HOURLY_SYNC_LOCK_LOST' })
  })
  t.match(outcome, { outcome: 'lock-lost' })
  t.strictSame(rows, [])
})
