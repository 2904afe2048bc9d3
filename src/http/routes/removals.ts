/**
 * The removal brake's questions and an operator's answer. A confirmation is a mark in the store, so it may reach any
 * replica; the leader acts on it in its next round, at once if it is this one.
 */
import { AppError } from '../../errors.js';
import type { App, HttpContext } from '../context.js';
import { withDeadline } from '../deadline.js';
import * as schemas from '../schemas.js';

export async function removalRoutes(app: App, context: HttpContext): Promise<void> {
  const { router, pools, clock, config, leadership } = context;
  const { ErrorAnswer } = schemas;
  const tags = ['operators'];

  app.get(
    '/removals',
    {
      schema: {
        tags,
        summary: 'Pods that the removal brake holds',
        response: { 200: schemas.Removals, 503: ErrorAnswer },
      },
    },
    async () => withDeadline(clock, config.requestTimeoutMs, pools.removals()),
  );

  app.post(
    '/removals/confirm',
    {
      config: { bodyOptional: true, action: { name: 'removals.confirm' } },
      schema: {
        tags,
        summary: 'The pods that the removal brake holds are really gone: remove them, and end their calls',
        body: schemas.ConfirmBody,
        response: {
          200: schemas.RemovalsConfirmed,
          400: ErrorAnswer,
          404: schemas.errorOf('nothing_held'),
          503: ErrorAnswer,
        },
      },
      preValidation: async (request) => {
        if (request.body === undefined) request.body = {};
      },
    },
    async (request) => {
      router.assertPrepared();
      const confirmed = await withDeadline(
        clock,
        config.requestTimeoutMs,
        pools.confirmRemovals(request.actor),
      );
      if (confirmed === 0) {
        throw new AppError('nothing_held', 'the removal brake holds no pod: there is nothing to confirm');
      }
      request.log.warn({ by: request.actor, pods: confirmed }, 'held removals were confirmed');
      leadership.nudge();
      return { success: true as const, confirmed };
    },
  );
}
