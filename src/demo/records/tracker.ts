/**
 * Keeps the book of all records from the moves that the database has logged: how many wait, run and are finished, who
 * holds which, and what becomes of those whose worker was killed. `twice` must stay 0, whoever is killed when: it
 * counts outcomes written for a record that had its outcome already.
 *
 * Only records that are not finished are kept in memory.
 */
import type { Clock } from '../../clock.js';
import { count, inSeconds } from '../lines.js';
import { nameOf } from '../lives.js';

export type RecordKind = 'sitemaps' | 'pages';

/** A row that has got a status. */
export interface Move {
  kind: RecordKind;
  record: string;
  status: 'Queued' | 'Processing' | 'Completed' | 'Failed';
  /** Whose connection it was: a life of a worker or a router, the demo, or a stranger. */
  by: string;
  url: string;
  /** The title, of a page that has been read. */
  found: string | null;
  error: string | null;
  /** It had failed, and somebody has asked for another try. */
  isRetry?: boolean;
}

/** The name of those who take records and know nothing of claims. */
export const stranger = 'another-program';

export interface KindCounts {
  queued: number;
  running: number;
  done: number;
  failed: number;
  /** The last one that was finished, in words. */
  latest: string;
}

/** What a killed worker has left behind. */
interface Estate {
  worker: string;
  sinceMs: number;
  records: number;
  /** Still in Processing, in the name of the dead. */
  stuck: Set<string>;
  returned: number;
  /** Whether that was told. */
  isTold: boolean;
  unfinished: Set<string>;
  /** In whose hands the others ended. */
  finishers: Set<string>;
}

interface OpenRecord {
  kind: RecordKind;
  /** Undefined: it waits. */
  holder: string | undefined;
}

export class RecordBook {
  readonly #clock: Clock;
  readonly #tell: (text: string) => void;
  readonly #open = new Map<string, OpenRecord>();
  readonly #finished = {
    sitemaps: { done: 0, failed: 0, latest: '' },
    pages: { done: 0, failed: 0, latest: '' },
  };
  readonly #estates = new Map<string, Estate>();
  #twice = 0;
  #returned = 0;
  #reclaimed = 0;

  constructor({ clock, tell }: { clock: Clock; tell: (text: string) => void }) {
    this.#clock = clock;
    this.#tell = tell;
  }

  get twice(): number {
    return this.#twice;
  }

  /** Records that were taken from a dead worker and queued again. */
  get returned(): number {
    return this.#returned;
  }

  /** In Processing, held by nobody alive. */
  get stuck(): number {
    const isStuck = ({ holder }: OpenRecord) => holder && (this.#estates.has(holder) || holder === stranger);
    return [...this.#open.values()].filter(isStuck).length;
  }

  /** How many that a stranger had left behind were queued again since this was last asked. */
  takeReclaimed(): number {
    const reclaimed = this.#reclaimed;
    this.#reclaimed = 0;
    return reclaimed;
  }

  counts(kind: RecordKind): KindCounts {
    const some = [...this.#open.values()].filter((record) => record.kind === kind);
    const running = some.filter(({ holder }) => holder !== undefined).length;
    return { queued: some.length - running, running, ...this.#finished[kind] };
  }

  heldBy(life: string): number {
    return [...this.#open.values()].filter(({ holder }) => holder === life).length;
  }

  /** The worker of this life has ended without giving anything back. Returns how many records it held. */
  died(life: string, sinceMs: number): number {
    const held = [...this.#open].flatMap(([key, { holder }]) => (holder === life ? [key] : []));
    if (held.length === 0) return 0;
    this.#estates.set(life, {
      worker: nameOf(life),
      sinceMs,
      records: held.length,
      stuck: new Set(held),
      returned: 0,
      isTold: false,
      unfinished: new Set(held),
      finishers: new Set(),
    });
    return held.length;
  }

  hear(move: Move): void {
    const key = `${move.kind} ${move.record}`;
    const before = this.#open.get(key);
    if (move.status === 'Queued') this.#queued(key, move, before);
    else if (move.status === 'Processing') this.#open.set(key, { kind: move.kind, holder: move.by });
    else this.#ended(key, move, before);
    for (const [life, estate] of this.#estates)
      if (estate.unfinished.has(key)) this.#settle(life, estate, key, move);
  }

  #queued(key: string, { kind, by, isRetry }: Move, before: OpenRecord | undefined): void {
    if (isRetry) this.#finished[kind].failed -= 1;
    if (before?.holder === stranger) this.#reclaimed += 1;
    // A worker that stops gives its own back.
    else if (before?.holder !== undefined && before.holder !== by) this.#returned += 1;
    this.#open.set(key, { kind, holder: undefined });
  }

  #ended(key: string, { kind, status, url, found, error }: Move, before: OpenRecord | undefined): void {
    if (!before) {
      this.#twice += 1;
      return;
    }
    this.#open.delete(key);
    const book = this.#finished[kind];
    book[status === 'Completed' ? 'done' : 'failed'] += 1;
    const { hostname, pathname } = new URL(url);
    const what = status === 'Failed' ? error : found;
    book.latest = `${hostname}${pathname}${what ? `: ${what.replace(/^GET \S+ /, '')}` : ''}`;
  }

  #settle(life: string, estate: Estate, key: string, { status, by }: Move): void {
    const { worker, sinceMs, records, stuck, finishers, unfinished } = estate;
    if (stuck.delete(key) && status === 'Queued') estate.returned += 1;
    if (!estate.isTold && stuck.size === 0 && estate.returned > 0) {
      estate.isTold = true;
      const took = inSeconds(this.#clock.monotonic() - sinceMs);
      this.#tell(`${count(estate.returned, 'record')} of ${worker} came back after ${took}`);
    }
    if (status !== 'Completed' && status !== 'Failed') return;
    unfinished.delete(key);
    finishers.add(by === life ? 'itself' : `${nameOf(by)}${nameOf(by) === worker ? ' (started again)' : ''}`);
    if (unfinished.size > 0) return;
    this.#estates.delete(life);
    const all = records === 1 ? `the record of ${worker} is` : `all ${records} records of ${worker} are`;
    const whom = [...finishers].sort().join(' and ');
    this.#tell(`${all} finished by ${whom}; finished twice since the start: ${this.#twice}`);
  }
}
