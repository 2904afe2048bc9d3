import { retryDelayMs } from './backoff.js';
import { Breaker } from './breaker.js';
import { isPassing, RouterUnavailableError } from './errors.js';
import { type Emit, safeEmit } from './events.js';
import { Lifetime, type Scope } from './lifetime.js';
import type { Settings } from './options.js';
import { sendOnce } from './transport.js';
import type { Decode } from './wire.js';

/** One operation of the API, as often as it takes. */
export interface Operation<T> {
  /** For messages: `allocate CA123`. */
  operation: string;
  path: string;
  /** Asked before each attempt, because what is left of a wait shrinks. */
  body: () => unknown;
  decode: Decode<T>;
  /** How long the router may hold its answer back on purpose, asked before each attempt. */
  extraTimeMs?: () => number;
  /** Background loops come round again by themselves: they pass 0. */
  retries?: number;
  signal?: AbortSignal | undefined;
}

/**
 * Retries, breaker and closing, around `sendOnce`. Every operation of the router is idempotent (allocate by
 * its SID, release and renew by their fence), so that a request whose answer was lost may be sent again.
 */
export class Requester {
  readonly emit: Emit;
  readonly breaker: Breaker;
  readonly lifetime = new Lifetime();

  constructor(readonly settings: Settings) {
    this.emit = safeEmit(settings.onEvent);
    this.breaker = new Breaker(settings.clock, settings.breaker, (from, to) =>
      this.emit({ type: 'breaker', from, to }),
    );
  }

  async send<T>(op: Operation<T>): Promise<T> {
    const scope = this.lifetime.open(op.operation, op.signal);
    try {
      return await this.#sendWithin(op, scope);
    } finally {
      scope.end();
    }
  }

  async #sendWithin<T>(op: Operation<T>, scope: Scope): Promise<T> {
    const { clock, backoff } = this.settings;
    const retries = op.retries ?? this.settings.retries;
    let last: unknown;
    for (let attempt = 1; ; attempt++) {
      scope.signal.throwIfAborted();
      const extraTimeMs = op.extraTimeMs?.() ?? 0;
      const permit = this.breaker.acquire(extraTimeMs > 0);
      if (permit === null) throw this.#breakerOpen(op.operation, attempt - 1, last);
      try {
        const result = await sendOnce(
          this.settings,
          {
            operation: op.operation,
            path: op.path,
            body: op.body(),
            timeoutMs: this.settings.timeoutMs + extraTimeMs,
            attempts: attempt,
            decode: op.decode,
          },
          scope.signal,
        );
        permit.success();
        return result;
      } catch (error) {
        if (scope.signal.aborted) {
          permit.cancel();
          throw scope.signal.reason;
        }
        // A router whose Redis is full still renews, releases and reports: the breaker must not stop those.
        const down = error instanceof RouterUnavailableError && error.code !== 'store_full';
        if (down) permit.failure();
        else permit.success();
        if (!isPassing(error) || attempt > retries) throw error;
        if (this.breaker.state === 'open') throw this.#breakerOpen(op.operation, attempt, error);
        last = error;
        const delayMs = retryDelayMs(clock, backoff, attempt - 1, error.retryAfterMs);
        this.emit({ type: 'retry', operation: op.operation, attempt, delayMs, error });
        await clock.sleep(delayMs, scope.signal);
      }
    }
  }

  #breakerOpen(operation: string, attempts: number, cause: unknown): RouterUnavailableError {
    const waitMs = Math.ceil(this.breaker.openForMs());
    const next =
      waitMs > 0 ? `It is tried again in ${waitMs} ms.` : 'It is being tried by other requests now.';
    const why = cause instanceof Error ? ` Last failure: ${cause.message}` : '';
    return new RouterUnavailableError({
      operation,
      reason: 'breaker_open',
      text: `the router at ${this.settings.baseUrl} failed repeatedly and is not asked for now. ${next}${why}`,
      attempts,
      cause,
    });
  }
}
