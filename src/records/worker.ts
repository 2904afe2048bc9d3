/**
 * This process as the database knows it: a row with a heartbeat. Who does not beat for `deadAfter` is taken for dead,
 * and its claims go to others.
 *
 * The heartbeat comes from a thread with a connection of its own, so that a busy event loop or an exhausted pool loses
 * nothing. Where the pool's options cannot be handed to a thread (a password function, TLS callbacks) it comes from
 * the pool itself, with a warning: then a blocked event loop looks like a dead process.
 *
 * A heartbeat that fails there (no connection is left for it, say) is made up for from the pool, and who was held still
 * or cut off for a while beats before it claims anew: else its fresh claims would look like those of the dead.
 *
 * Only the database's word that there is no such worker (its row is gone) counts as lost; a heartbeat that fails is
 * repeated.
 */
import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import { Worker as Thread } from 'node:worker_threads';
import type { ClientConfig, PoolConfig } from 'pg';
import type { Clock } from '../clock.js';
import type { Logger } from '../observe/log.js';
import type { Sessions } from './sessions.js';

export interface WorkerOptions {
  sessions: Sessions;
  clock: Clock;
  log: Logger;
  intervalMs: number;
  /** For the thread; default: the pool's own. */
  connection?: ClientConfig | undefined;
  /** The database has forgotten us: every claim of this process is void. */
  onLost(): void;
}

export class RecordWorker {
  readonly #options: WorkerOptions;
  #id = 0;
  #thread: Thread | undefined;
  #cancelTimer = () => {};
  readonly #stopping = new AbortController();
  /** By our own clock: when the database last heard of us, at the latest. */
  #beatMs = 0;
  #startingOver: Promise<void> | undefined;

  constructor(options: WorkerOptions) {
    this.#options = options;
  }

  get #isStopped(): boolean {
    return this.#stopping.signal.aborted;
  }

  get id(): number {
    return this.#id;
  }

  async start(): Promise<void> {
    const { sessions, clock } = this.#options;
    const nowMs = clock.monotonic();
    const { rows } = await sessions.query<{ id: number }>(
      'INSERT INTO smart_router.workers (process, host, pid) VALUES ($1, $2, $3) RETURNING id',
      [randomUUID(), hostname(), process.pid],
    );
    this.#id = rows[0]?.id ?? 0;
    this.#beatMs = nowMs;
    // Stopped while it was starting over.
    if (this.#isStopped) await this.#signOff();
    else this.#beat();
  }

  /** Before anything is claimed: others must see that we live. Throws when that cannot be said. */
  async beAlive(): Promise<void> {
    const { clock, intervalMs } = this.#options;
    if (clock.monotonic() - this.#beatMs > 2 * intervalMs) await this.#beatNow();
  }

  /**
   * With `signOff` its row is removed: whatever it still holds is free for the others at once. Without it that happens
   * when its heartbeat is dead: time for what it has finished and could not write.
   */
  async stop({ signOff = true } = {}): Promise<void> {
    this.#stopping.abort();
    this.#cancelTimer();
    const thread = this.#thread;
    this.#thread = undefined;
    if (thread) {
      const ended = new Promise((resolve) => thread.once('exit', resolve));
      thread.postMessage('stop');
      const patience = new AbortController();
      await Promise.race([ended, this.#options.clock.sleep(1000, patience.signal)]);
      patience.abort();
      await thread.terminate();
    }
    if (signOff) await this.#signOff();
  }

  async #signOff(): Promise<void> {
    await this.#options.sessions
      .query('DELETE FROM smart_router.workers WHERE id = $1', [this.#id])
      .catch((error: unknown) => this.#options.log.warn({ err: error }, 'a worker could not sign off'));
  }

  #beat(): void {
    const { connection, sessions, log } = this.#options;
    const config = cloneable(connection ?? (sessions.pool.options as PoolConfig));
    if (config) this.#beatFromThread(config);
    else {
      log.warn(
        'heartbeats come from the pool: its options cannot be handed to a thread; give `heartbeat.connection` to change that',
      );
      this.#beatFromPool();
    }
  }

  #beatFromThread(config: ClientConfig): void {
    const { intervalMs, log, clock } = this.#options;
    const thread = new Thread(new URL('./heartbeat-thread.mjs', import.meta.url), {
      workerData: { config, worker: this.#id, intervalMs },
    });
    thread.unref();
    this.#thread = thread;
    thread.on('message', (message: 'beat' | 'lost' | { error: string }) => {
      if (thread !== this.#thread) return;
      if (message === 'lost') void this.#startOver();
      else if (message === 'beat') this.#beatMs = clock.monotonic();
      else {
        log.warn({ reason: message.error }, 'a heartbeat failed');
        void this.#beatNow().catch((error: unknown) => log.warn({ err: error }, 'a heartbeat failed'));
      }
    });
    thread.on('error', (error) =>
      log.error({ err: error }, 'the heartbeat thread crashed and is started again'),
    );
    thread.on('exit', () => {
      if (thread !== this.#thread || this.#isStopped) return;
      this.#cancelTimer = this.#options.clock.after(1000, () => this.#beatFromThread(config), {
        unref: true,
      });
    });
  }

  #beatFromPool(): void {
    const { clock, intervalMs, log } = this.#options;
    const beat = async () => {
      try {
        // Who starts over begins to beat by itself.
        if (!(await this.#beatNow())) return;
      } catch (error) {
        log.warn({ err: error }, 'a heartbeat failed');
      }
      if (!this.#isStopped) this.#beatFromPool();
    };
    this.#cancelTimer = clock.after(intervalMs, beat, { unref: true });
  }

  /** From the pool; resolves to false when we had to start over. */
  async #beatNow(): Promise<boolean> {
    const { clock, sessions } = this.#options;
    const nowMs = clock.monotonic();
    const id = this.#id;
    const { rowCount } = await sessions.query(
      'UPDATE smart_router.workers SET heartbeat_at = now() WHERE id = $1',
      [id],
    );
    if (rowCount === 0 && !this.#isStopped && id === this.#id) {
      await this.#startOver();
      return false;
    }
    this.#beatMs = Math.max(this.#beatMs, nowMs);
    return true;
  }

  #startOver(): Promise<void> {
    this.#startingOver ??= this.#newLife().finally(() => {
      this.#startingOver = undefined;
    });
    return this.#startingOver;
  }

  /** Under a new number: the old claims are void, and nobody takes the new ones for theirs. */
  async #newLife(): Promise<void> {
    const { log, onLost } = this.#options;
    const thread = this.#thread;
    this.#thread = undefined;
    void thread?.terminate();
    log.error(
      { worker: this.#id },
      'the database had given this worker up: its claims are void, starting over',
    );
    onLost();
    while (!this.#isStopped) {
      try {
        return await this.start();
      } catch (error) {
        log.warn({ err: error }, 'a worker could not sign on again');
        await this.#options.clock.sleep(1000, this.#stopping.signal);
      }
    }
  }
}

/** What a connection needs, if it can be copied to a thread; the pool hides its password from enumeration. */
function cloneable(options: ClientConfig): ClientConfig | undefined {
  const { connectionString, host, port, user, password, database, ssl, options: startup } = options;
  if (options.stream !== undefined || typeof password === 'function') return undefined;
  // The pool hides the key of its certificate too.
  const tls = typeof ssl === 'object' && ssl.key !== undefined ? { ...ssl, key: ssl.key } : ssl;
  const given = { connectionString, host, port, user, password, database, ssl: tls, options: startup };
  const config = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
  try {
    return structuredClone(config) as ClientConfig;
  } catch {
    return undefined;
  }
}
