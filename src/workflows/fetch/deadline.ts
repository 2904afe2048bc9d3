/**
 * The end of one fetch, redirects and body included: its total time, the longest silence, or the caller's signal,
 * whichever comes first. Afterwards `signal.reason` is the error to show.
 */
import type { Clock } from '../../clock.js';
import { formatDuration } from '../../config/durations.js';
import { FetchError, shown } from './fetch-error.js';

export interface Limits {
  readonly totalMs: number;
  readonly silenceMs: number;
}

export class Deadline {
  readonly #ending = new AbortController();
  readonly #clock: Clock;
  readonly #limits: Limits;
  readonly #caller: AbortSignal;
  readonly #what: string;
  readonly #cancelTotal: () => void;
  #cancelSilence = () => {};
  readonly #callerEnds = () => this.#end(`was given up: ${messageOf(this.#caller.reason)}`);

  constructor(clock: Clock, limits: Limits, caller: AbortSignal, url: string) {
    this.#clock = clock;
    this.#limits = limits;
    this.#caller = caller;
    this.#what = `GET ${shown(url)}`;
    this.#cancelTotal = clock.after(limits.totalMs, () =>
      this.#end(`took longer than ${formatDuration(limits.totalMs)}`),
    );
    if (caller.aborted) this.#callerEnds();
    else caller.addEventListener('abort', this.#callerEnds, { once: true });
  }

  get signal(): AbortSignal {
    return this.#ending.signal;
  }

  /** From now on the server is expected to send something. */
  listen(): void {
    this.#cancelSilence();
    this.#cancelSilence = this.#clock.after(this.#limits.silenceMs, () =>
      this.#end(`sent nothing for ${formatDuration(this.#limits.silenceMs)}`),
    );
  }

  /** It did. While we work on it, silence is ours. */
  heard(): void {
    this.#cancelSilence();
  }

  close(): void {
    this.#cancelTotal();
    this.#cancelSilence();
    this.#caller.removeEventListener('abort', this.#callerEnds);
  }

  #end(how: string): void {
    this.#ending.abort(new FetchError(`${this.#what} ${how}`));
  }
}

function messageOf(reason: unknown): string {
  return reason instanceof Error ? reason.message : String(reason);
}
