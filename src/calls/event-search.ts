/**
 * Looking back: events by what they are about, newest first, from the stream of all of them and from the journal, which
 * keeps the rare ones for longer. An event that is in both has the same id in both, and is given once.
 *
 * The store is read page by page and the pages are sifted here: a script that looked through everything would keep
 * calls waiting. A search looks at 20,000 events at most and the next goes on from there; the story of a call at 65,000,
 * which is all that the streams keep. Only a few run at a time.
 */
import { AppError } from '../errors.js';
import { type EventRow, type StoreEvent, toEvent } from './events.js';
import type { StoreConnection } from './store/connection.js';
import { keysOf } from './store/keys.js';

export interface EventFilter {
  types?: ReadonlySet<string> | undefined;
  call?: string | undefined;
  pod?: string | undefined;
  merchant?: string | undefined;
  /** In any field, whatever its case. */
  text?: string | undefined;
}

export interface FoundEvents {
  /** Newest first. */
  events: StoreEvent[];
  /** Where to read on; undefined at the end. */
  before: string | undefined;
}

/** About 1 ms of the store, and a few of ours. */
const pageSize = 500;
/** About as many as one request has time for; the next goes on from there. */
export const mostLookedAt = 20_000;
/** Events and journal together keep about 60,000. */
export const mostOfCall = 65_000;
const mostAtOnce = 4;

export class EventSearch {
  readonly #connection: StoreConnection;
  readonly #events: string;
  readonly #journal: string;
  #running = 0;

  constructor(connection: StoreConnection) {
    this.#connection = connection;
    const { events, journal } = keysOf(connection.keyPrefix);
    this.#events = events;
    this.#journal = journal;
  }

  /** At most `limit` that fit, older than `before`. */
  async find(filter: EventFilter, limit: number, before?: string): Promise<FoundEvents> {
    // Nothing is older than the first id there can be, and the store takes it for a mistake.
    if (before !== undefined && /^0+-0+$/.test(before)) return { events: [], before: undefined };
    return this.#alone(async () => {
      const events: StoreEvent[] = [];
      let lookedAt = 0;
      for await (const rows of this.#newestFirst(before)) {
        for (const row of rows) {
          lookedAt += 1;
          if (fits(row, filter)) events.push(toEvent(row));
          if (events.length >= limit || lookedAt >= mostLookedAt) return { events, before: row[0] };
        }
      }
      return { events, before: undefined };
    });
  }

  /** What is kept of one call, oldest first: among the newest `mostOfCall` events. */
  async ofCall(callSid: string): Promise<StoreEvent[]> {
    return this.#alone(async () => {
      const events: StoreEvent[] = [];
      let lookedAt = 0;
      for await (const rows of this.#newestFirst()) {
        for (const row of rows) if (fieldOf(row, 'call') === callSid) events.push(toEvent(row));
        lookedAt += rows.length;
        if (lookedAt >= mostOfCall) break;
      }
      return events.reverse();
    });
  }

  /**
   * Tells `visit` of the rare events of these types since then, newest first. The journal has
   * them all, as far as it reaches back; only what is older is looked for among the others.
   */
  async recent(
    types: ReadonlySet<string>,
    sinceMs: number,
    visit: (event: StoreEvent) => void,
  ): Promise<void> {
    return this.#alone(async () => {
      const [oldest] = await this.#page(this.#journal, '-', '+', 1);
      const since = String(sinceMs);
      const look = async (key: string, until: string) => {
        for await (const rows of this.#pages(key, until, since))
          for (const row of rows) if (types.has(fieldOf(row, 'type') ?? '')) visit(toEvent(row));
      };
      await look(this.#journal, '+');
      if (!oldest || newerFirst(since, oldest[0]) > 0)
        await look(this.#events, oldest ? `(${oldest[0]}` : '+');
    });
  }

  /** Since when every event is kept; undefined while there is none. */
  async keptSince(): Promise<string | undefined> {
    const [oldest] = await this.#page(this.#events, '-', '+', 1);
    return oldest && toEvent(oldest).at;
  }

  async #alone<T>(work: () => Promise<T>): Promise<T> {
    if (this.#running >= mostAtOnce) {
      throw new AppError(
        'too_many_requests',
        `${mostAtOnce} searches are under way on this router: try again in a moment`,
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

  /** Page by page, each merged at one go: a turn of the event loop for every event took three times as long. */
  async *#newestFirst(before?: string): AsyncGenerator<EventRow[]> {
    const from = before === undefined ? '+' : `(${before}`;
    const all = new Head(this.#pages(this.#events, from, '-'));
    const rare = new Head(this.#pages(this.#journal, from, '-'));
    for (;;) {
      await all.refill();
      await rare.refill();
      const merged: EventRow[] = [];
      while (all.hasNext && rare.hasNext) {
        const order = newerFirst(all.firstId, rare.firstId);
        if (order >= 0) rare.take(order > 0 ? merged : []);
        if (order <= 0) all.take(merged);
      }
      if (all.isOver) rare.takeAll(merged);
      if (rare.isOver) all.takeAll(merged);
      if (merged.length > 0) yield merged;
      if (all.isOver && rare.isOver) return;
    }
  }

  async *#pages(key: string, from: string, until: string): AsyncGenerator<EventRow[], undefined> {
    for (let end = from; ; ) {
      const rows = await this.#page(key, until, end, pageSize, true);
      if (rows.length > 0) yield rows;
      const last = rows.at(-1);
      if (!last || rows.length < pageSize) return undefined;
      end = `(${last[0]}`;
    }
  }

  #page(key: string, start: string, end: string, count: number, isReverse = false): Promise<EventRow[]> {
    return this.#connection.command('events', (client) =>
      isReverse
        ? client.xrevrange(key, end, start, 'COUNT', count)
        : client.xrange(key, start, end, 'COUNT', count),
    );
  }
}

/** Where a stream stands. */
class Head {
  readonly #pages: AsyncGenerator<EventRow[], undefined>;
  #rows: EventRow[] = [];
  #next = 0;
  #isOver = false;

  constructor(pages: AsyncGenerator<EventRow[], undefined>) {
    this.#pages = pages;
  }

  async refill(): Promise<void> {
    if (this.hasNext || this.#isOver) return;
    const { value } = await this.#pages.next();
    this.#rows = value ?? [];
    this.#next = 0;
    this.#isOver = value === undefined;
  }

  get hasNext(): boolean {
    return this.#next < this.#rows.length;
  }

  /** Nothing is left, here or in the store. */
  get isOver(): boolean {
    return this.#isOver;
  }

  get firstId(): string {
    return this.#rows[this.#next]?.[0] ?? '';
  }

  take(into: EventRow[]): void {
    const row = this.#rows[this.#next];
    if (row) into.push(row);
    this.#next += 1;
  }

  takeAll(into: EventRow[]): void {
    while (this.hasNext) this.take(into);
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

/** Of ids, for a sort: negative if `a` is newer. A time alone is the first of its millisecond. */
function newerFirst(a: string, b: string): number {
  if (a === b) return 0;
  const [aMs = '', aSequence = '0'] = a.split('-');
  const [bMs = '', bSequence = '0'] = b.split('-');
  return Number(bMs) - Number(aMs) || Number(bSequence) - Number(aSequence);
}
