/**
 * What probes ask for, at a cost that does not grow with the number of those who ask: anyone may ask, and no place in
 * admission is needed for it.
 *
 * Guarantees: metrics are rendered at most once a second, for both ports together, and never while another rendering runs.
 * A scrape gets a rendering that began after it, so it waits up to a second after another scrape; what it shows is never
 * older than itself. One ping of the store is in flight at most.
 */
import { AppError } from '../errors.js';
import type { HttpContext } from './context.js';
import { withDeadline } from './deadline.js';

const renderEveryMs = 1000;

export class Probes {
  readonly #context: HttpContext;
  #ping: Promise<void> | undefined;
  #next: Promise<Buffer> | undefined;
  #running: Promise<Buffer | undefined> = Promise.resolve(undefined);
  #startedAtMs = Number.NEGATIVE_INFINITY;

  constructor(context: HttpContext) {
    this.#context = context;
  }

  /** Rejects when the store does not answer in time. */
  ping(): Promise<void> {
    const { clock, config, store } = this.#context;
    this.#ping ??= withDeadline(clock, config.requestTimeoutMs, store.ping()).finally(() => {
      this.#ping = undefined;
    });
    return this.#ping;
  }

  /** Prometheus text. */
  metrics(): Promise<Buffer> {
    this.#next ??= this.#renderNext();
    return this.#next;
  }

  async #renderNext(): Promise<Buffer> {
    const { clock, stopping } = this.#context;
    await this.#running;
    const waitMs = this.#startedAtMs + renderEveryMs - clock.monotonic();
    if (waitMs > 0) await clock.sleep(waitMs, stopping);
    this.#startedAtMs = clock.monotonic();
    // A scrape that comes from now on waits for a newer one.
    this.#next = undefined;
    const rendering = this.#render();
    this.#running = rendering.catch(() => undefined);
    return rendering;
  }

  async #render(): Promise<Buffer> {
    const { store, metrics, clock, config, records, leadership, admission } = this.#context;
    metrics.requestsInFlight.set(admission.inFlight);
    metrics.requestsLimit.set(admission.callLimit);
    const snapshot = await withDeadline(clock, config.requestTimeoutMs, store.snapshot()).catch(
      (error: unknown) => {
        if (error instanceof AppError) return undefined;
        throw error;
      },
    );
    const loops = [...leadership.loops, ...(records?.loops ?? [])];
    return Buffer.from(await metrics.render(snapshot, loops));
  }
}
