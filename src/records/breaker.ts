/**
 * Pauses claiming while database sessions fail, so that no work starts that could not be finished. Opens after three
 * failures in a row, or when a finished record could not be written. Then it probes after 1, 2, 4 ... 30 s. The first
 * reply closes it, after spooled outcomes have been written.
 */
import { type Clock, unlessAborted } from '../clock.js';
import { Backoff } from '../loop.js';

const failuresToOpen = 3;

export interface BreakerOptions {
  clock: Clock;
  probe(): Promise<void>;
  /** Runs before the breaker closes. */
  onBack(): Promise<void>;
  onChange(isOpen: boolean): void;
}

export class Breaker {
  readonly #stopping = new AbortController();
  #failures = 0;
  #closing: Promise<void> | undefined;

  constructor(private readonly options: BreakerOptions) {}

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
    this.options.onChange(true);
    this.#closing = this.#untilBack();
  }

  /** Resolves when the breaker is closed, or the signal aborts. */
  async ready(signal: AbortSignal): Promise<void> {
    while (this.#closing && !signal.aborted && !this.#stopping.signal.aborted)
      await unlessAborted(this.#closing, signal);
  }

  /** Resolves when no probe runs; the breaker keeps its state. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#closing;
  }

  async #untilBack(): Promise<void> {
    const { clock, probe, onBack, onChange } = this.options;
    const { signal } = this.#stopping;
    for (const backoff = new Backoff(); ; ) {
      await clock.sleep(backoff.after(0) * (1 - 0.2 * clock.random()), signal);
      if (signal.aborted) return;
      try {
        await probe();
        await onBack();
        break;
      } catch {
        // Still unreachable.
      }
    }
    this.#failures = 0;
    this.#closing = undefined;
    onChange(false);
  }
}
