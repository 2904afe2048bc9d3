/**
 * The lock as an elector has observed it, and since when by its own clock.
 *
 * Times in the record are of another clock and never used. A holder counts as alive until its record has not changed for
 * its whole duration, measured from when this version was first *received* here. A missing record (a deleted Lease, a
 * flushed store) does not end a leadership: the leader writes it again as soon as it notices, so its absence has to last
 * as long as a stale holder. Only an elector that never saw a record takes the lock at once, or the first start would
 * wait for a leader that does not exist; and, where the lock may lose its data (`forgets`), the process that wrote the
 * last record.
 */
import type { Clock } from '../clock.js';
import type { HeldRecord } from './leadership.js';

/** The longest duration that the configuration allows; a longer one was not written by an elector. */
const maxDurationMs = 3_600_000;

export class ObservedLock {
  #record: HeldRecord | undefined;
  #isMissing = false;
  #sinceMs = 0;

  constructor(
    private readonly clock: Clock,
    private readonly durationMs: number,
    private readonly forgets = false,
  ) {}

  /** Call it when the response has arrived: a holder may have renewed after the request was sent. */
  observe(record: HeldRecord | undefined): void {
    const isNew = record
      ? this.#isMissing || record.version !== this.#record?.version
      : !this.#isMissing && this.#record !== undefined;
    if (!isNew) return;
    this.#isMissing = record === undefined;
    this.#record = record ?? this.#record;
    this.#sinceMs = this.clock.monotonic();
  }

  /** The last record, also if it is missing now; undefined when its holder cannot lead any more. */
  get alive(): HeldRecord | undefined {
    const record = this.#record;
    if (record === undefined || (record.holder === '' && !this.#isMissing)) return undefined;
    const unchangedMs = this.clock.monotonic() - this.#sinceMs;
    return unchangedMs < this.#timeoutMs(record) ? record : undefined;
  }

  /** Whether no process but `writer` can lead now. */
  isFreeFor(writer: string): boolean {
    const { alive } = this;
    return alive === undefined || (alive.writer === writer && (!this.#isMissing || this.forgets));
  }

  /**
   * Never shorter than our own duration. A record edited by hand may have any: without the signature of a writer, at most
   * four times our own counts. After an edit of only the duration, deleting the record is the way out.
   */
  #timeoutMs({ durationMs, writer }: HeldRecord): number {
    const maxMs = this.#isMissing || writer === '' ? 4 * this.durationMs : maxDurationMs;
    return Math.max(this.durationMs, Math.min(durationMs, maxMs));
  }
}
