/**
 * Pauses claiming while sessions fail: what cannot be finished is not begun. Three failures in a row open it, or
 * finished work that could not be written; then a probe asks after 1, 2, 4 ... 30 s, and the first answer closes it,
 * after what was spooled has been written.
 */
import type { Clock } from '../clock.js';

const failuresToOpen = 3;
const longestPauseMs = 30_000;

export interface BreakerOptions {
  clock: Clock;
  probe(): Promise<void>;
  /** The database answers again: whatever waited for that comes first. */
  onBack(): Promise<void>;
  onChange(isOpen: boolean): void;
}

export class Breaker {
  readonly #options: BreakerOptions;
  readonly #stopping = new AbortController();
  #failures = 0;
  #closing: Promise<void> | undefined;

  constructor(options: BreakerOptions) {
    this.#options = options;
  }

  get isOpen(): boolean {
    return this.#closing !== undefined;
  }

  succeeded(): void {
    this.#failures = 0;
  }

  failed(): void {
    this.#failures += 1;
    if (this.#failures >= failuresToOpen) this.open();
  }

  open(): void {
    if (this.#closing || this.#stopping.signal.aborted) return;
    this.#options.onChange(true);
    this.#closing = this.#untilBack();
  }

  /** Resolves when sessions can be had, at once if nothing is wrong, or when the signal says so. */
  async ready(signal: AbortSignal): Promise<void> {
    while (this.#closing && !signal.aborted && !this.#stopping.signal.aborted) {
      let giveUp = () => {};
      const gaveUp = new Promise<void>((resolve) => {
        giveUp = resolve;
      });
      signal.addEventListener('abort', giveUp, { once: true });
      await Promise.race([this.#closing, gaveUp]);
      signal.removeEventListener('abort', giveUp);
    }
  }

  /** Resolves when no probe is under way; it stays as it is. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#closing;
  }

  async #untilBack(): Promise<void> {
    const { clock, probe, onBack, onChange } = this.#options;
    const { signal } = this.#stopping;
    for (let pauseMs = 1000; ; pauseMs = Math.min(2 * pauseMs, longestPauseMs)) {
      await clock.sleep(pauseMs * (1 - 0.2 * clock.random()), signal);
      if (signal.aborted) return;
      try {
        await probe();
        await onBack();
        break;
      } catch {
        // Not back yet.
      }
    }
    this.#failures = 0;
    this.#closing = undefined;
    onChange(false);
  }
}
