/**
 * Health, readiness, metrics: public, logged at debug, without a slot in admission.
 *
 * Guarantees: the cost does not grow with the number of callers. Metrics are rendered at most once a second, for both
 * ports together, and never twice at once. A scrape gets a rendering that began after it, so it may wait a second, but
 * never shows stale values. At most one ping of the store is in flight.
 */
import Type from 'typebox';
import type { MetricData } from '../../calls/metrics.js';
import { AppError } from '../../errors.js';
import { PacedRender } from '../../observe/paced-render.js';
import { type App, documented, type HttpContext } from '../context.js';
import { inTime } from '../deadline.js';
import { errorOf } from '../schemas.js';

export class Probes {
  readonly #context: HttpContext;
  readonly #metrics: PacedRender<Buffer>;
  #ping: Promise<void> | undefined;

  constructor(context: HttpContext) {
    this.#context = context;
    this.#metrics = new PacedRender(context.clock, context.stopping, () => this.#render());
  }

  /** Rejects when the store does not answer in time. */
  ping(): Promise<void> {
    const { store } = this.#context;
    this.#ping ??= inTime(this.#context, store.ping()).finally(() => {
      this.#ping = undefined;
    });
    return this.#ping;
  }

  metrics(): Promise<Buffer> {
    return this.#metrics.next();
  }

  /** The metrics of this process as data, for the sum over all workers. */
  async collect(): Promise<MetricData[]> {
    await this.#update();
    return this.#context.metrics.registry.getMetricsAsJSON();
  }

  async #render(): Promise<Buffer> {
    const { metrics, renderGroup } = this.#context;
    if (renderGroup) return Buffer.from(await renderGroup());
    await this.#update();
    return Buffer.from(await metrics.registry.metrics());
  }

  async #update(): Promise<void> {
    const { store, metrics, loops, admission } = this.#context;
    metrics.requestsInFlight.set(admission.inFlight);
    metrics.requestsLimit.set(admission.callLimit);
    const snapshot = await inTime(this.#context, store.snapshot()).catch((error: unknown) => {
      if (error instanceof AppError) return undefined;
      throw error;
    });
    await metrics.update(snapshot, loops());
  }
}

export async function probeRoutes(app: App, context: HttpContext, { hide = false } = {}): Promise<void> {
  const { router, stopping } = context;
  const quiet = { access: 'public' as const, quiet: true };
  const about = documented('probes');

  app.get(
    '/health',
    {
      config: quiet,
      ...about('The process runs', {
        hide,
        response: { 200: Type.Object({ status: Type.Literal('ok', { description: 'the process runs' }) }) },
      }),
    },
    async () => ({ status: 'ok' as const }),
  );

  app.get(
    '/ready',
    {
      config: quiet,
      ...about('The store is reachable and calls can be served', {
        hide,
        response: {
          200: Type.Object({ status: Type.Literal('ready', { description: 'calls can be served' }) }),
          503: errorOf('store_unavailable', 'timeout', 'shutting_down'),
        },
      }),
    },
    async () => {
      if (stopping.aborted)
        throw new AppError('shutting_down', 'this router is stopping', { retryAfterSeconds: 1 });
      router.assertPrepared();
      await app.probes.ping().catch((error: unknown) => {
        // The endpoint is public: the address of the store and its error are in the log and in /status.
        if (error instanceof AppError && error.code === 'store_unavailable') {
          throw new AppError('store_unavailable', 'the store is unreachable', {
            retryAfterSeconds: 1,
            cause: error,
          });
        }
        throw error;
      });
      return { status: 'ready' as const };
    },
  );

  app.get('/metrics', { config: quiet, ...about('Prometheus text', { hide }) }, async (_, reply) => {
    reply.type('text/plain; version=0.0.4; charset=utf-8');
    return app.probes.metrics();
  });
}
