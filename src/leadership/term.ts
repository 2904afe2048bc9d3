/**
 * One term of a leader: from winning the lock until it was stopped, another process held the lock, its work ended, or it
 * could not be renewed in time. It never resumes.
 *
 * The deadline counts from when the last successful renewal was *sent*: an observer receives that renewal later and waits
 * longer. A timer enforces it, so a hanging request delays nothing. After a pause of the process the timer is late;
 * therefore `isCurrent` compares with the clock each time.
 */
import type { Clock } from '../clock.js';

/**
 * `expired`: not renewed in time. `taken`: another process holds the lock. `unable`: this replica cannot do the work.
 * `finished`: its work ended.
 */
export type TermEnd = 'stopped' | 'expired' | 'taken' | 'unable' | 'finished';

export interface TermOptions {
  clock: Clock;
  renewDeadlineMs: number;
  /** When the write that won the lock was sent. */
  sentAtMs: number;
  acquiredAt: string;
  transitions: number;
  version: string;
  onEnd: (end: TermEnd) => void;
}

export class Term {
  readonly acquiredAt: string;
  readonly transitions: number;
  readonly startedMs: number;
  /** Of our last acknowledged write. */
  version: string;
  readonly #options: TermOptions;
  readonly #ended = new AbortController();
  #deadlineMs = 0;
  #cancelTimer = () => {};
  #end: TermEnd | undefined;

  constructor(options: TermOptions) {
    this.#options = options;
    this.acquiredAt = options.acquiredAt;
    this.transitions = options.transitions;
    this.version = options.version;
    this.startedMs = options.sentAtMs;
    this.#setDeadline(options.sentAtMs);
  }

  get signal(): AbortSignal {
    return this.#ended.signal;
  }

  /** How it ended; undefined until the end is noticed. */
  get end(): TermEnd | undefined {
    return this.#end;
  }

  get isCurrent(): boolean {
    return this.#end === undefined && this.leftMs > 0;
  }

  /** Until the deadline, also after the end: a release must not be later either. */
  get leftMs(): number {
    return Math.max(0, this.#deadlineMs - this.#options.clock.monotonic());
  }

  /** A renewal acknowledged after the deadline is too late, although it was written. */
  renewed(sentAtMs: number, version: string): void {
    this.version = version;
    if (this.isCurrent) this.#setDeadline(sentAtMs);
  }

  finish(end: TermEnd): void {
    if (this.#end !== undefined) return;
    this.#end = end;
    this.#cancelTimer();
    this.#ended.abort();
    this.#options.onEnd(end);
  }

  #setDeadline(sentAtMs: number): void {
    const { clock, renewDeadlineMs } = this.#options;
    this.#deadlineMs = sentAtMs + renewDeadlineMs;
    this.#cancelTimer();
    this.#cancelTimer = clock.after(this.leftMs, () => this.finish('expired'));
  }
}
