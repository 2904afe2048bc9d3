/** Renders at most once a second and never twice at once. A caller gets a rendering that began after its call. */
import type { Clock } from '../clock.js';

const renderEveryMs = 1000;

export class PacedRender<T> {
  #next: Promise<T> | undefined;
  #running: Promise<unknown> = Promise.resolve();
  #startedAtMs = Number.NEGATIVE_INFINITY;

  /** After `stopping` it renders without a pause. */
  constructor(
    private readonly clock: Clock,
    private readonly stopping: AbortSignal,
    private readonly render: () => Promise<T>,
  ) {}

  next(): Promise<T> {
    this.#next ??= this.#renderNext();
    return this.#next;
  }

  async #renderNext(): Promise<T> {
    await this.#running;
    const waitMs = this.#startedAtMs + renderEveryMs - this.clock.monotonic();
    if (waitMs > 0) await this.clock.sleep(waitMs, this.stopping);
    this.#startedAtMs = this.clock.monotonic();
    // Later callers wait for the next rendering.
    this.#next = undefined;
    const rendering = this.render();
    this.#running = rendering.catch(() => undefined);
    return rendering;
  }
}
