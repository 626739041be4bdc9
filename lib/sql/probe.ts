/** SQL that asks what a connection really is. */

/** -> backend. */
export const backendPid = 'select pg_backend_pid() as backend'

/** `$1` seconds. Keeps a backend busy. */
export const busyFor = 'select pg_backend_pid() as backend from pg_sleep($1::double precision)'

/** -> primary, readonly: whether what is sent without a transaction of its own may write. */
export const readOnly = "select not pg_is_in_recovery() as primary, current_setting('transaction_read_only')::boolean as readonly"

/** `$1` schema name, quoted -> missing, a row for each right on our tables that the role lacks. */
export const missingRights = `select rights.name || ' on ' || tables.name as missing
  from (values ('sync'), ('run')) as tables (name)
  cross join (values ('select'), ('insert'), ('update'), ('delete')) as rights (name)
  where (tables.name, rights.name) <> ('sync', 'delete')
    and not has_table_privilege($1::text || '.' || tables.name, rights.name)`

/** A lock that only a probe asks for. `$1` lock key. */
export const probeLock = 'select pg_try_advisory_lock($1::bigint)'
