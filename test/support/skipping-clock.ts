import { type Clock, systemClock } from '../../src/clock.js';

/**
 * The system's clock with time that a test can skip: sleepers of that time wake up. Deadlines (`after`) are not
 * moved, so a request that is on its way while time is skipped does not fail for it.
 */
export class SkippingClock implements Clock {
  #skippedMs = 0;
  readonly #sleepers = new Set<{ atMs: number; wake(): void }>();

  readonly after = systemClock.after;
  readonly random = systemClock.random;

  now(): number {
    return systemClock.now() + this.#skippedMs;
  }

  monotonic(): number {
    return systemClock.monotonic() + this.#skippedMs;
  }

  async sleep(ms: number, signal?: AbortSignal): Promise<void> {
    const atMs = this.monotonic() + ms;
    // A sleep that is longer than the skip continues with the rest.
    while (this.monotonic() < atMs && !signal?.aborted) {
      const woken = new AbortController();
      const sleeper = { atMs, wake: () => woken.abort() };
      this.#sleepers.add(sleeper);
      const either = signal ? AbortSignal.any([signal, woken.signal]) : woken.signal;
      await systemClock.sleep(Math.max(1, atMs - this.monotonic()), either);
      this.#sleepers.delete(sleeper);
    }
  }

  skip(ms: number): void {
    this.#skippedMs += ms;
    for (const { wake } of [...this.#sleepers]) wake();
  }
}
