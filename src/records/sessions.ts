/**
 * Sessions of the database, each with an end. The team's pool may be exhausted, the database away, a connection dead
 * without a word: a caller waits for a session and for an answer no longer than it is willing to, and is told apart
 * what is the session's fault (`SessionError`) and what is the statement's. What a handler throws inside its transaction
 * is its own matter as long as the session still answers.
 */
import type { Pool, PoolClient, QueryResult, QueryResultRow } from 'pg';
import type { Clock } from '../clock.js';
import { isInstance, messageOf } from '../errors.js';
import { guardPool } from './pool-guard.js';
import { resetSession } from './transaction-client.js';

/** Says all that is known of its reason, and so has no `cause`: a log would say the same twice. */
export class SessionError extends Error {
  override readonly name = 'SessionError';
}

const conflictTries = 20;
const longestConflictPauseMs = 1000;

export interface SessionsOptions {
  pool: Pool;
  clock: Clock;
  /** Longest wait for a free connection. Default: 5 s. */
  connectTimeoutMs?: number;
  /** Longest wait for the answer to one statement of ours. Default: 30 s. */
  queryTimeoutMs?: number;
  observe?: (outcome: 'ok' | 'failed') => void;
}

/** Whoever only asks: a `Sessions`, or a pool or a client if it need not have an end. */
export interface Queryable {
  query<R extends QueryResultRow>(text: string, values?: unknown[]): Promise<QueryResult<R>>;
}

export class Sessions implements Queryable {
  /** Connections with state of a handler on them: closed instead of reused. */
  readonly #spoiled = new WeakSet<PoolClient>();
  readonly #options: Required<Omit<SessionsOptions, 'observe'>> & Pick<SessionsOptions, 'observe'>;

  constructor(options: SessionsOptions) {
    this.#options = { connectTimeoutMs: 5000, queryTimeoutMs: 30_000, ...options };
    guardPool(options.pool);
  }

  get queryTimeoutMs(): number {
    return this.#options.queryTimeoutMs;
  }

  get pool(): Pool {
    return this.#options.pool;
  }

  /**
   * One statement of ours. If it fails for what is on the session rather than in a row (a search path, a role, a
   * timeout that foreign code has set), its connection is closed: the next one is a new one. A conflict with another
   * transaction is retried.
   */
  async query<R extends QueryResultRow>(text: string, values: unknown[] = []): Promise<QueryResult<R>> {
    return this.#retryConflicts(() =>
      this.use(async (client) => {
        try {
          return await this.queryOn<R>(client, text, values);
        } catch (error) {
          if (mayBeOfSession(error)) this.spoil(client);
          throw error;
        }
      }),
    );
  }

  /** The connection is closed after this use. */
  spoil(client: PoolClient): void {
    this.#spoiled.add(client);
  }

  isSpoiled(client: PoolClient): boolean {
    return this.#spoiled.has(client);
  }

  /**
   * At the database's own level of isolation unless one is given. After a conflict with another transaction (a
   * serialization failure, a deadlock) everything is rolled back and `work` runs again, at most 20 times.
   */
  async transaction<T>(
    work: (client: PoolClient) => Promise<T>,
    level?: 'READ COMMITTED' | 'REPEATABLE READ',
  ): Promise<T> {
    return this.#retryConflicts(() => this.#transaction(work, level));
  }

  /** The pauses are random and grow, so that those in conflict do not meet again. */
  async #retryConflicts<T>(run: () => Promise<T>): Promise<T> {
    const { clock } = this.#options;
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await run();
      } catch (error) {
        if (!isConflict(error) || attempt >= conflictTries) throw error;
        await clock.sleep(clock.random() * Math.min(longestConflictPauseMs, 10 * 2 ** attempt));
      }
    }
  }

  async #transaction<T>(work: (client: PoolClient) => Promise<T>, level?: string): Promise<T> {
    return this.use(async (client) => {
      await this.queryOn(client, level ? `BEGIN ISOLATION LEVEL ${level}` : 'BEGIN', []);
      try {
        const result = await work(client);
        await this.queryOn(client, 'COMMIT', []);
        return result;
      } catch (error) {
        if (isInstance(error, SessionError)) throw error;
        // If this fails the connection is closed (`use`), and the database rolls back by itself.
        const end = this.isSpoiled(client) ? `ROLLBACK; ${resetSession}` : 'ROLLBACK';
        await this.queryOn(client, end, []).catch((failure: unknown) => {
          throw new SessionError(`${messageOf(error)}; and no ROLLBACK: ${messageOf(failure)}`);
        });
        throw error;
      }
    });
  }

  /** One statement with our deadline. What nobody waits for any more is ended in the database too, if that can be had. */
  async queryOn<R extends QueryResultRow>(
    client: PoolClient,
    text: string,
    values: unknown[],
  ): Promise<QueryResult<R>> {
    const timed = { text, values, query_timeout: this.#options.queryTimeoutMs };
    try {
      return await client.query<R>(timed);
    } catch (error) {
      if (isReadTimeout(error)) void this.#cancel(client, text).catch(() => {});
      throw isSessionFault(error) ? new SessionError(messageOf(error)) : error;
    }
  }

  /** Through a pooler the number may be anybody's: so only who runs this very statement. */
  async #cancel(client: PoolClient, text: string): Promise<void> {
    const { processID } = client as { processID?: number };
    if (typeof processID !== 'number') return;
    const timed = {
      text: `SELECT pg_cancel_backend(pid) FROM pg_stat_activity
        WHERE pid = $1 AND state = 'active' AND usename = current_user AND left(query, 500) = left($2, 500)`,
      values: [processID, text],
      query_timeout: this.#options.queryTimeoutMs,
    };
    const other = await this.#connect();
    await other.query(timed).then(
      () => other.release(),
      () => other.release(true),
    );
  }

  async use<T>(work: (client: PoolClient) => Promise<T>): Promise<T> {
    const { observe } = this.#options;
    let client: PoolClient;
    try {
      client = await this.#connect();
    } catch (error) {
      observe?.('failed');
      throw new SessionError(`no session: ${messageOf(error)}`);
    }
    let broken: Error | undefined;
    let onError = (_: Error) => {};
    // A connection that dies between two statements emits this. Whoever still works on it, or hangs, keeps no place in
    // the pool for it.
    const died = new Promise<never>((_, reject) => {
      onError = (error) => {
        broken = error;
        reject(new SessionError(messageOf(error)));
      };
    });
    client.on('error', onError);
    try {
      const result = await Promise.race([work(client), died]);
      observe?.('ok');
      return result;
    } catch (error) {
      // Whatever else it threw, the session did what it was asked for.
      if (isInstance(error, SessionError)) broken = error;
      observe?.(broken ? 'failed' : 'ok');
      throw error;
    } finally {
      client.off('error', onError);
      client.release(broken ?? (this.isSpoiled(client) || isInTransaction(client)));
    }
  }

  #connect(): Promise<PoolClient> {
    const { pool, clock, connectTimeoutMs } = this.#options;
    return new Promise((resolve, reject) => {
      let isLate = false;
      const cancel = clock.after(connectTimeoutMs, () => {
        isLate = true;
        reject(new Error(`none was free within ${connectTimeoutMs} ms`));
      });
      pool.connect().then(
        (client) => {
          cancel();
          if (isLate) client.release();
          else resolve(client);
        },
        (error: unknown) => {
          cancel();
          reject(error);
        },
      );
    });
  }
}

const socketFaults = new Set([
  'ECONNREFUSED',
  'ECONNRESET',
  'ECONNABORTED',
  'EPIPE',
  'ETIMEDOUT',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'ENETDOWN',
  'ENOTFOUND',
  'EAI_AGAIN',
  'EADDRNOTAVAIL',
  'EMFILE',
  'ENFILE',
  'ENOENT',
]);

/** Syntax and access (42), an unknown schema (3F), the state of a transaction (25), a statement that was cancelled. */
const mayBeOfSession = (error: unknown) => /^(42|3F|25)|^57014$/.test(codeOf(error));

/** Undefined in drivers that do not say it. */
const isInTransaction = (client: PoolClient) =>
  /^[TE]$/.test(String((client as { getTransactionStatus?(): unknown }).getTransactionStatus?.()));

const isReadTimeout = (error: unknown) => error instanceof Error && error.message === 'Query read timeout';

/** Connection exceptions, too many connections, a server that shuts down or starts, and what the socket says. */
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
 * The database refused a row for what is in it (a constraint, a trigger, a value that does not fit): another row may
 * well pass, and the same row will not, however often it is tried.
 */
export function isRowFault(error: unknown): boolean {
  return !isSessionFault(error) && /^(09|21|22|23|27|38|39|44|P0)/.test(codeOf(error));
}

/** Another transaction was in the way (a serialization failure, a deadlock): the same may succeed when it is run again. */
export function isConflict(error: unknown): boolean {
  return /^40(001|P01)$/.test(codeOf(error));
}

/** Of any thrown value; empty if there is none. */
function codeOf(error: unknown): string {
  try {
    const { code } = (error ?? {}) as { code?: unknown };
    return typeof code === 'string' ? code : '';
  } catch {
    return '';
  }
}

/** Somebody's transaction holds a row for longer than we wait. */
export function isLocked(error: unknown): boolean {
  return codeOf(error) === '55P03';
}
