/**
 * A connection that breaks emits 'error', and an 'error' that nobody listens to ends the process. The pool listens while
 * a connection lies idle, and whoever holds one listens while it works; in between is the moment when the connection is
 * handed over. A server that stops says so in the same packet as its last answer, which is exactly then.
 */
import type { Pool, PoolClient } from 'pg';

/** Those that are listened to already: a program may make many loops of one pool. */
const guarded = new WeakSet<Pool | PoolClient>();
const ignore = () => {};

export function guardPool(pool: Pool): void {
  if (guarded.has(pool)) return;
  guarded.add(pool);
  pool.on('error', ignore);
  pool.on('acquire', (client) => {
    if (guarded.has(client)) return;
    guarded.add(client);
    client.on('error', ignore);
  });
}
