/**
 * What an elector has seen of the lock, and since when by its own clock.
 *
 * Times inside the record are somebody else's clock and are never looked at. A holder counts as alive until its
 * record has stood still for its whole duration, measured from the moment this version was first *received* here.
 * A record that vanishes (a deleted Lease, a flushed store) tells nothing of who leads, and the leader writes it
 * again as soon as it notices: its absence has to last as long as a silent holder. Only an elector that has never
 * seen a record takes the lock at once, or the first start of all would wait for nobody; and, where the lock may lose all
 * it holds (`forgets`), the process whose own record was the last it saw.
 */
import type { Clock } from '../clock.js';
import type { HeldRecord } from './lock.js';

/** The longest duration the configuration allows; whatever is beyond that was not written by an elector. */
const longestDurationMs = 3_600_000;

export class Sighting {
  readonly #clock: Clock;
  readonly #durationMs: number;
  readonly #forgets: boolean;
  #record: HeldRecord | undefined;
  #isGone = false;
  #sinceMs = 0;

  constructor(clock: Clock, durationMs: number, forgets = false) {
    this.#clock = clock;
    this.#durationMs = durationMs;
    this.#forgets = forgets;
  }

  /** To be called when the answer has come: a holder may have renewed after the question was sent. */
  see(record: HeldRecord | undefined): void {
    const isNews = record
      ? this.#isGone || record.version !== this.#record?.version
      : !this.#isGone && this.#record !== undefined;
    if (!isNews) return;
    this.#isGone = record === undefined;
    this.#record = record ?? this.#record;
    this.#sinceMs = this.#clock.monotonic();
  }

  /** The record that was there last, whether or not it is gone; undefined when its holder cannot lead any more. */
  get living(): HeldRecord | undefined {
    const record = this.#record;
    if (record === undefined || (record.holder === '' && !this.#isGone)) return undefined;
    const seenForMs = this.#clock.monotonic() - this.#sinceMs;
    return seenForMs < this.#patienceMs(record) ? record : undefined;
  }

  /** Nobody but `writer` itself can lead now. */
  isFreeFor(writer: string): boolean {
    const living = this.living;
    return living === undefined || (living.writer === writer && (!this.#isGone || this.#forgets));
  }

  /** Never shorter than our own: a record written by hand may say anything, and deleting it must be a way out. */
  #patienceMs({ durationMs }: HeldRecord): number {
    const longestMs = this.#isGone ? 4 * this.#durationMs : longestDurationMs;
    return Math.max(this.#durationMs, Math.min(durationMs, longestMs));
  }
}
