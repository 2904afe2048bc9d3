/**
 * Wake-up by LISTEN, where the connection allows it: a connection of its own, made like the pool's (one of the pool's
 * own would be missing there for good), tried out with a message from another one: a message to itself would arrive even
 * through a pooler in transaction mode, where nothing else does. Then polling is what there is, it is tried again after
 * a while, and nothing else changes.
 */
import { randomUUID } from 'node:crypto';
import pg from 'pg';
import type { Clock } from '../clock.js';
import { messageOf } from '../errors.js';
import type { Logger } from '../observe/log.js';
import type { Sessions } from './sessions.js';

export const channel = 'smart_router_records';
const trialMs = 3000;
const connectMs = 5000;
const goodbyeMs = 1000;
const longestMs = 24 * 3_600_000;
const againMs = 5000;
/** A trial that failed may have met a bad moment of the database. */
const trialAgainMs = 300_000;

export interface ListenerOptions {
  sessions: Sessions;
  clock: Clock;
  log: Logger;
  /** A workflow that may have work, or undefined: any of them. */
  onWake(workflow: string | undefined): void;
}

export class Listener {
  readonly #options: ListenerOptions;
  readonly #stopping = new AbortController();
  #running: Promise<void> | undefined;
  #isListening = false;

  constructor(options: ListenerOptions) {
    this.#options = options;
  }

  get isListening(): boolean {
    return this.#isListening;
  }

  start(): void {
    this.#running ??= this.#run();
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#running;
  }

  async #run(): Promise<void> {
    const { clock, log, onWake } = this.#options;
    const { signal } = this.#stopping;
    while (!signal.aborted) {
      let pauseMs = againMs;
      const client = this.#newClient();
      const broken = new AbortController();
      const onBroken = () => broken.abort();
      client.on('error', onBroken);
      client.on('end', onBroken);
      try {
        await client.connect();
        if (await this.#listen(client, signal)) {
          // Whatever came while nobody listened.
          onWake(undefined);
          await clock.sleep(longestMs, AbortSignal.any([signal, broken.signal]));
        } else if (!signal.aborted) {
          pauseMs = trialAgainMs;
          log.info(
            'LISTEN does not work on this connection (a pooler in transaction mode?): new records are found by polling',
          );
        }
      } catch (error) {
        if (!signal.aborted) log.debug({ reason: messageOf(error) }, 'the listening connection broke');
      } finally {
        this.#isListening = false;
        // A server that is gone does not say goodbye.
        await Promise.race([client.end().catch(() => {}), clock.sleep(goodbyeMs)]);
      }
      await clock.sleep(pauseMs, signal);
    }
  }

  #newClient(): pg.Client {
    const { pool } = this.#options.sessions;
    return new pg.Client({
      ...pool.options,
      // The pool hides it from enumeration.
      ...(pool.options.password === undefined ? {} : { password: pool.options.password }),
      connectionTimeoutMillis: connectMs,
      query_timeout: connectMs,
      keepAlive: true,
    });
  }

  async #listen(client: pg.Client, signal: AbortSignal): Promise<boolean> {
    const { sessions, clock, onWake } = this.#options;
    const trial = randomUUID();
    const arrived = new AbortController();
    client.on('notification', ({ payload }) => {
      if (payload === trial) arrived.abort();
      else onWake(payload === undefined || payload === '' ? undefined : payload);
    });
    await client.query(`LISTEN ${channel}`);
    await notify(sessions, trial);
    await clock.sleep(trialMs, AbortSignal.any([arrived.signal, signal]));
    this.#isListening = arrived.signal.aborted;
    return this.#isListening;
  }
}

/** Tells every loop that there is work; inside a transaction, once it commits. */
export async function notify(
  client: { query(text: string, values: unknown[]): Promise<unknown> },
  workflow = '',
): Promise<void> {
  await client.query('SELECT pg_notify($1, $2)', [channel, workflow]);
}
