import { abortWith } from '../clock.js';
import { Breaker } from './breaker.js';
import { ClientClosedError, isDown, isPassing, RouterUnavailableError } from './errors.js';
import { fullJitterMs } from './loop.js';
import type { ClientEvent, Settings } from './options.js';
import { sendOnce } from './transport.js';
import type { Decode } from './wire.js';

/** One operation of the API, with its retries. */
export interface Operation<T> {
  /** For messages: `allocate CA123`. */
  operation: string;
  /** Below `/api/v1`. */
  path: string;
  /** Called before each attempt, because the rest of a wait shrinks. Undefined for a GET. */
  body: () => unknown;
  decode: Decode<T>;
  /** How long the router may delay its response on purpose; called before each attempt. */
  extraTimeMs?: () => number;
  /** Sent by a background loop, which retries on its own: no retries here, and not stopped by the breaker. */
  heartbeat?: boolean | undefined;
  /** Instead of the configured number: 0 for a poll, which its own loop follows up, and for best effort. */
  retries?: number | undefined;
  signal?: AbortSignal | undefined;
}

/**
 * Stops everything when the client closes. It keeps a set of callbacks instead of one AbortSignal, because hundreds of
 * listeners on one signal cause Node's leak warning.
 */
class Lifetime {
  #closed = false;
  readonly #stops = new Set<() => void>();

  /** Throws once the client is closed. */
  assertOpen(operation: string): void {
    if (this.#closed) throw new ClientClosedError(operation);
  }

  /** Runs `stop` when the client closes; the returned function cancels that. */
  onClose(stop: () => void): () => void {
    this.#stops.add(stop);
    return () => this.#stops.delete(stop);
  }

  /** Runs an operation whose signal aborts with the caller's signal, or when the client closes. */
  async run<T>(
    operation: string,
    callerSignal: AbortSignal | undefined,
    work: (signal: AbortSignal) => Promise<T>,
  ): Promise<T> {
    this.assertOpen(operation);
    const controller = new AbortController();
    const forget = this.onClose(() => controller.abort(new ClientClosedError(operation)));
    const unlink = abortWith(controller, callerSignal);
    try {
      return await work(controller.signal);
    } finally {
      forget();
      unlink();
    }
  }

  close(): void {
    this.#closed = true;
    const stops = [...this.#stops];
    this.#stops.clear();
    for (const stop of stops) stop();
  }
}

/**
 * Adds retries, breaker and closing to `sendOnce`. Every operation of the router is idempotent (allocate by its SID,
 * release and renew by their fence), so that a request whose response was lost may be sent again.
 */
export class Requester {
  readonly breaker: Breaker;
  readonly lifetime = new Lifetime();
  #generation: number | undefined;
  readonly #generationListeners = new Set<() => void>();

  constructor(readonly settings: Settings) {
    this.breaker = new Breaker(settings.clock, settings.breaker, (from, to) =>
      this.emit({ type: 'breaker', from, to }),
    );
  }

  /** A listener that throws must not cost a call its lease. */
  emit(event: ClientEvent): void {
    try {
      this.settings.onEvent?.(event);
    } catch {
      // There is no one to report this to: the listener itself failed.
    }
  }

  /** Calls back into the application. */
  callBack(callback: string, run: () => void): void {
    try {
      run();
    } catch (error) {
      this.emit({ type: 'callback_failed', callback, error });
    }
  }

  /**
   * Runs `listener` when a response has a higher generation than before: the router's store has failed over, and may have
   * lost calls. Only a higher one: for a moment routers may answer from different masters.
   */
  onGeneration(listener: () => void): () => void {
    this.#generationListeners.add(listener);
    return () => this.#generationListeners.delete(listener);
  }

  #learnGeneration(generation: unknown): void {
    if (!Number.isSafeInteger(generation)) return;
    const known = this.#generation;
    if (known !== undefined && (generation as number) <= known) return;
    this.#generation = generation as number;
    if (known !== undefined) for (const listener of this.#generationListeners) listener();
  }

  async send<T>(op: Operation<T>): Promise<T> {
    return this.lifetime.run(op.operation, op.signal, (signal) => this.#sendWithin(op, signal));
  }

  async #sendWithin<T>(op: Operation<T>, signal: AbortSignal): Promise<T> {
    const { clock, backoff } = this.settings;
    const retries = op.retries ?? (op.heartbeat ? 0 : this.settings.retries);
    let last: unknown;
    for (let attempt = 1; ; attempt++) {
      signal.throwIfAborted();
      const extraTimeMs = op.extraTimeMs?.() ?? 0;
      const kind = op.heartbeat ? 'heartbeat' : extraTimeMs > 0 ? 'long_poll' : 'request';
      const permit = this.breaker.acquire(kind);
      if (permit === null) throw this.#breakerOpen(op.operation, attempt - 1, last);
      try {
        const result = await sendOnce(
          this.settings,
          {
            ...op,
            body: op.body(),
            timeoutMs: this.settings.timeoutMs + extraTimeMs,
            attempts: attempt,
            decode: (body) => {
              const decoded = op.decode(body);
              this.#learnGeneration(body.generation);
              return decoded;
            },
          },
          signal,
        );
        permit.success();
        return result;
      } catch (error) {
        if (signal.aborted) {
          permit.cancel();
          throw signal.reason;
        }
        if (isDown(error)) permit.failure();
        else permit.success();
        if (!isPassing(error) || attempt > retries) throw error;
        if (this.breaker.state === 'open') throw this.#breakerOpen(op.operation, attempt, error);
        last = error;
        const jitterMs = fullJitterMs(clock, backoff.baseMs, backoff.maxMs, attempt - 1);
        const delayMs = Math.min(error.retryAfterMs ?? 0, backoff.retryAfterMaxMs) + jitterMs;
        this.emit({ type: 'retry', operation: op.operation, attempt, delayMs, error });
        await clock.sleep(delayMs, signal);
      }
    }
  }

  #breakerOpen(operation: string, attempts: number, cause: unknown): RouterUnavailableError {
    const waitMs = Math.ceil(this.breaker.openForMs());
    const next = waitMs > 0 ? `The next attempt is in ${waitMs} ms.` : 'Other requests are trying it now.';
    const why = cause instanceof Error ? ` Last failure: ${cause.message}` : '';
    return new RouterUnavailableError({
      operation,
      reason: 'breaker_open',
      text: `the router at ${this.settings.baseUrl} failed repeatedly; the circuit breaker is open. ${next}${why}`,
      attempts,
      cause,
    });
  }
}
