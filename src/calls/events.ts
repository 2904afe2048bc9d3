/**
 * The event stream of the store as a feed. It reads only while there are listeners, on a separate connection, and restarts
 * after an error. Listeners may then miss events, so everything that waits for an event polls as well.
 */
import type { Clock } from '../clock.js';
import type { StoreConnection } from './store/connection.js';
import { type Keys, keysOf } from './store/keys.js';
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
  readonly #keys: Keys;
  readonly #listeners = new Map<Listener, (() => void) | undefined>();
  #reading: AbortController | undefined;

  constructor(connection: StoreConnection, clock: Clock) {
    this.#connection = connection;
    this.#clock = clock;
    this.#keys = keysOf(connection.keyPrefix);
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
    return (await this.#rows(this.#keys.events, since === '' ? '-' : `(${since}`)).map(toEvent);
  }

  /** The id of the newest event; `0-0` without one. */
  newestId(): Promise<string> {
    return this.#newestId(this.#keys.events);
  }

  /** The same among the rare events. */
  newestRareId(): Promise<string> {
    return this.#newestId(this.#keys.journal);
  }

  /** True if the store has such a rare event of the pod after `since`. */
  async hasRareEvent(type: string, podName: string, since: string): Promise<boolean> {
    let last = since;
    for (;;) {
      const rows = await this.#rows(this.#keys.journal, `(${last}`);
      if (rows.map(toEvent).some((event) => event.type === type && event.fields.pod === podName)) return true;
      if (rows.length < replayPage) return false;
      last = rows.at(-1)?.[0] ?? last;
    }
  }

  #rows(key: string, from: string): Promise<EventRow[]> {
    return this.#connection.command('events', (client) => client.xrange(key, from, '+', 'COUNT', replayPage));
  }

  async #newestId(key: string): Promise<string> {
    const rows = await this.#connection.command('events', (client) =>
      client.xrevrange(key, '+', '-', 'COUNT', 1),
    );
    return rows[0]?.[0] ?? '0-0';
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
        last ??= (await client.xrevrange(this.#keys.events, '+', '-', 'COUNT', 1))[0]?.[0] ?? '0-0';
        for (const onRestart of this.#listeners.values()) onRestart?.();
        while (!signal.aborted) {
          const read = ['COUNT', replayPage, 'BLOCK', 5000, 'STREAMS', this.#keys.events, last] as const;
          const reply = (await client.xread(...read)) as [string, EventRow[]][] | null;
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
