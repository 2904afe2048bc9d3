/**
 * Splits work on untrusted input into slices, counted in characters. The event loop runs between two slices, so a hostile
 * page or sitemap delays other records by a few milliseconds at a time. The signal ends the work.
 */
import type { Clock } from '../clock.js';

/** Takes a few milliseconds for any input. */
const sliceSize = 100_000;

export class WorkSlices {
  /** The characters counted so far. */
  total = 0;
  #left = sliceSize;

  constructor(
    private readonly clock: Clock,
    private readonly signal: AbortSignal,
  ) {}

  count(characters: number): void {
    this.total += characters;
    this.#left -= characters;
  }

  /** Lets the event loop run after a full slice. Call it between small steps. Throws the signal's reason. */
  async rest(): Promise<void> {
    if (this.#left > 0) return;
    this.#left = sliceSize;
    await this.clock.sleep(0);
    this.signal.throwIfAborted();
  }
}
