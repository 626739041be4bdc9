/**
 * Sends a statement that is a transaction of its own, and sends it again when the server could not serialize it with another's (SQLSTATE 40001):
 * hosts set `default_transaction_isolation`, and nothing of the statement has stayed then.
 *
 * @param send - sends it; sees itself to what outlives a rollback, as an advisory lock of the session does
 * @param tries - how often at most
 * @throws what the server says at last
 * @see https://www.postgresql.org/docs/current/mvcc-serialization-failure-handling.html
 */
export async function again<T> (send: () => Promise<T>, tries = 5): Promise<T> {
  try {
    return await send()
  } catch (error) {
    if (tries === 1 || (error as { code?: unknown } | null)?.code !== '40001') throw error
    return await again(send, tries - 1)
  }
}
