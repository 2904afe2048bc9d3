/**
 * What was found without an owner lately, and what was done about it: calls and pods from the events, records from the
 * database. Either may be away without the other: a database that does not answer costs only its own part.
 */
import type { StoreEvent } from '../../calls/events.js';
import { AppError, ConfigError } from '../../errors.js';
import * as shapes from '../console-schemas.js';
import type { App, HttpContext } from '../context.js';
import { withDeadline } from '../deadline.js';
import { ErrorAnswer } from '../schemas.js';

const patienceMs = 10_000;
const mostItems = 500;

interface Item {
  at: string;
  kind: 'call' | 'pod' | 'record';
  id: string;
  place: string;
  reason: string;
  outcome: string;
  age_seconds: number | null;
  detail: string | null;
}

const types = new Set(['call_recovered', 'call_lost', 'pod_recovered', 'pod_removed']);

export async function recoveryRoutes(app: App, context: HttpContext): Promise<void> {
  const { search, store, records, clock } = context;

  app.get(
    '/recoveries',
    {
      schema: {
        tags: ['console'],
        summary: 'What had lost its owner and came back: calls, pods, records',
        querystring: shapes.RecoveriesQuery,
        response: { 200: shapes.Recoveries, 400: ErrorAnswer, 429: ErrorAnswer, 503: ErrorAnswer },
      },
    },
    async ({ query }) => {
      const lastMs = Number(query.minutes ?? 60) * 60_000;
      const items: Item[] = [];
      const counts = { call_recovered: 0, call_lost: 0, pod_recovered: 0, pod_removed: 0 };
      const lookAtEvents = async () => {
        const sinceMs = (await store.snapshot()).nowMs - lastMs;
        await search.recent(types, sinceMs, (event) => {
          counts[event.type as keyof typeof counts] += 1;
          const item = itemOf(event);
          if (item && items.length < mostItems) items.push(item);
        });
        return sinceMs;
      };
      const [sinceMs, brought] = await Promise.all([
        withDeadline(clock, patienceMs, lookAtEvents()),
        lookAtRecords(context, lastMs),
      ]);
      items.push(...(brought?.items ?? []));
      items.sort((a, b) => (a.at < b.at ? 1 : a.at > b.at ? -1 : 0));
      return {
        since: new Date(sinceMs).toISOString(),
        calls: { recovered: counts.call_recovered, lost: counts.call_lost },
        pods: { recovered: counts.pod_recovered },
        records: records ? (brought?.counts ?? null) : [],
        items: items.slice(0, mostItems),
      };
    },
  );
}

/** Undefined: without records, or the database does not answer. */
async function lookAtRecords({ records, clock }: HttpContext, lastMs: number) {
  if (!records) return undefined;
  try {
    const { counts, resets } = await withDeadline(
      clock,
      patienceMs,
      // Deferred, because `operations` throws while the database is not open.
      Promise.resolve().then(() => records.operations().recent(lastMs, mostItems)),
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

const outcomes: Record<string, Pick<Item, 'kind' | 'outcome'>> = {
  call_recovered: { kind: 'call', outcome: 'recovered' },
  call_lost: { kind: 'call', outcome: 'lost' },
  pod_recovered: { kind: 'pod', outcome: 'recovered' },
  pod_removed: { kind: 'pod', outcome: 'removed' },
};

/** A pod that went without a call is no recovery: every rolling update has many. */
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
