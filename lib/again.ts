const TRIES = 5

/**
 * Sends a statement that is a transaction of its own, and sends it again when the server could not serialize it with another's (SQLSTATE 40001):
 * hosts set `default_transaction_isolation`, and nothing of the statement has stayed then.
 *
 * @param send - sends it
 * @throws what the server says at last
 * @see https://www.postgresql.org/docs/current/mvcc-serialization-failure-handling.html
 */
export async function again<T> (send: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await send()
    } catch (error) {
      if (tries === TRIES || (error as { code?: unknown } | null)?.code !== '40001') throw error
    }
  }
}
