/**
 * Tracks all records from the status changes that the database has logged: how many are queued, running and finished,
 * who holds which, and the recovery of those of a killed worker. `twice` must stay 0: it counts outcomes written for a
 * record that was finished already.
 *
 * Only unfinished records are kept in memory.
 */
import type { Clock } from '../../clock.js';
import { count, inSeconds } from '../lines.js';
import { nameOf } from '../processes.js';

type RecordKind = 'sitemaps' | 'pages';

/** A row was written with this status. */
export interface StatusChange {
  kind: RecordKind;
  record: string;
  status: 'Queued' | 'Processing' | 'Completed' | 'Failed';
  /** The application name of the connection: an instance of a worker or router, the demo, or `externalProgram`. */
  by: string;
  url: string;
  /** The title of a page. */
  title: string | null;
  error: string | null;
  /** The record had failed and was requeued by hand. */
  isRetry?: boolean;
}

/** A program that takes records without a claim. */
export const externalProgram = 'another-program';

export type KindCounts = ReturnType<RecordTracker['counts']>;

/** The records of a worker that exited without finishing them. */
interface LostRecords {
  worker: string;
  sinceMs: number;
  total: number;
  /** Still in Processing. */
  stuck: Set<string>;
  requeued: number;
  isRequeueLogged: boolean;
  unfinished: Set<string>;
  /** Who finished the others. */
  finishers: Set<string>;
}

interface OpenRecord {
  kind: RecordKind;
  /** Undefined: queued. */
  holder: string | undefined;
}

export class RecordTracker {
  readonly #open = new Map<string, OpenRecord>();
  /** `latest`: the record that was finished last, with its outcome. */
  readonly #finished = {
    sitemaps: { done: 0, failed: 0, latest: '' },
    pages: { done: 0, failed: 0, latest: '' },
  };
  readonly #lost = new Map<string, LostRecords>();
  /** Outcomes written for a finished record. */
  twice = 0;
  /** Records taken from an exited worker and queued again. */
  requeued = 0;
  #reclaimed = 0;

  constructor(
    private readonly clock: Clock,
    private readonly log: (text: string) => void,
  ) {}

  /** Records in Processing without a running worker. */
  get stuck(): number {
    const isStuck = ({ holder }: OpenRecord) =>
      holder && (this.#lost.has(holder) || holder === externalProgram);
    return [...this.#open.values()].filter(isStuck).length;
  }

  /** How many records of the external program were queued again since the last call. */
  takeReclaimed(): number {
    const reclaimed = this.#reclaimed;
    this.#reclaimed = 0;
    return reclaimed;
  }

  counts(kind: RecordKind) {
    const open = [...this.#open.values()].filter((record) => record.kind === kind);
    const running = open.filter(({ holder }) => holder !== undefined).length;
    return { queued: open.length - running, running, ...this.#finished[kind] };
  }

  heldBy(instance: string): number {
    return [...this.#open.values()].filter(({ holder }) => holder === instance).length;
  }

  /** An instance has exited. Returns how many records it held. */
  exited(instance: string, sinceMs: number): number {
    const held = [...this.#open].flatMap(([key, { holder }]) => (holder === instance ? [key] : []));
    if (held.length > 0)
      this.#lost.set(instance, {
        worker: nameOf(instance),
        sinceMs,
        total: held.length,
        stuck: new Set(held),
        requeued: 0,
        isRequeueLogged: false,
        unfinished: new Set(held),
        finishers: new Set(),
      });
    return held.length;
  }

  apply(change: StatusChange): void {
    const key = `${change.kind} ${change.record}`;
    const before = this.#open.get(key);
    if (change.status === 'Queued') this.#queued(key, change, before);
    else if (change.status === 'Processing') this.#open.set(key, { kind: change.kind, holder: change.by });
    else this.#ended(key, change, before);
    for (const [instance, lost] of this.#lost)
      if (lost.unfinished.has(key)) this.#settle(instance, lost, key, change);
  }

  #queued(key: string, { kind, by, isRetry }: StatusChange, before: OpenRecord | undefined): void {
    if (isRetry) this.#finished[kind].failed -= 1;
    if (before?.holder === externalProgram) this.#reclaimed += 1;
    // A worker that stops cleanly requeues its own records.
    else if (before?.holder !== undefined && before.holder !== by) this.requeued += 1;
    this.#open.set(key, { kind, holder: undefined });
  }

  #ended(
    key: string,
    { kind, status, url, title, error }: StatusChange,
    before: OpenRecord | undefined,
  ): void {
    if (!before) {
      this.twice += 1;
      return;
    }
    this.#open.delete(key);
    const finished = this.#finished[kind];
    finished[status === 'Completed' ? 'done' : 'failed'] += 1;
    const { hostname, pathname } = new URL(url);
    const outcome = status === 'Failed' ? error : title;
    finished.latest = `${hostname}${pathname}${outcome ? `: ${outcome.replace(/^GET \S+ /, '')}` : ''}`;
  }

  #settle(instance: string, lost: LostRecords, key: string, { status, by }: StatusChange): void {
    const { worker, sinceMs, total, stuck, finishers, unfinished } = lost;
    if (stuck.delete(key) && status === 'Queued') lost.requeued += 1;
    if (!lost.isRequeueLogged && stuck.size === 0 && lost.requeued > 0) {
      lost.isRequeueLogged = true;
      const after = inSeconds(this.clock.monotonic() - sinceMs);
      this.log(`${count(lost.requeued, 'record')} of ${worker} requeued after ${after}`);
    }
    if (status !== 'Completed' && status !== 'Failed') return;
    unfinished.delete(key);
    const finisher = `${nameOf(by)}${nameOf(by) === worker ? ' (restarted)' : ''}`;
    finishers.add(by === instance ? 'itself' : finisher);
    if (unfinished.size > 0) return;
    this.#lost.delete(instance);
    const all = total === 1 ? `the record of ${worker}` : `all ${total} records of ${worker}`;
    const names = [...finishers].sort().join(' and ');
    this.log(`${all} finished by ${names}; finished twice so far: ${this.twice}`);
  }
}
