/**
 * The only place that reads the time, sets a timer or draws a random number.
 *
 * Everything takes a `Clock`, so that tests and simulations can use their own. Times that decide ownership never come from
 * here: the scripts read them from the store's clock.
 */
export interface Clock {
  /** Wall clock, milliseconds since 1970. For logs and for people, never for deadlines. */
  now(): number;
  /** Milliseconds from an arbitrary start; never goes backwards. */
  monotonic(): number;
  /**
   * Runs `callback` once after `ms`; the result cancels it. Keeps the process alive until then: a deadline that a caller
   * awaits must fire even when no other work is left, or Node exits with code 13. `unref` is for background work that
   * must not keep the process alive.
   */
  after(ms: number, callback: () => void, options?: { unref?: boolean }): () => void;
  /** Resolves after `ms`, or as soon as `signal` aborts (it never rejects: check the signal). */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
  /** Uniform in [0, 1). */
  random(): number;
}

function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const done = () => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal?.addEventListener('abort', done, { once: true });
  });
}

export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  after(ms, callback, { unref = false } = {}) {
    const timer = setTimeout(callback, ms);
    if (unref) timer.unref();
    return () => clearTimeout(timer);
  },
  sleep,
  random: () => Math.random(),
};

/** Resolves as `work` does; after `ms`, to the result of `late`, which may throw. */
export function within<T, L>(clock: Clock, ms: number, work: Promise<T>, late: () => L): Promise<T | L> {
  let cancel = () => {};
  const timeout = new Promise<void>((resolve) => {
    cancel = clock.after(ms, resolve);
  });
  return Promise.race([work, timeout.then(late)]).finally(cancel);
}

/**
 * Runs `callback` when the event loop has handled the input that has arrived, before it waits for more. It takes no time, so
 * it is not part of `Clock`.
 */
export function atEndOfTurn(callback: () => void): void {
  setImmediate(callback);
}
