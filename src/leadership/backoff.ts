/** The pause after leader work that ended by itself: 1, 2, 4 ... 30 s, starting over after a healthy minute. */
const firstMs = 1000;
const longestMs = 30_000;
const healthyAfterMs = 60_000;

export class Backoff {
  #nextMs = firstMs;

  /** `ranMs`: how long it had worked this time. */
  after(ranMs: number): number {
    if (ranMs >= healthyAfterMs) this.#nextMs = firstMs;
    const pauseMs = this.#nextMs;
    this.#nextMs = Math.min(2 * pauseMs, longestMs);
    return pauseMs;
  }
}
