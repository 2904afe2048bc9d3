/**
 * Database sessions with deadlines. The pool may be exhausted, the database unreachable, a connection silently dead: a
 * caller waits for a session and for a reply no longer than its timeouts. A `SessionError` is the fault of the session;
 * any other error belongs to the statement, or to the handler whose transaction it is.
 */
import type { Pool, PoolClient, QueryConfig, QueryResult, QueryResultRow } from 'pg';
import type { Clock } from '../clock.js';
import { isInstance, messageOf } from '../errors.js';
import { resetSession } from './transaction-client.js';

/** Has no `cause`: the message contains it, and a log would print it twice. */
export class SessionError extends Error {
  override readonly name = 'SessionError';
}

const maxConflictTries = 20;
const maxConflictPauseMs = 1000;

export interface SessionsOptions {
  pool: Pool;
  clock: Clock;
  /** Maximum wait for a free connection. Default: 5 s. */
  connectTimeoutMs?: number;
  /** Maximum wait for the reply to one of our statements. Default: 30 s. */
  queryTimeoutMs?: number;
  observe?: (outcome: 'ok' | 'failed') => void;
}

/** A `Sessions`, or a pool or client where no deadline is needed. */
export interface Queryable {
  query<R extends QueryResultRow>(text: string, values?: unknown[]): Promise<QueryResult<R>>;
}

export class Sessions implements Queryable {
  /** Connections with session state of a handler: closed instead of reused. */
  readonly #spoiled = new WeakSet<PoolClient>();
  readonly pool: Pool;
  readonly clock: Clock;
  readonly queryTimeoutMs: number;
  readonly #connectTimeoutMs: number;
  readonly #observe: SessionsOptions['observe'];

  constructor({ pool, clock, connectTimeoutMs = 5000, queryTimeoutMs = 30_000, observe }: SessionsOptions) {
    this.pool = pool;
    this.clock = clock;
    this.queryTimeoutMs = queryTimeoutMs;
    this.#connectTimeoutMs = connectTimeoutMs;
    this.#observe = observe;
    guardPool(pool);
  }

  /**
   * Runs one of our statements. If it fails because of the state of its session (a search path, a role, a timeout that
   * other code has set), the connection is closed, so that the next try gets a new one. Conflicts are retried. `config`: more
   * options of the driver.
   */
  async query<R extends QueryResultRow>(
    text: string,
    values: unknown[] = [],
    config?: (client: PoolClient) => Partial<QueryConfig>,
  ): Promise<QueryResult<R>> {
    return this.#retryConflicts(() =>
      this.use(async (client) => {
        try {
          return await this.queryOn<R>(client, text, values, config?.(client));
        } catch (error) {
          // The driver rejects before the database has rolled back. Without this wait another session would skip the rows that
          // are still locked.
          if (!isSessionFault(error)) await this.queryOn(client, 'SELECT').catch(() => this.spoil(client));
          if (mayBeSessionState(error)) this.spoil(client);
          throw error;
        }
      }),
    );
  }

  /** Marks the connection to be closed after this use. */
  spoil(client: PoolClient): void {
    this.#spoiled.add(client);
  }

  isSpoiled(client: PoolClient): boolean {
    return this.#spoiled.has(client);
  }

  /**
   * Runs `work` in a transaction, at the database's default isolation level unless one is given. After a conflict with
   * another transaction (a serialization failure, a deadlock) it rolls back and runs `work` again, at most 20 times.
   */
  async transaction<T>(
    work: (client: PoolClient) => Promise<T>,
    level?: 'READ COMMITTED' | 'REPEATABLE READ',
  ): Promise<T> {
    return this.#retryConflicts(() =>
      this.use(async (client) => {
        await this.queryOn(client, level ? `BEGIN ISOLATION LEVEL ${level}` : 'BEGIN');
        try {
          const result = await work(client);
          await this.queryOn(client, 'COMMIT');
          return result;
        } catch (error) {
          if (isInstance(error, SessionError)) throw error;
          // If this fails, `use` closes the connection and the database rolls back.
          const end = this.isSpoiled(client) ? `ROLLBACK; ${resetSession}` : 'ROLLBACK';
          await this.queryOn(client, end).catch((failure: unknown) => {
            throw new SessionError(`${messageOf(error)}; ROLLBACK failed: ${messageOf(failure)}`);
          });
          throw error;
        }
      }),
    );
  }

  /** Random, growing pauses, so that transactions in conflict do not meet again. */
  async #retryConflicts<T>(run: () => Promise<T>): Promise<T> {
    const { clock } = this;
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await run();
      } catch (error) {
        if (!isConflict(error) || attempt >= maxConflictTries) throw error;
        await clock.sleep(clock.random() * Math.min(maxConflictPauseMs, 10 * 2 ** attempt));
      }
    }
  }

  /** Runs one statement with our deadline. A statement that timed out is also cancelled in the database. */
  async queryOn<R extends QueryResultRow>(
    client: PoolClient,
    text: string,
    values: unknown[] = [],
    config?: Partial<QueryConfig>,
  ): Promise<QueryResult<R>> {
    const timed = { ...config, text, values, query_timeout: this.queryTimeoutMs };
    try {
      return await client.query<R>(timed);
    } catch (error) {
      if (isReadTimeout(error)) void this.#cancel(client, text).catch(() => {});
      throw isSessionFault(error) ? new SessionError(messageOf(error)) : error;
    }
  }

  /** Through a pooler the process id may belong to another client: so only if it runs this very statement. */
  async #cancel(client: PoolClient, text: string): Promise<void> {
    const { processID } = client as { processID?: number };
    if (typeof processID !== 'number') return;
    const timed = {
      text: `SELECT pg_cancel_backend(pid) FROM pg_stat_activity
        WHERE pid = $1 AND state = 'active' AND usename = current_user AND left(query, 500) = left($2, 500)`,
      values: [processID, text],
      query_timeout: this.queryTimeoutMs,
    };
    const other = await this.#connect();
    await other.query(timed).then(
      () => other.release(),
      () => other.release(true),
    );
  }

  async use<T>(work: (client: PoolClient) => Promise<T>): Promise<T> {
    let client: PoolClient;
    try {
      client = await this.#connect();
    } catch (error) {
      this.#observe?.('failed');
      throw new SessionError(`no session: ${messageOf(error)}`);
    }
    let broken: Error | undefined;
    let onError = (_: Error) => {};
    // A connection that dies between two statements emits 'error'. Its place in the pool is freed at once, even if
    // `work` hangs.
    const died = new Promise<never>((_, reject) => {
      onError = (error) => {
        broken = error;
        reject(new SessionError(messageOf(error)));
      };
    });
    client.on('error', onError);
    try {
      const result = await Promise.race([work(client), died]);
      this.#observe?.('ok');
      return result;
    } catch (error) {
      // Any other error came over a working session.
      if (isInstance(error, SessionError)) broken = error;
      this.#observe?.(broken ? 'failed' : 'ok');
      throw error;
    } finally {
      client.off('error', onError);
      client.release(broken ?? (this.isSpoiled(client) || isInTransaction(client)));
    }
  }

  #connect(): Promise<PoolClient> {
    const connectTimeoutMs = this.#connectTimeoutMs;
    return new Promise((resolve, reject) => {
      let isLate = false;
      const cancel = this.clock.after(connectTimeoutMs, () => {
        isLate = true;
        reject(new Error(`no connection was free within ${connectTimeoutMs} ms`));
      });
      this.pool
        .connect()
        .then(async (client) => {
          await this.#prepare(client);
          if (isLate) client.release();
          else resolve(client);
        })
        .catch(reject)
        .finally(cancel);
    });
  }

  /**
   * Once per connection. Ids are stored as text, and other styles of dates cannot be read back: they name a time zone by
   * an ambiguous abbreviation. Works through PgBouncer, which keeps this setting per client.
   */
  async #prepare(client: PoolClient): Promise<void> {
    if (prepared.has(client)) return;
    try {
      await client.query({
        text: 'SET DateStyle TO ISO',
        query_timeout: this.#connectTimeoutMs,
      } as QueryConfig);
      prepared.add(client);
    } catch (error) {
      client.release(true);
      throw error;
    }
  }
}

/** Pools and clients that have our listener: a program may create many loops on one pool. */
const guarded = new WeakSet<Pool | PoolClient>();
/** Connections with our DateStyle. */
const prepared = new WeakSet<PoolClient>();
const ignore = () => {};

/**
 * Keeps a broken connection from ending the process: an 'error' without a listener does. The pool listens while a
 * connection is idle, its user while it works; in between, when it is acquired, neither does. A server that stops
 * sends its notice with its last reply, which is exactly then.
 */
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

const socketFaults = new Set([
  ...['ECONNREFUSED', 'ECONNRESET', 'ECONNABORTED', 'EPIPE', 'ETIMEDOUT', 'EHOSTUNREACH', 'ENETUNREACH'],
  ...['ENETDOWN', 'ENOTFOUND', 'EAI_AGAIN', 'EADDRNOTAVAIL', 'EMFILE', 'ENFILE', 'ENOENT'],
]);

/** Syntax and access (42), an unknown schema (3F), the state of a transaction (25), a cancelled statement. */
const mayBeSessionState = (error: unknown) => /^(42|3F|25)|^57014$/.test(codeOf(error));

/** Drivers that do not report the state of a transaction count as outside of one. */
const isInTransaction = (client: PoolClient) =>
  /^[TE]$/.test(String((client as { getTransactionStatus?(): unknown }).getTransactionStatus?.()));

/** A reply that did not arrive within our deadline. */
export const isReadTimeout = (error: unknown) =>
  error instanceof Error && error.message === 'Query read timeout';

/** Connection exceptions, too many connections, a server that shuts down or starts, and errors of the socket. */
export function isSessionFault(error: unknown): boolean {
  if (error instanceof SessionError) return true;
  if (!(error instanceof Error)) return false;
  const code = codeOf(error);
  if (code !== '')
    return /^(08|57P0)/.test(code) || code === '53300' || code === '25006' || socketFaults.has(code);
  return /Connection terminated|Query read timeout|timeout exceeded|Client has encountered a connection error|not queryable|Client was closed/i.test(
    error.message,
  );
}

/**
 * The database refused a row because of its content (a constraint, a value that does not fit an index), or a trigger
 * raised an error, with any code. Other rows may pass; retrying this one does not help.
 */
export function isRowFault(error: unknown): boolean {
  if (!mayBeRowFault(error)) return false;
  const { routine, constraint } = error as { routine?: string; constraint?: string };
  // PostgreSQL itself uses no code that begins with one of these letters.
  const isOfRow = /^(09|21|22|23|27|38|39|44|P0|[I-OQ-WYZ])/.test(codeOf(error));
  return isOfRow || routine === 'exec_stmt_raise' || constraint !== undefined;
}

/**
 * An error of a statement, but not of the session, a conflict, a lock or a cancelled statement (57). Codes of Node.js, like
 * EPERM, are of no statement.
 */
export function mayBeRowFault(error: unknown): boolean {
  const isOfStatement = /^(?!57|E[A-Z]{4})[0-9A-Z]{5}$/.test(codeOf(error));
  return isOfStatement && !isSessionFault(error) && !isConflict(error) && !isLocked(error);
}

/** A serialization failure or a deadlock: the transaction may succeed when it runs again. */
export function isConflict(error: unknown): boolean {
  return /^40(001|P01)$/.test(codeOf(error));
}

/** Another transaction holds a row for longer than the lock timeout. */
export function isLocked(error: unknown): boolean {
  return codeOf(error) === '55P03';
}

/** The message of claim.sql: a trigger did not keep the status of a claimed record. */
export const isStatusKept = (error: unknown) =>
  messageOf(error).includes('smart_router: the claim left the status at');

/** Works for any thrown value; empty without a code. */
export function codeOf(error: unknown): string {
  try {
    const { code } = (error ?? {}) as { code?: unknown };
    return typeof code === 'string' ? code : '';
  } catch {
    return '';
  }
}
