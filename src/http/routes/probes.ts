/** Health, readiness, metrics: public, and logged at debug. */
import Type from 'typebox';
import { AppError } from '../../errors.js';
import type { App, HttpContext } from '../context.js';
import { errorOf } from '../schemas.js';

export async function probeRoutes(app: App, context: HttpContext, { hide = false } = {}): Promise<void> {
  const { router, stopping } = context;
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
      await app.probes.ping().catch((error: unknown) => {
        // Anyone may ask: where the store is and what it said is for the log and for /status.
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
      return app.probes.metrics();
    },
  );
}
