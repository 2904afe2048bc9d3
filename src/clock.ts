/**
 * Time and cancellation. The only place that reads the time, sets a timer or draws a random number.
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

/** The first of these stops a process cleanly. A terminal sends all but SIGTERM to every process of its group. */
export const stopSignals = ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGQUIT'] as const;

/**
 * Aborts `controller` when `signal` does; the result ends that. For short work under a long-lived signal: there,
 * `AbortSignal.any` leaves a reference in the long-lived signal for each signal that it made (Node 20).
 */
export function abortWith(
  controller: AbortController,
  signal: AbortSignal | undefined,
  reason = () => signal?.reason as unknown,
): () => void {
  const abort = () => controller.abort(reason());
  if (signal?.aborted) abort();
  else signal?.addEventListener('abort', abort, { once: true });
  return () => signal?.removeEventListener('abort', abort);
}

/** A sleep that `wake` ends. It remembers a call between two sleeps: the next one ends at once. */
export class WakeableSleep {
  #isWoken = false;
  #end = () => {};

  constructor(private readonly clock: Clock) {}

  wake(): void {
    // Once is enough: each abort() creates an error with a stack trace (9 us).
    if (this.#isWoken) return;
    this.#isWoken = true;
    this.#end();
  }

  /** Resolves to whether it was woken: false after `ms`, or when the signal aborts. */
  async for(ms: number, signal: AbortSignal): Promise<boolean> {
    if (!this.#isWoken) {
      const over = new AbortController();
      const unlink = abortWith(over, signal);
      this.#end = () => over.abort();
      await this.clock.sleep(ms, over.signal);
      unlink();
      this.#end = () => {};
    }
    const isWoken = this.#isWoken;
    this.#isWoken = false;
    return isWoken;
  }
}

/** Resolves as `work` does, or to undefined as soon as the signal aborts. Leaves no listener behind. */
export function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T | undefined> {
  return new Promise((resolve, reject) => {
    const stop = () => resolve(undefined);
    if (signal.aborted) stop();
    signal.addEventListener('abort', stop, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', stop));
  });
}

/** Returns a function that runs `work`; while a run is in progress, further calls join it. */
export function singleFlight<T>(work: () => Promise<T>): () => Promise<T> {
  let running: Promise<T> | undefined;
  return () => {
    running ??= work().finally(() => {
      running = undefined;
    });
    return running;
  };
}

/** A signal that aborts with the caller's, or with the error of `late` after `ms`; the time can be restarted. */
export class Deadline {
  readonly #over = new AbortController();
  readonly #unlink: () => void;
  #cancel = () => {};
  readonly restart: () => void;

  constructor(clock: Clock, ms: number, late: () => Error, caller?: AbortSignal) {
    this.#unlink = abortWith(this.#over, caller);
    this.restart = () => {
      this.#cancel();
      this.#cancel = clock.after(ms, () => this.#over.abort(late()));
    };
    this.restart();
  }

  get signal(): AbortSignal {
    return this.#over.signal;
  }

  /** No time passes until `restart`. */
  pause(): void {
    this.#cancel();
  }

  end(): void {
    this.#cancel();
    this.#unlink();
  }
}
