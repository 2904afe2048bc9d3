/** Looking back at events: a search, and everything that is kept of one call. */
import type { StoreEvent } from '../../calls/events.js';
import { AppError } from '../../errors.js';
import * as shapes from '../console-schemas.js';
import type { App, HttpContext } from '../context.js';
import { withDeadline } from '../deadline.js';
import { CallParams, ErrorAnswer, errorOf } from '../schemas.js';
import { showCall } from './operators.js';

/** Each page has the store's own deadline; all of them together may take longer than a call may wait. */
const patienceMs = 10_000;
const beginnings = new Set(['call_allocated', 'call_adopted', 'call_imported', 'no_pods']);

export async function eventSearchRoutes(app: App, context: HttpContext): Promise<void> {
  const { search, store, clock, config } = context;
  const tags = ['console'];
  const errors = { 400: ErrorAnswer, 429: ErrorAnswer, 503: ErrorAnswer };

  app.get(
    '/events/search',
    {
      schema: {
        tags,
        summary: 'Events by type, call, pod, merchant or text, the newest first',
        querystring: shapes.SearchQuery,
        response: { 200: shapes.FoundEvents, ...errors },
      },
    },
    async ({ query }) => {
      const { type, call, pod, merchant, q, before, limit } = query;
      const types = type === undefined ? undefined : new Set(type.split(','));
      const filter = { types, call, pod, merchant, text: q };
      const work = Promise.all([search.find(filter, Number(limit ?? 100), before), search.keptSince()]);
      const [found, keptSince] = await withDeadline(clock, patienceMs, work);
      return {
        events: found.events.map(showEvent),
        before: found.before ?? null,
        kept_since: keptSince ?? null,
      };
    },
  );

  app.get(
    '/calls/:sid/timeline',
    {
      schema: {
        tags,
        summary: 'One call, live or not: everything that is kept of it, the oldest first',
        params: CallParams,
        response: { 200: shapes.Timeline, 404: errorOf('call_not_found'), ...errors },
      },
    },
    async ({ params: { sid } }) => {
      const events = await withDeadline(clock, patienceMs, search.ofCall(sid));
      // Afterwards: a call that ends meanwhile is rather shown with its end missing than as if it had never been.
      const live = await withDeadline(clock, config.requestTimeoutMs, store.call(sid)).catch(
        (error: unknown) => {
          if (error instanceof AppError && error.code === 'call_not_found') return undefined;
          throw error;
        },
      );
      if (!live && events.length === 0) {
        throw new AppError(
          'call_not_found',
          'no call of this id lives, and no event of one is kept: it may have ended too long ago',
        );
      }
      return {
        call_sid: sid,
        live: live ? showCall(live) : null,
        events: events.map(showEvent),
        is_complete: beginnings.has(events[0]?.type ?? ''),
      };
    },
  );
}

export function showEvent({ id, type, at, fields }: StoreEvent) {
  return { ...fields, id, type, at };
}
