/** What operators look at: the state of the router, and lists of pods and calls. */
import type { CallInfo, Snapshot } from '../../calls/store/replies.js';
import type { Page } from '../../calls/store/store.js';
import { type PoolId, tierNameOf } from '../../config/tiers.js';
import { AppError, isStoreDown } from '../../errors.js';
import { version } from '../../version.js';
import type { App, HttpContext } from '../context.js';
import { withDeadline } from '../deadline.js';
import * as schemas from '../schemas.js';
import { showPod } from './pods.js';

export async function operatorRoutes(app: App, context: HttpContext): Promise<void> {
  const { store, settings, clock, config, leadership, records, history } = context;
  const { ErrorAnswer } = schemas;
  const tags = ['operators'];

  app.get(
    '/status',
    {
      schema: {
        tags,
        summary: 'Pools, leader, loops; status is down while the store does not answer',
        response: { 200: schemas.Status },
      },
    },
    async () => {
      let snapshot: Snapshot | undefined;
      let storeError: AppError | undefined;
      try {
        snapshot = await withDeadline(clock, config.requestTimeoutMs, store.snapshot());
      } catch (error) {
        if (!(error instanceof AppError)) throw error;
        storeError = error;
      }
      return {
        status: storeError && isStoreDown(storeError) ? ('down' as const) : ('up' as const),
        version,
        pools: Object.fromEntries(
          (snapshot?.pools ?? []).map((pool) => [tierNameOf(pool.pool), showPool(pool)]),
        ),
        active_calls: snapshot?.activeCalls ?? null,
        removals_held: snapshot?.removalsHeld ?? null,
        is_leader: leadership.isLeader,
        leader: leadership.leader,
        election: leadership.election,
        loops: [...leadership.loops, ...(records?.loops ?? [])],
        records: records?.status() ?? null,
        tier_version: snapshot?.tierVersion ?? settings.tierVersion,
        tier_config_differs: settings.differsFromEnvironment,
        replicas_differ: [...history.differing],
        store_error: storeError?.message ?? null,
      };
    },
  );

  app.get(
    '/pods',
    {
      schema: {
        tags,
        summary: 'Pods, page by page, pool by pool',
        querystring: schemas.PageQuery,
        response: { 200: schemas.PodPage, 400: ErrorAnswer, 503: ErrorAnswer },
      },
    },
    async ({ query }) => {
      const work = readPage(store, query, (pool, cursor, count) => store.pods(pool, cursor, count));
      const { items, cursor } = await withDeadline(clock, config.requestTimeoutMs, work);
      return { pods: items.map(showPod), cursor };
    },
  );

  app.get(
    '/calls',
    {
      schema: {
        tags,
        summary: 'Live calls, page by page, pool by pool',
        querystring: schemas.PageQuery,
        response: { 200: schemas.CallPage, 400: ErrorAnswer, 503: ErrorAnswer },
      },
    },
    async ({ query }) => {
      const work = readPage(store, query, (pool, cursor, count) => store.calls(pool, cursor, count));
      const { items, cursor } = await withDeadline(clock, config.requestTimeoutMs, work);
      return { calls: items.map(showCall), cursor };
    },
  );

  app.get(
    '/calls/:sid',
    {
      schema: {
        tags,
        summary: 'One live call',
        params: schemas.CallParams,
        response: {
          200: schemas.Call,
          400: ErrorAnswer,
          404: schemas.errorOf('call_not_found'),
          503: ErrorAnswer,
        },
      },
    },
    async (request) =>
      showCall(await withDeadline(clock, config.requestTimeoutMs, store.call(request.params.sid))),
  );
}

/** A cursor is the pool it stands in and the store's own cursor there. */
async function readPage<T>(
  store: HttpContext['store'],
  query: { pool?: string; cursor?: string; limit?: string },
  read: (pool: PoolId, cursor: string, count: number) => Promise<Page<T>>,
): Promise<{ items: T[]; cursor: string | null }> {
  const limit = Number(query.limit ?? 100);
  let [pool, cursor = '0'] = (query.cursor ?? '').split(',');
  const known = (await store.snapshot()).pools;
  // Who asks for a pool that cannot be read gets the error; a list of all goes on with the others.
  const pools = known
    .filter((one) => (query.pool === undefined ? one.unreadableKey === '' : one.pool === query.pool))
    .map((one) => one.pool);
  const items: T[] = [];
  // A pool that has gone meanwhile: go on with the next one by name.
  for (const current of pools.filter((one) => pool === '' || one >= (pool as string))) {
    if (current !== pool) cursor = '0';
    for (;;) {
      const page = await read(current, cursor, limit - items.length);
      items.push(...page.items);
      if (page.cursor === undefined) break;
      cursor = page.cursor;
      if (items.length >= limit) return { items, cursor: `${current},${cursor}` };
    }
    pool = current;
    const next = pools[pools.indexOf(current) + 1];
    if (items.length >= limit && next !== undefined) return { items, cursor: `${next},0` };
  }
  return { items, cursor: null };
}

function showPool(pool: Snapshot['pools'][number]) {
  const { kind, assigned, available, activeCalls, capacity, unreadableKey } = pool;
  return {
    type: kind,
    assigned,
    available,
    active_calls: activeCalls,
    capacity,
    ...(unreadableKey === '' ? {} : { unreadable_key: unreadableKey }),
  };
}

export function showCall(call: CallInfo) {
  return {
    call_sid: call.callSid,
    pod_name: call.podName,
    source_pool: call.sourcePool,
    merchant_id: call.merchantId,
    provider: call.provider,
    flow: call.flow,
    template: call.template,
    allocated_at: call.allocatedAt,
    renewed_at: call.renewedAt ?? null,
    lease_expires_at: new Date(call.leaseExpiresAtMs).toISOString(),
    fence: call.fence,
  };
}
