/**
 * The event stream of the store as a feed. It reads only while there are listeners, on a separate connection, and restarts
 * after an error. Listeners may then miss events, so everything that waits for an event polls as well.
 */
import type { Clock } from '../clock.js';
import type { StoreConnection } from './store/connection.js';
import { keysOf } from './store/keys.js';
import { pairs } from './store/replies.js';

export interface StoreEvent {
  /** `milliseconds-sequence`: increases, and contains the time. */
  id: string;
  type: string;
  at: string;
  fields: Record<string, string>;
}

type Listener = (event: StoreEvent) => void;
export type EventRow = [id: string, fields: string[]];

const replayPage = 500;

export class EventFeed {
  readonly #connection: StoreConnection;
  readonly #clock: Clock;
  readonly #key: string;
  readonly #journalKey: string;
  readonly #listeners = new Map<Listener, (() => void) | undefined>();
  #reading: AbortController | undefined;

  constructor(connection: StoreConnection, clock: Clock) {
    this.#connection = connection;
    this.#clock = clock;
    const keys = keysOf(connection.keyPrefix);
    this.#key = keys.events;
    this.#journalKey = keys.journal;
  }

  /** `onRestart`: the feed reads from now on; the listener may have missed events before. */
  subscribe(listener: Listener, onRestart?: () => void): () => void {
    this.#listeners.set(listener, onRestart);
    if (!this.#reading) {
      this.#reading = new AbortController();
      void this.#read(this.#reading.signal);
    }
    return () => {
      this.#listeners.delete(listener);
      if (this.#listeners.size === 0) this.close();
    };
  }

  get listeners(): number {
    return this.#listeners.size;
  }

  close(): void {
    this.#reading?.abort();
    this.#reading = undefined;
  }

  /** Events after `since` (exclusive), oldest first, one page. */
  async replay(since: string): Promise<StoreEvent[]> {
    const rows = await this.#connection.command('events', (client) =>
      client.xrange(this.#key, since === '' ? '-' : `(${since}`, '+', 'COUNT', replayPage),
    );
    return rows.map(toEvent);
  }

  /** The newest events, oldest first. */
  async latest(limit: number): Promise<StoreEvent[]> {
    const rows = await this.#connection.command('events', (client) =>
      client.xrevrange(this.#key, '+', '-', 'COUNT', limit),
    );
    return rows.map(toEvent).reverse();
  }

  /** The id of the newest rare event; `0-0` without one. */
  async newestRareId(): Promise<string> {
    const rows = await this.#connection.command('events', (client) =>
      client.xrevrange(this.#journalKey, '+', '-', 'COUNT', 1),
    );
    return rows[0]?.[0] ?? '0-0';
  }

  /** True if the store has such a rare event of the pod after `since`. */
  async hasRareEvent(type: string, podName: string, since: string): Promise<boolean> {
    let last = since;
    for (;;) {
      const rows = await this.#connection.command('events', (client) =>
        client.xrange(this.#journalKey, `(${last}`, '+', 'COUNT', replayPage),
      );
      if (rows.map(toEvent).some((event) => event.type === type && event.fields.pod === podName)) return true;
      if (rows.length < replayPage) return false;
      last = rows.at(-1)?.[0] ?? last;
    }
  }

  async #read(signal: AbortSignal): Promise<void> {
    let last: string | undefined;
    while (!signal.aborted) {
      const client = this.#connection.blockingClient();
      const stop = () => client.disconnect();
      signal.addEventListener('abort', stop, { once: true });
      try {
        await client.connect();
        // The first connection starts at the newest event, later ones where the previous one stopped.
        last ??= (await client.xrevrange(this.#key, '+', '-', 'COUNT', 1))[0]?.[0] ?? '0-0';
        for (const onRestart of this.#listeners.values()) onRestart?.();
        while (!signal.aborted) {
          const reply = (await client.xread(
            'COUNT',
            replayPage,
            'BLOCK',
            5000,
            'STREAMS',
            this.#key,
            last,
          )) as [string, EventRow[]][] | null;
          for (const row of reply?.[0]?.[1] ?? []) {
            last = row[0];
            const event = toEvent(row);
            for (const listener of this.#listeners.keys()) listener(event);
          }
        }
      } catch {
        // The main connection reports the error; here the read is only retried.
        await this.#clock.sleep(500, signal);
      } finally {
        signal.removeEventListener('abort', stop);
        // A second disconnect of an ended client leaves a timer that keeps the process alive for two seconds.
        if (client.status !== 'end') client.disconnect();
      }
    }
  }
}

export function toEvent([id, flat]: EventRow): StoreEvent {
  const { type = 'unknown', ...rest } = Object.fromEntries(pairs(flat));
  return { id, type, at: new Date(Number(id.split('-')[0])).toISOString(), fields: rest };
}
