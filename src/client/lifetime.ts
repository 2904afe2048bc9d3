import { ClientClosedError } from './errors.js';

/** One operation's right to go on: ends with the caller's signal, or when the client closes. */
export interface Scope {
  readonly signal: AbortSignal;
  /** Forgets the operation; must be called when it is over. */
  end(): void;
}

/**
 * The client's life. It keeps its own set of what to stop instead of one AbortSignal for all, because
 * hundreds of listeners on one signal would draw Node's leak warning.
 */
export class Lifetime {
  #closed = false;
  readonly #stops = new Set<() => void>();

  get closed(): boolean {
    return this.#closed;
  }

  /** Throws once the client is closed. */
  assertOpen(operation: string): void {
    if (this.#closed) throw new ClientClosedError(operation);
  }

  /** Runs `stop` when the client closes; the result takes that back. */
  onClose(stop: () => void): () => void {
    this.#stops.add(stop);
    return () => this.#stops.delete(stop);
  }

  open(operation: string, callerSignal: AbortSignal | undefined): Scope {
    this.assertOpen(operation);
    const controller = new AbortController();
    const forget = this.onClose(() => controller.abort(new ClientClosedError(operation)));
    const follow = () => controller.abort(callerSignal?.reason);
    if (callerSignal?.aborted) follow();
    else callerSignal?.addEventListener('abort', follow, { once: true });
    return {
      signal: controller.signal,
      end() {
        forget();
        callerSignal?.removeEventListener('abort', follow);
      },
    };
  }

  close(): void {
    this.#closed = true;
    const stops = [...this.#stops];
    this.#stops.clear();
    for (const stop of stops) stop();
  }
}
