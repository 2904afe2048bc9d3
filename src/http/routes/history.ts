/** Routes about the past: history, alerts, search in the events, timeline of a call, recoveries. */
import type { Static } from 'typebox';
import type { StoreEvent } from '../../calls/events.js';
import { AppError, ConfigError } from '../../errors.js';
import { type App, documented, type HttpContext } from '../context.js';
import { inTime, withDeadline } from '../deadline.js';
import * as shapes from '../operator-schemas.js';
import { CallParams, ErrorAnswer, errorOf } from '../schemas.js';
import { showCall } from './operators.js';

/** Each page of events has the store's own deadline; together they may take longer than REQUEST_TIMEOUT. */
const searchTimeoutMs = 10_000;
const firstEvents = new Set(['call_allocated', 'call_waiting', 'call_adopted', 'call_imported', 'no_pods']);
const maxItems = 500;

type Item = Static<typeof shapes.Recoveries>['items'][number];

const outcomes: Record<string, Pick<Item, 'kind' | 'outcome'>> = {
  call_recovered: { kind: 'call', outcome: 'recovered' },
  call_lost: { kind: 'call', outcome: 'lost' },
  pod_recovered: { kind: 'pod', outcome: 'recovered' },
  pod_removed: { kind: 'pod', outcome: 'removed' },
};

export async function historyRoutes(app: App, context: HttpContext): Promise<void> {
  const { history, search, store, records, clock } = context;
  const about = documented('console');
  const errors = { 400: ErrorAnswer, 429: ErrorAnswer, 503: ErrorAnswer };

  app.get(
    '/history',
    about('Calls, pods and records over time, summed over all replicas; and the live replicas', {
      querystring: shapes.HistoryQuery,
      response: { 200: shapes.History, ...errors },
    }),
    async ({ query }) => inTime(context, history.read(Number(query.minutes ?? 60))),
  );

  app.get(
    '/alerts',
    about('Active alerts, the most severe first; also while the store is unreachable', {
      response: { 200: shapes.AlertList },
    }),
    async () => ({ alerts: await history.alerts() }),
  );

  app.get(
    '/events/search',
    about('Events by type, call, pod, merchant or text, the newest first', {
      querystring: shapes.SearchQuery,
      response: { 200: shapes.FoundEvents, ...errors },
    }),
    async ({ query }) => {
      const { type, call, pod, merchant, q, before, limit } = query;
      const types = type === undefined ? undefined : new Set(type.split(','));
      const filter = { types, call, pod, merchant, text: q };
      const work = Promise.all([search.find(filter, Number(limit ?? 100), before), search.keptSince()]);
      const [found, keptSince] = await withDeadline(clock, searchTimeoutMs, work);
      return {
        events: found.events.map(showEvent),
        before: found.before ?? null,
        kept_since: keptSince ?? null,
      };
    },
  );

  app.get(
    '/calls/:sid/timeline',
    about('Everything kept about one call, live or ended, the oldest event first', {
      params: CallParams,
      response: { 200: shapes.Timeline, 404: errorOf('call_not_found'), ...errors },
    }),
    async ({ params: { sid } }) => {
      const events = await withDeadline(clock, searchTimeoutMs, search.ofCall(sid));
      // After the events: a call that ends between the two reads is shown without its end, not as unknown.
      const live = await inTime(context, store.call(sid)).catch((error: unknown) => {
        if (error instanceof AppError && error.code === 'call_not_found') return undefined;
        throw error;
      });
      if (!live && events.length === 0) {
        throw new AppError(
          'call_not_found',
          'no live call and no event with this id: the call may have ended too long ago',
        );
      }
      return {
        call_sid: sid,
        live: live ? showCall(live) : null,
        events: events.map(showEvent),
        is_complete: firstEvents.has(events[0]?.type ?? ''),
      };
    },
  );

  app.get(
    '/recoveries',
    about('Calls, pods and records that had lost their owner and were recovered', {
      querystring: shapes.RecoveriesQuery,
      response: { 200: shapes.Recoveries, ...errors },
    }),
    async ({ query }) => {
      const lastMs = Number(query.minutes ?? 60) * 60_000;
      const items: Item[] = [];
      const counts = { call_recovered: 0, call_lost: 0, pod_recovered: 0, pod_removed: 0 };
      const readEvents = async () => {
        const sinceMs = (await store.snapshot()).nowMs - lastMs;
        await search.recent(new Set(Object.keys(outcomes)), sinceMs, (event) => {
          counts[event.type as keyof typeof counts] += 1;
          const item = itemOf(event);
          if (item && items.length < maxItems) items.push(item);
        });
        return sinceMs;
      };
      const [sinceMs, resets] = await Promise.all([
        withDeadline(clock, searchTimeoutMs, readEvents()),
        readResets(context, lastMs),
      ]);
      items.push(...(resets?.items ?? []));
      items.sort((a, b) => (a.at < b.at ? 1 : a.at > b.at ? -1 : 0));
      return {
        since: new Date(sinceMs).toISOString(),
        calls: { recovered: counts.call_recovered, lost: counts.call_lost },
        pods: { recovered: counts.pod_recovered },
        records: records ? (resets?.counts ?? null) : [],
        items: items.slice(0, maxItems),
      };
    },
  );
}

/** Undefined without records, and while the database is unreachable: that costs only this part of the response. */
async function readResets({ records, clock }: HttpContext, lastMs: number) {
  if (!records) return undefined;
  try {
    const { counts, resets } = await withDeadline(
      clock,
      searchTimeoutMs,
      // In a promise of its own, because `operations()` throws before the database is connected.
      Promise.resolve().then(() => records.operations().recent(lastMs, maxItems)),
    );
    const items = resets.map(
      ({ at, workflow, id, reason, outcome, stuckSeconds, trace, worker }): Item => ({
        at: at.toISOString(),
        kind: 'record',
        id,
        place: workflow,
        reason,
        outcome,
        age_seconds: stuckSeconds === null ? null : Math.round(stuckSeconds),
        detail: trace ?? (worker === null ? null : `worker ${worker}`),
      }),
    );
    return { counts, items };
  } catch (error) {
    if (error instanceof AppError || error instanceof ConfigError) return undefined;
    throw error;
  }
}

/** Leaves out pods that were removed without a call: every rolling update has many. */
function itemOf({ type, at, fields }: StoreEvent): Item | undefined {
  const known = outcomes[type];
  const lost = Number(fields.lost ?? 0);
  if (!known || (type === 'pod_removed' && lost === 0)) return undefined;
  const isCall = known.kind === 'call';
  const age = fields.age_seconds === undefined ? Number.NaN : Number(fields.age_seconds);
  return {
    at,
    ...known,
    id: (isCall ? fields.call : fields.pod) ?? '',
    place: fields.pool ?? '',
    reason: fields.reason ?? '',
    age_seconds: Number.isFinite(age) ? age : null,
    detail: isCall
      ? `pod ${fields.pod ?? ''}`
      : type === 'pod_removed'
        ? `${lost} ${lost === 1 ? 'call was' : 'calls were'} lost`
        : null,
  };
}

function showEvent({ id, type, at, fields }: StoreEvent) {
  return { ...fields, id, type, at };
}
