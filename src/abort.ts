import type { Clock } from './clock.js';

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
