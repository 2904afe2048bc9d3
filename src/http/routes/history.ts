/** What the last hours were like, and what is wrong now: the numbers and alerts of all replicas, from any of them. */
import { AlertList, History, HistoryQuery } from '../console-schemas.js';
import type { App, HttpContext } from '../context.js';
import { withDeadline } from '../deadline.js';
import { ErrorAnswer } from '../schemas.js';

export async function historyRoutes(app: App, context: HttpContext): Promise<void> {
  const { history, clock, config } = context;
  const tags = ['console'];

  app.get(
    '/history',
    {
      schema: {
        tags,
        summary: 'Calls, pods and records over time, summed over all replicas; and which replicas there are',
        querystring: HistoryQuery,
        response: { 200: History, 400: ErrorAnswer, 429: ErrorAnswer, 503: ErrorAnswer },
      },
    },
    async ({ query }) =>
      withDeadline(clock, config.requestTimeoutMs, history.read(Number(query.minutes ?? 60))),
  );

  app.get(
    '/alerts',
    {
      schema: {
        tags,
        summary: 'What somebody should look at now, the worst first; also while the store does not answer',
        response: { 200: AlertList },
      },
    },
    async () => ({ alerts: await history.alerts() }),
  );
}
