import { createError } from '@fastify/error'

/** An option has a value the plugin cannot use. Thrown while registering. */
export const FST_HOURLY_SYNC_INVALID_OPTION = createError<[string, string, string]>(
  'FST_HOURLY_SYNC_INVALID_OPTION', "option '%s' should be %s, instead got %s", 500, TypeError)

/** Two syncs of one app would share a lock. Thrown while registering. */
export const FST_HOURLY_SYNC_DUPLICATE = createError<[string, string]>(
  'FST_HOURLY_SYNC_DUPLICATE', "sync '%s' has the lock of sync '%s', which is registered already: names and lock names are unique in an app")

/** Routes were asked for without a hook that guards them. Thrown while registering. */
export const FST_HOURLY_SYNC_ROUTES_UNGUARDED = createError<[string]>(
  'FST_HOURLY_SYNC_ROUTES_UNGUARDED', "the routes of sync '%s' let anyone start runs and read errors: give 'routes' a hook as 'onRequest' or 'preHandler', or say 'public: true'")

/** There is no pool to work with. Rejects `ready()`. */
export const FST_HOURLY_SYNC_NO_POOL = createError<[string, string]>(
  'FST_HOURLY_SYNC_NO_POOL', "sync '%s' found no pg.Pool %s")

/** The pool makes clients of pg-native, which do not show what the lock session needs. Rejects `ready()`. */
export const FST_HOURLY_SYNC_NATIVE = createError<[string]>(
  'FST_HOURLY_SYNC_NATIVE', "sync '%s' cannot use pg's native client: its sessions show neither their backend nor their transaction; use the JavaScript client")

/** A client of a pg that is too old for the lock session. Outcome `refused`. */
export const FST_HOURLY_SYNC_OUTDATED_PG = createError(
  'FST_HOURLY_SYNC_OUTDATED_PG', 'pg 8.21 or later is needed: the clients of this one do not tell whether a transaction is open')

/** The option `lock` leads elsewhere. Outcome `refused`. */
export const FST_HOURLY_SYNC_OTHER_DATABASE = createError(
  'FST_HOURLY_SYNC_OTHER_DATABASE', "the option 'lock' leads to another database, or another server, than the pool: what is locked there is not seen here")

/** No sync of that name in this app. */
export const FST_HOURLY_SYNC_UNKNOWN = createError<[string, string]>(
  'FST_HOURLY_SYNC_UNKNOWN', "no sync is named '%s', there is %s", 500, TypeError)

/** The app has several syncs and the call did not say which. */
export const FST_HOURLY_SYNC_NAME_REQUIRED = createError<[string]>(
  'FST_HOURLY_SYNC_NAME_REQUIRED', 'this app has several syncs, name one of %s', 500, TypeError)

/** A call on `run` from inside `run.transaction`: it would wait for itself. Use the `tx` that was handed in. */
export const FST_HOURLY_SYNC_NESTED = createError<[string]>(
  'FST_HOURLY_SYNC_NESTED', "run.%s was called inside run.transaction, where only the transaction's own 'tx' can be used")

/** A call on `run` after the run had ended, or one that was under way when it did. */
export const FST_HOURLY_SYNC_RUN_ENDED = createError<[string, { cause: unknown }?]>(
  'FST_HOURLY_SYNC_RUN_ENDED', 'run.%s was not done: the run has ended')

/** A call on `tx` after its transaction had ended. */
export const FST_HOURLY_SYNC_TRANSACTION_ENDED = createError<[string]>(
  'FST_HOURLY_SYNC_TRANSACTION_ENDED', 'tx.%s was called after its transaction had ended')

/** The sync left a transaction open (`begin` without `commit`). What it wrote in it was rolled back and the run failed. */
export const FST_HOURLY_SYNC_OPEN_TRANSACTION = createError<[string]>(
  'FST_HOURLY_SYNC_OPEN_TRANSACTION', 'a transaction was left open on the session of the run (%s); it is rolled back, use run.transaction')

/** PostgreSQL answered `commit` with a rollback, because a statement in the transaction had failed. */
export const FST_HOURLY_SYNC_ROLLED_BACK = createError(
  'FST_HOURLY_SYNC_ROLLED_BACK', 'the transaction was rolled back at commit: a statement in it had failed and its error was not passed on')

/** Something that is not a query text or a query config was handed to the session. */
export const FST_HOURLY_SYNC_INVALID_QUERY = createError<[string]>(
  'FST_HOURLY_SYNC_INVALID_QUERY', 'a query should be a text or an object with a text, instead got %s (cursors and streams hold the session and cannot be used)', 500, TypeError)

/** The session that held the lock is gone, or holds it no longer. `signal.reason` of the run. */
export const FST_HOURLY_SYNC_LOCK_LOST = createError<[string, { cause: unknown }?]>(
  'FST_HOURLY_SYNC_LOCK_LOST', 'the lock of the run is lost: %s')

/** The run took longer than `timeout`. `signal.reason` of the run. */
export const FST_HOURLY_SYNC_TIMEOUT = createError<[number]>(
  'FST_HOURLY_SYNC_TIMEOUT', 'the run took longer than its timeout of %d ms')

/** The server is closing. `signal.reason` of the run; of a question to the database, that it was called off. */
export const FST_HOURLY_SYNC_CLOSING = createError(
  'FST_HOURLY_SYNC_CLOSING', 'the server is closing')

/** No usable connection within the limit. Outcome `unavailable`. */
export const FST_HOURLY_SYNC_UNAVAILABLE = createError<[string, number]>(
  'FST_HOURLY_SYNC_UNAVAILABLE', '%s was not done within %d ms')

/** A statement arrived at another backend than the one that holds the lock: a transaction pooler stands between. */
export const FST_HOURLY_SYNC_POOLED = createError<[string, { cause: unknown }?]>(
  'FST_HOURLY_SYNC_POOLED', "a transaction pooler stands between this process and PostgreSQL (%s), session locks do not hold through it: give a direct connection in the option 'lock'")

/** The database takes no writes: it is a replica, or its transactions are read-only by default. Outcome `refused`. */
export const FST_HOURLY_SYNC_READ_ONLY = createError<[string, { cause: unknown }?]>(
  'FST_HOURLY_SYNC_READ_ONLY', 'the database takes no writes: %s')

/** The tables are missing or older than the code, and the plugin may not or cannot make them. Outcome `refused`. */
export const FST_HOURLY_SYNC_SCHEMA = createError<[string, string, number, string, { cause: unknown }?]>(
  'FST_HOURLY_SYNC_SCHEMA', "the tables in schema '%s' are %s, version %d is needed and %s: run the SQL of migrationSql() as a role that may")

/** Something else has the name of a table of the plugin, which touches nothing of it. Outcome `refused`. */
export const FST_HOURLY_SYNC_SCHEMA_TAKEN = createError<[string, string, { cause: unknown }?]>(
  'FST_HOURLY_SYNC_SCHEMA_TAKEN', "schema '%s' has %s, which is not this plugin's and is left as it is: give the plugin a schema of its own in the option 'schema'")

/** The role lacks a right that the tables of the plugin need. Outcome `refused`. */
export const FST_HOURLY_SYNC_RIGHTS = createError<[string, string, { cause: unknown }?]>(
  'FST_HOURLY_SYNC_RIGHTS', "the role lacks rights on schema '%s': %s")

/** What was thrown was not an error: by `sync`, or by a hook of the host. */
export const FST_HOURLY_SYNC_NOT_AN_ERROR = createError<[string]>(
  'FST_HOURLY_SYNC_NOT_AN_ERROR', '%s was thrown, which is not an error')

/** What `sync` returned is not a SyncResult, or cannot be stored as JSON. The run failed. */
export const FST_HOURLY_SYNC_INVALID_RESULT = createError<[string, string]>(
  'FST_HOURLY_SYNC_INVALID_RESULT', "a sync should resolve with nothing or { cursor?, advance?: false, stats? }, '%s' was %s", 500, TypeError)

/** The server does not take the end of a run as it is: its result, or what it says in an encoding that the database has not. The run failed. */
export const FST_HOURLY_SYNC_NOT_RECORDED = createError<[string, { cause: unknown }?]>(
  'FST_HOURLY_SYNC_NOT_RECORDED', 'the database does not take what the run came to: %s')

/** A statement of the run failed and nobody looked at its promise. The run failed. */
export const FST_HOURLY_SYNC_UNOBSERVED = createError<[string, { cause: unknown }?]>(
  'FST_HOURLY_SYNC_UNOBSERVED', 'a call of run.%s failed and nobody awaited it')

/** A request of another site's page to start a run. Answered with 403. */
export const FST_HOURLY_SYNC_CROSS_SITE = createError(
  'FST_HOURLY_SYNC_CROSS_SITE', 'a run cannot be started from the page of another site', 403)

/** A request to start a run that is not `application/json`, as any other site's form could send it. Answered with 415. */
export const FST_HOURLY_SYNC_NOT_JSON = createError(
  'FST_HOURLY_SYNC_NOT_JSON', 'a request that starts a run has to be application/json', 415)

/** No run of this sync has that id. Answered with 404. */
export const FST_HOURLY_SYNC_NO_RUN = createError(
  'FST_HOURLY_SYNC_NO_RUN', 'no run of this sync has that id', 404)

/** As many clients as may listen to the events of this process do. Answered with 503. */
export const FST_HOURLY_SYNC_LISTENERS = createError<[number]>(
  'FST_HOURLY_SYNC_LISTENERS', '%d clients listen to the events of this process, and no more may', 503)

/** A question to the database got no answer. Answered with 503. */
export const FST_HOURLY_SYNC_UNANSWERED = createError<[string, { cause: unknown }?]>(
  'FST_HOURLY_SYNC_UNANSWERED', 'the database could not be asked: %s', 503)

// of run.upsert, beside what throws them
export * from './upsert/errors.js'
