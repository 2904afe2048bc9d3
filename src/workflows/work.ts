/**
 * Work on the input of strangers, counted in characters looked at and done in slices: between two slices the event loop
 * runs, so a hostile page or sitemap delays other records by some milliseconds at a time. The signal ends it.
 */
import type { Clock } from '../clock.js';

/** Takes a few milliseconds, whatever the input. */
const sliceSize = 100_000;

export class Work {
  readonly #clock: Clock;
  readonly #signal: AbortSignal;
  #left = sliceSize;
  #total = 0;

  constructor(clock: Clock, signal: AbortSignal) {
    this.#clock = clock;
    this.#signal = signal;
  }

  /** Everything counted so far. */
  get total(): number {
    return this.#total;
  }

  count(characters: number): void {
    this.#total += characters;
    this.#left -= characters;
  }

  /** Lets the event loop run if a slice is used up; to be called between small steps. Throws the signal's reason. */
  async rest(): Promise<void> {
    if (this.#left > 0) return;
    this.#left = sliceSize;
    await this.#clock.sleep(0);
    this.#signal.throwIfAborted();
  }
}
