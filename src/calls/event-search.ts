/**
 * Searches events by subject, newest first: in the stream of all events, and then in the journal, which has the same rare
 * events with the same ids, and keeps them for longer.
 *
 * It reads pages from the store and filters them here: a script that reads everything would delay calls. A search reads at
 * most 20,000 events, and the next one continues from there; the events of a call are searched among 65,000, all that the
 * streams keep. At most four searches run at a time.
 */
import { AppError } from '../errors.js';
import { type EventRow, type StoreEvent, toEvent } from './events.js';
import type { StoreConnection } from './store/connection.js';
import { type Keys, keysOf } from './store/keys.js';

export interface EventFilter {
  types?: ReadonlySet<string> | undefined;
  call?: string | undefined;
  pod?: string | undefined;
  merchant?: string | undefined;
  /** In any field, ignoring case. */
  text?: string | undefined;
}

export interface FoundEvents {
  /** Newest first. */
  events: StoreEvent[];
  /** Pass it to continue; undefined at the end. */
  before: string | undefined;
}

/** A page takes the store about 1 ms, and the router a few. */
const pageSize = 500;
/** About as many as fit into the time of one request. */
export const maxSearched = 20_000;
/** `events` and `journal` together keep about 60,000. */
export const maxSearchedForCall = 65_000;
const maxConcurrent = 4;

export class EventSearch {
  readonly #connection: StoreConnection;
  readonly #keys: Keys;
  #running = 0;

  constructor(connection: StoreConnection) {
    this.#connection = connection;
    this.#keys = keysOf(connection.keyPrefix);
  }

  /** At most `limit` matching events older than `before`. */
  async find(filter: EventFilter, limit: number, before?: string): Promise<FoundEvents> {
    // No event is older than the lowest id, and the store rejects such a range.
    if (before !== undefined && /^0+-0+$/.test(before)) return { events: [], before: undefined };
    return this.#find(filter, limit, maxSearched, before);
  }

  /** The events of one call, oldest first, among the newest `maxSearchedForCall`. */
  async ofCall(callSid: string): Promise<StoreEvent[]> {
    const { events } = await this.#find({ call: callSid }, Number.POSITIVE_INFINITY, maxSearchedForCall);
    return events.reverse();
  }

  #find(filter: EventFilter, limit: number, most: number, before?: string): Promise<FoundEvents> {
    return this.#alone(async () => {
      const events: StoreEvent[] = [];
      let lookedAt = 0;
      for await (const rows of this.#newestFirst(before)) {
        for (const row of rows) {
          lookedAt += 1;
          if (fits(row, filter)) events.push(toEvent(row));
          if (events.length >= limit || lookedAt >= most) return { events, before: row[0] };
        }
      }
      return { events, before: undefined };
    });
  }

  /** Visits rare events of these types since a time, newest first: in the journal, and in `events` where that is older. */
  async recent(
    types: ReadonlySet<string>,
    sinceMs: number,
    visit: (event: StoreEvent) => void,
  ): Promise<void> {
    return this.#alone(async () => {
      const { events, journal } = this.#keys;
      const oldest = await this.#oldest(journal);
      const look = async (key: string, from: string) => {
        for await (const rows of this.#pages(key, from, String(sinceMs)))
          for (const row of rows) if (types.has(fieldOf(row, 'type') ?? '')) visit(toEvent(row));
      };
      await look(journal, '+');
      // Reads nothing if the journal reaches back to `sinceMs`.
      await look(events, oldest ? `(${oldest[0]}` : '+');
    });
  }

  /** The time of the oldest event in `events`, or undefined. */
  async keptSince(): Promise<string | undefined> {
    const oldest = await this.#oldest(this.#keys.events);
    return oldest && toEvent(oldest).at;
  }

  async #alone<T>(work: () => Promise<T>): Promise<T> {
    if (this.#running >= maxConcurrent) {
      throw new AppError(
        'too_many_requests',
        `${maxConcurrent} event searches are already running on this router: retry in a moment`,
        { retryAfterSeconds: 1 },
      );
    }
    this.#running += 1;
    try {
      return await work();
    } finally {
      this.#running -= 1;
    }
  }

  /** Whole pages: yielding single events took three times as long. The journal continues where `events` ends. */
  async *#newestFirst(before?: string): AsyncGenerator<EventRow[]> {
    let from = before === undefined ? '+' : `(${before}`;
    for (const key of [this.#keys.events, this.#keys.journal]) {
      for await (const rows of this.#pages(key, from, '-')) {
        from = `(${rows.at(-1)?.[0]}`;
        yield rows;
      }
    }
  }

  async *#pages(key: string, from: string, until: string): AsyncGenerator<EventRow[]> {
    for (let start = from; ; ) {
      const rows = await this.#connection.command('events', (client) =>
        client.xrevrange(key, start, until, 'COUNT', pageSize),
      );
      if (rows.length > 0) yield rows;
      if (rows.length < pageSize) return;
      start = `(${rows.at(-1)?.[0]}`;
    }
  }

  async #oldest(key: string): Promise<EventRow | undefined> {
    const rows = await this.#connection.command('events', (client) =>
      client.xrange(key, '-', '+', 'COUNT', 1),
    );
    return rows[0];
  }
}

function fieldOf([, flat]: EventRow, name: string): string | undefined {
  for (let i = 0; i < flat.length; i += 2) if (flat[i] === name) return flat[i + 1];
  return undefined;
}

function fits(row: EventRow, filter: EventFilter): boolean {
  const { types, call, pod, merchant, text } = filter;
  if (types && !types.has(fieldOf(row, 'type') ?? '')) return false;
  if (call !== undefined && fieldOf(row, 'call') !== call) return false;
  if (pod !== undefined && fieldOf(row, 'pod') !== pod) return false;
  if (merchant !== undefined && fieldOf(row, 'merchant') !== merchant) return false;
  if (text === undefined) return true;
  const wanted = text.toLowerCase();
  return row[1].some((value, i) => i % 2 === 1 && value.toLowerCase().includes(wanted));
}
