/**
 * One term of a leader. It is over when it was stopped, when somebody else holds the lock, when its work has ended,
 * or when it could not be renewed in time, whichever comes first; nothing revives it.
 *
 * The deadline counts from the moment the last successful renewal was *sent*: whoever observes that renewal can
 * only have seen it later, and waits longer. A timer enforces it, so a request that hangs delays nothing. After a
 * pause of the whole process the timer comes late: therefore `isCurrent` compares with the clock each time.
 */
import type { Clock } from '../clock.js';

/** `expired`: not renewed in time. `taken`: the lock is somebody else's. `finished`: its work ended by itself. */
export type TermEnd = 'stopped' | 'expired' | 'taken' | 'finished';

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
  /** Of our latest write that is known to have been done. */
  version: string;
  readonly startedMs: number;
  readonly #clock: Clock;
  readonly #renewDeadlineMs: number;
  readonly #onEnd: (end: TermEnd) => void;
  readonly #over = new AbortController();
  #deadlineMs = 0;
  #cancelTimer = () => {};
  #end: TermEnd | undefined;

  constructor(options: TermOptions) {
    this.#clock = options.clock;
    this.#renewDeadlineMs = options.renewDeadlineMs;
    this.#onEnd = options.onEnd;
    this.acquiredAt = options.acquiredAt;
    this.transitions = options.transitions;
    this.version = options.version;
    this.startedMs = options.sentAtMs;
    this.#countFrom(options.sentAtMs);
  }

  get signal(): AbortSignal {
    return this.#over.signal;
  }

  /** How it ended; undefined while nobody has noticed that it has. */
  get end(): TermEnd | undefined {
    return this.#end;
  }

  get isCurrent(): boolean {
    return this.#end === undefined && this.leftMs > 0;
  }

  /** Until the deadline; it goes on counting after the end, because a release must not come later either. */
  get leftMs(): number {
    return Math.max(0, this.#deadlineMs - this.#clock.monotonic());
  }

  /** A renewal that comes back after the deadline is too late, although it was done. */
  renewed(sentAtMs: number, version: string): void {
    this.version = version;
    if (this.isCurrent) this.#countFrom(sentAtMs);
  }

  finish(end: TermEnd): void {
    if (this.#end !== undefined) return;
    this.#end = end;
    this.#cancelTimer();
    this.#over.abort();
    this.#onEnd(end);
  }

  #countFrom(sentAtMs: number): void {
    this.#deadlineMs = sentAtMs + this.#renewDeadlineMs;
    this.#cancelTimer();
    this.#cancelTimer = this.#clock.after(this.leftMs, () => this.finish('expired'));
  }
}
