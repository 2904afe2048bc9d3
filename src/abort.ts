import type { Clock } from './clock.js';

/** The first of these stops a process cleanly. A terminal sends all but SIGTERM to every process of its group. */
export const stopSignals = ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGQUIT'] as const;

/**
 * Aborts `controller` when `signal` does; the result ends that. For short work under a long-lived signal: there,
 * `AbortSignal.any` leaves a reference in the long-lived signal for each signal that it made (Node 20).
 */
export function abortWith(controller: AbortController, signal: AbortSignal | undefined): () => void {
  const abort = () => controller.abort(signal?.reason);
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
