/**
 * This process as a worker: a row with a heartbeat. After `deadAfter` without a heartbeat a worker counts as dead, and its
 * claims go to others.
 *
 * The heartbeat runs in a thread with its own connection, so that a blocked event loop or an exhausted pool does not
 * stop it. If the pool's options cannot be copied to a thread (a password function, TLS callbacks), it runs on the main
 * thread with a warning: then a blocked event loop looks like a dead process.
 *
 * If the thread's heartbeat fails (it gets no connection, for example), the pool sends it instead. A worker that was
 * suspended or cut off sends one before it claims again: its fresh claims would otherwise belong to a dead worker.
 *
 * Only a reply of the database that the worker's row is deleted makes its claims void; failed heartbeats are repeated.
 */
import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import { Worker as Thread } from 'node:worker_threads';
import type { ClientConfig, PoolConfig } from 'pg';
import { type Clock, singleFlight, within } from '../clock.js';
import { ConfigError } from '../errors.js';
import type { Logger } from '../observe/log.js';
import type { Queryable, Sessions } from './sessions.js';
import { nameConflicts } from './table.js';

export interface WorkerOptions {
  sessions: Sessions;
  clock: Clock;
  log: Logger;
  intervalMs: number;
  /** The path of each workflow's table. */
  tables: Readonly<Record<string, string>>;
  /** Of the thread. Default: the pool's options. */
  connection?: ClientConfig | undefined;
  /** The worker's row was deleted: every claim of this process is void. */
  onLost(): void;
}

export class RecordWorker {
  #id = 0;
  #thread: Thread | undefined;
  #cancelTimer = () => {};
  readonly #stopping = new AbortController();
  /** By our own clock: the time of the last heartbeat. */
  #beatMs = 0;
  readonly #restart = singleFlight(() => this.#restartAsNew());

  constructor(private readonly options: WorkerOptions) {}

  get #isStopped(): boolean {
    return this.#stopping.signal.aborted;
  }

  get id(): number {
    return this.#id;
  }

  async start(): Promise<void> {
    const { sessions, clock, tables } = this.options;
    const nowMs = clock.monotonic();
    this.#id = await sessions.transaction(async (client) => {
      const db: Queryable = { query: (text, values) => sessions.queryOn(client, text, values) };
      // Of two workers that start at once, the second one sees the first.
      await db.query("SELECT pg_advisory_xact_lock(hashtext('smart_router.workers'), 0)");
      const conflicts = await nameConflicts(db, tables);
      if (conflicts.length > 0) throw new ConfigError(conflicts);
      const { rows } = await db.query<{ id: number }>(
        'INSERT INTO smart_router.workers (process, host, pid, tables) VALUES ($1, $2, $3, $4) RETURNING id',
        [randomUUID(), hostname(), process.pid, JSON.stringify(tables)],
      );
      return rows[0]?.id ?? 0;
    }, 'READ COMMITTED');
    this.#beatMs = nowMs;
    // Stopped while it restarted.
    if (this.#isStopped) await this.#signOff();
    else this.#beat();
  }

  /** Called before a claim: sends a heartbeat if the last one is old. Throws if it fails. */
  async beAlive(): Promise<void> {
    const { clock, intervalMs } = this.options;
    if (clock.monotonic() - this.#beatMs > 2 * intervalMs) await this.#beatNow();
  }

  /**
   * With `signOff` the worker's row is deleted, and other workers may take its claims at once. Without it they wait until
   * the heartbeat is dead: time to replay spooled outcomes.
   */
  async stop({ signOff = true } = {}): Promise<void> {
    this.#stopping.abort();
    this.#cancelTimer();
    const thread = this.#thread;
    this.#thread = undefined;
    if (thread) {
      const ended = new Promise((resolve) => thread.once('exit', resolve));
      thread.postMessage('stop');
      await within(this.options.clock, 1000, ended, () => {});
      await thread.terminate();
    }
    if (signOff) await this.#signOff();
  }

  async #signOff(): Promise<void> {
    await this.options.sessions
      .query('DELETE FROM smart_router.workers WHERE id = $1', [this.#id])
      .catch((error: unknown) => this.options.log.warn({ err: error }, 'worker not signed off'));
  }

  #beat(): void {
    const { connection, sessions, log } = this.options;
    const config = cloneable(connection ?? (sessions.pool.options as PoolConfig));
    if (config) this.#beatFromThread(config);
    else {
      log.warn(
        'heartbeat runs on the main thread: the options of the pool cannot be copied to a thread; set `heartbeat.connection`',
      );
      this.#beatFromPool();
    }
  }

  #beatFromThread(config: ClientConfig): void {
    const { intervalMs, log, clock } = this.options;
    const thread = new Thread(new URL('./heartbeat-thread.mjs', import.meta.url), {
      workerData: { config, worker: this.#id, intervalMs },
    });
    thread.unref();
    this.#thread = thread;
    thread.on('message', (message: 'beat' | 'lost' | { error: string }) => {
      if (thread !== this.#thread) return;
      if (message === 'lost') void this.#restart();
      else if (message === 'beat') this.#beatMs = clock.monotonic();
      else {
        log.warn({ reason: message.error }, 'heartbeat failed');
        void this.#beatNow().catch((error: unknown) => log.warn({ err: error }, 'heartbeat failed'));
      }
    });
    thread.on('error', (error) => log.error({ err: error }, 'heartbeat thread crashed; restarting'));
    thread.on('exit', () => {
      if (thread !== this.#thread || this.#isStopped) return;
      this.#cancelTimer = this.options.clock.after(1000, () => this.#beatFromThread(config), {
        unref: true,
      });
    });
  }

  #beatFromPool(): void {
    const { clock, intervalMs, log } = this.options;
    const beat = async () => {
      try {
        // After a restart, `start` schedules the next one.
        if (!(await this.#beatNow())) return;
      } catch (error) {
        log.warn({ err: error }, 'heartbeat failed');
      }
      if (!this.#isStopped) this.#beatFromPool();
    };
    this.#cancelTimer = clock.after(intervalMs, beat, { unref: true });
  }

  /** Uses the pool. Resolves to false if the worker had to restart. */
  async #beatNow(): Promise<boolean> {
    const { clock, sessions } = this.options;
    const nowMs = clock.monotonic();
    const id = this.#id;
    const { rowCount } = await sessions.query(
      'UPDATE smart_router.workers SET heartbeat_at = now() WHERE id = $1',
      [id],
    );
    if (rowCount === 0 && !this.#isStopped && id === this.#id) {
      await this.#restart();
      return false;
    }
    this.#beatMs = Math.max(this.#beatMs, nowMs);
    return true;
  }

  /** Gets a new id: the old claims are void, and cannot be confused with the new ones. */
  async #restartAsNew(): Promise<void> {
    const { log, onLost } = this.options;
    const thread = this.#thread;
    this.#thread = undefined;
    void thread?.terminate();
    log.error({ worker_id: this.#id }, 'worker was declared dead: its claims are void; restarting');
    onLost();
    while (!this.#isStopped) {
      try {
        return await this.start();
      } catch (error) {
        log.warn({ err: error }, 'worker restart failed; retrying');
        await this.options.clock.sleep(1000, this.#stopping.signal);
      }
    }
  }
}

/** Copies the connection options if a thread can have them; the pool hides its password from enumeration. */
function cloneable(options: ClientConfig): ClientConfig | undefined {
  const { connectionString, host, port, user, password, database, ssl, options: startup } = options;
  if (options.stream !== undefined || typeof password === 'function') return undefined;
  // The pool also hides the key of its certificate.
  const tls = typeof ssl === 'object' && ssl.key !== undefined ? { ...ssl, key: ssl.key } : ssl;
  const given = { connectionString, host, port, user, password, database, ssl: tls, options: startup };
  const config = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
  try {
    return structuredClone(config) as ClientConfig;
  } catch {
    return undefined;
  }
}
