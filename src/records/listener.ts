/**
 * Wakes the loops by LISTEN, on its own connection with the options of the pool (one of the pool would be missing there
 * permanently). It tests the connection with a message sent over another one: its own message would arrive even
 * through a pooler in transaction mode, where others do not. Where LISTEN does not work, records are found by polling,
 * and the test is repeated every 5 minutes.
 */

import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { abortWith, type Clock, WakeableSleep, within } from '../clock.js';
import { messageOf } from '../errors.js';
import type { Logger } from '../observe/log.js';
import type { Sessions } from './sessions.js';

export const channel = 'smart_router_records';
const testMs = 3000;
const connectMs = 5000;
const goodbyeMs = 1000;
const maxListenMs = 24 * 3_600_000;
const reconnectMs = 5000;
/** The test may have failed because the database was slow. */
const testAgainMs = 300_000;

export interface ListenerOptions {
  sessions: Sessions;
  clock: Clock;
  log: Logger;
  /** Undefined: any workflow may have work. */
  onWake(workflow: string | undefined): void;
}

export class Listener {
  readonly #stopping = new AbortController();
  #running: Promise<void> | undefined;

  constructor(private readonly options: ListenerOptions) {}

  start(): void {
    this.#running ??= this.#run();
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#running;
  }

  async #run(): Promise<void> {
    const { clock, log, onWake } = this.options;
    const { signal } = this.#stopping;
    while (!signal.aborted) {
      let pauseMs = reconnectMs;
      const client = this.#newClient();
      const broken = new AbortController();
      const unlink = abortWith(broken, signal);
      const onBroken = () => broken.abort();
      client.on('error', onBroken);
      client.on('end', onBroken);
      try {
        await client.connect();
        if (await this.#listen(client, signal)) {
          // Records may have arrived before.
          onWake(undefined);
          await clock.sleep(maxListenMs, broken.signal);
        } else if (!signal.aborted) {
          pauseMs = testAgainMs;
          log.info(
            'LISTEN does not work on this connection (a pooler in transaction mode?); polling for new records',
          );
        }
      } catch (error) {
        if (!signal.aborted) log.debug({ reason: messageOf(error) }, 'LISTEN connection broke; reconnecting');
      } finally {
        unlink();
        // A dead server does not close the connection.
        await within(
          clock,
          goodbyeMs,
          client.end().catch(() => {}),
          () => {},
        );
      }
      await clock.sleep(pauseMs, signal);
    }
  }

  #newClient(): pg.Client {
    const { pool } = this.options.sessions;
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
    const { sessions, clock, onWake } = this.options;
    const test = randomUUID();
    const arrival = new WakeableSleep(clock);
    client.on('notification', ({ payload }) => {
      if (payload === test) arrival.wake();
      else onWake(payload === '' ? undefined : payload);
    });
    await client.query(`LISTEN ${channel}`);
    await notify(sessions, test);
    return arrival.for(testMs, signal);
  }
}

/** Wakes every loop of a workflow; inside a transaction, when it commits. */
export async function notify(
  client: { query(text: string, values: unknown[]): Promise<unknown> },
  workflow = '',
): Promise<void> {
  await client.query('SELECT pg_notify($1, $2)', [channel, workflow]);
}
