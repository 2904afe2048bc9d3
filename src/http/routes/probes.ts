/** Health, readiness, metrics: public, and logged at debug. */
import Type from 'typebox';
import { AppError } from '../../errors.js';
import type { App, HttpContext } from '../context.js';
import { withDeadline } from '../deadline.js';
import { errorOf } from '../schemas.js';

export async function probeRoutes(app: App, context: HttpContext, { hide = false } = {}): Promise<void> {
  const { router, store, clock, config, stopping } = context;
  const quiet = { access: 'public' as const, quiet: true };
  const tags = ['probes'];

  app.get(
    '/health',
    {
      config: quiet,
      schema: {
        hide,
        tags,
        summary: 'The process runs',
        response: { 200: Type.Object({ status: Type.Literal('ok', { description: 'the process runs' }) }) },
      },
    },
    async () => ({ status: 'ok' as const }),
  );

  app.get(
    '/ready',
    {
      config: quiet,
      schema: {
        hide,
        tags,
        summary: 'The store answers and calls can be served',
        response: {
          200: Type.Object({ status: Type.Literal('ready', { description: 'calls can be served' }) }),
          503: errorOf('store_unavailable', 'timeout', 'shutting_down'),
        },
      },
    },
    async () => {
      if (stopping.aborted)
        throw new AppError('shutting_down', 'this router is stopping', { retryAfterSeconds: 1 });
      router.assertPrepared();
      await withDeadline(clock, config.requestTimeoutMs, store.ping()).catch((error: unknown) => {
        // Everybody may ask: where the store is and what it said is for the log and for /status.
        if (error instanceof AppError && error.code === 'store_unavailable') {
          throw new AppError('store_unavailable', 'the store does not answer', {
            retryAfterSeconds: 1,
            cause: error,
          });
        }
        throw error;
      });
      return { status: 'ready' as const };
    },
  );

  app.get(
    '/metrics',
    { config: quiet, schema: { hide, tags, summary: 'Prometheus text' } },
    async (_, reply) => {
      reply.type('text/plain; version=0.0.4; charset=utf-8');
      return renderMetrics(context);
    },
  );
}

export async function renderMetrics({
  store,
  metrics,
  clock,
  config,
  records,
  leadership,
  admission,
}: Pick<
  HttpContext,
  'store' | 'metrics' | 'clock' | 'config' | 'records' | 'leadership' | 'admission'
>): Promise<string> {
  metrics.requestsInFlight.set(admission.inFlight);
  metrics.requestsLimit.set(admission.callLimit);
  const snapshot = await withDeadline(clock, config.requestTimeoutMs, store.snapshot()).catch(
    (error: unknown) => {
      if (error instanceof AppError) return undefined;
      throw error;
    },
  );
  return metrics.render(snapshot, records?.gauges(), [...leadership.loops, ...(records?.loops ?? [])]);
}
