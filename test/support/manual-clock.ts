import type { Clock } from '../../src/clock.js';

/**
 * A clock that only the test moves. `random()` gives `nextRandom` until it is changed.
 * Timers run in the order of their times, inside `advance`; what they start in promises runs afterwards,
 * so a test waits for a condition before it advances again.
 */
export class ManualClock implements Clock {
  nextRandom = 0;
  #nowMs: number;
  #elapsedMs = 0;
  #timers = new Set<{ atMs: number; callback: () => void; sleep: boolean }>();

  constructor(startMs = 1_700_000_000_000) {
    this.#nowMs = startMs;
  }

  now(): number {
    return this.#nowMs;
  }

  monotonic(): number {
    return this.#elapsedMs;
  }

  after(ms: number, callback: () => void): () => void {
    return this.#add(ms, callback, false);
  }

  /** Zero or less resolves at once, so that a test with `nextRandom = 0` need not advance over retries. */
  sleep(ms: number, signal?: AbortSignal): Promise<void> {
    if (ms <= 0 || signal?.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      const cancel = this.#add(ms, () => done(), true);
      const done = () => {
        cancel();
        signal?.removeEventListener('abort', done);
        resolve();
      };
      signal?.addEventListener('abort', done, { once: true });
    });
  }

  random(): number {
    return this.nextRandom;
  }

  /** Milliseconds until each timer set with `after`, soonest first. */
  get timersMs(): number[] {
    return this.#dueMs(false);
  }

  /** The same for sleepers, which do keep a process alive. */
  get sleepsMs(): number[] {
    return this.#dueMs(true);
  }

  /** Moves time forward and runs what falls due, step by step. */
  advance(ms: number): void {
    const endMs = this.#elapsedMs + ms;
    for (;;) {
      const next = [...this.#timers].sort((a, b) => a.atMs - b.atMs)[0];
      if (next === undefined || next.atMs > endMs) break;
      this.#timers.delete(next);
      this.#moveTo(Math.max(next.atMs, this.#elapsedMs));
      next.callback();
    }
    this.#moveTo(endMs);
  }

  /** Moves to the next timer or sleeper only, so that timers it starts are not late. */
  advanceToNext(): void {
    this.advance(Math.min(...this.timersMs, ...this.sleepsMs));
  }

  #moveTo(elapsedMs: number): void {
    this.#nowMs += elapsedMs - this.#elapsedMs;
    this.#elapsedMs = elapsedMs;
  }

  #add(ms: number, callback: () => void, sleep: boolean): () => void {
    const timer = { atMs: this.#elapsedMs + Math.max(0, ms), callback, sleep };
    this.#timers.add(timer);
    return () => this.#timers.delete(timer);
  }

  #dueMs(sleep: boolean): number[] {
    return [...this.#timers]
      .filter((timer) => timer.sleep === sleep)
      .map((timer) => timer.atMs - this.#elapsedMs)
      .sort((a, b) => a - b);
  }
}
