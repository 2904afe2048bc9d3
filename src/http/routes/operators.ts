/** Routes for operators: status, lists of pods and calls, held removals, the audit of the store. */
import type { CallInfo, Snapshot, WaitingCall } from '../../calls/store/replies.js';
import type { Page } from '../../calls/store/store.js';
import { type PoolId, tierNameOf } from '../../config/tiers.js';
import { AppError, isStoreDown } from '../../errors.js';
import { version } from '../../version.js';
import { type App, documented, type HttpContext } from '../context.js';
import { inTime } from '../deadline.js';
import * as schemas from '../schemas.js';
import { showPod } from './pods.js';

export async function operatorRoutes(app: App, context: HttpContext): Promise<void> {
  const { router, store, pools, settings, auditor, leadership, records, history, metrics, queue } = context;
  const { ErrorAnswer } = schemas;
  const about = documented('operators');
  const failures = { 400: ErrorAnswer, 503: ErrorAnswer };

  app.get(
    '/status',
    about('Pools, leader, loops; status is down while the store is unreachable', {
      response: { 200: schemas.Status },
    }),
    async () => {
      let snapshot: Snapshot | undefined;
      let storeError: AppError | undefined;
      try {
        snapshot = await inTime(context, store.snapshot());
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
        waiting_calls: snapshot?.waitingCalls ?? null,
        oldest_wait_seconds: snapshot?.waitingCalls ? metrics.oldestWaitMs / 1000 : null,
        removals_held: snapshot?.removalsHeld ?? null,
        is_leader: leadership.isLeader,
        leader: leadership.leader,
        election: leadership.election,
        loops: context.loops(),
        records: (await records?.status()) ?? null,
        tier_version: snapshot?.tierVersion ?? settings.tierVersion,
        tier_config_differs: settings.differsFromEnvironment,
        replicas_differ: [...history.differing],
        store_error: storeError?.message ?? null,
      };
    },
  );

  app.get(
    '/pods',
    about('Pods, page by page, pool by pool', {
      querystring: schemas.PageQuery,
      response: { 200: schemas.PodPage, ...failures },
    }),
    async ({ query }) => {
      const work = readPage(store, query, (pool, cursor, count) => store.pods(pool, cursor, count));
      const { items, cursor } = await inTime(context, work);
      return { pods: items.map(showPod), cursor };
    },
  );

  app.get(
    '/calls',
    about('Live calls, page by page, pool by pool; or the calls that wait for a pod', {
      querystring: schemas.CallQuery,
      response: { 200: schemas.CallPage, ...failures },
    }),
    async ({ query }) => {
      if (query.waiting !== undefined) {
        if (query.pool !== undefined)
          throw new AppError(
            'invalid_request',
            'pool must be absent with waiting: no pool has waiting calls',
          );
        const [, start = '0'] = (query.cursor ?? '').split(',');
        const page = await inTime(context, queue.calls(start, Number(query.limit ?? 100)));
        const next = page.cursor === undefined ? null : `waiting,${page.cursor}`;
        return { calls: [], waiting: page.items.map(showWaiting), cursor: next };
      }
      const work = readPage(store, query, (pool, cursor, count) => store.calls(pool, cursor, count));
      const { items, cursor } = await inTime(context, work);
      return { calls: items.map(showCall), cursor };
    },
  );

  app.get(
    '/calls/:sid',
    about('One live call', {
      params: schemas.CallParams,
      response: { 200: schemas.Call, 404: schemas.errorOf('call_not_found'), ...failures },
    }),
    async ({ params }) => showCall(await inTime(context, store.call(params.sid))),
  );

  app.get(
    '/removals',
    about('Pods that the removal brake holds', { response: { 200: schemas.Removals, 503: ErrorAnswer } }),
    async () => inTime(context, pools.removals()),
  );

  // A confirmation is a mark in the store: any replica takes it, and the leader acts on it in its next round.
  app.post(
    '/removals/confirm',
    {
      config: { bodyOptional: true, action: { name: 'removals.confirm' } },
      ...about(
        'Confirm that the pods held by the removal brake are deleted: removes them and ends their calls',
        {
          body: schemas.ConfirmBody,
          response: { 200: schemas.RemovalsConfirmed, 404: schemas.errorOf('nothing_held'), ...failures },
        },
      ),
    },
    async (request) => {
      router.assertPrepared();
      const confirmed = await inTime(context, pools.confirmRemovals(request.actor));
      if (confirmed === 0) {
        throw new AppError('nothing_held', 'the removal brake holds no pod: there is nothing to confirm');
      }
      request.log.warn({ by: request.actor, pods: confirmed }, 'held removals confirmed');
      leadership.nudge();
      return { success: true as const, confirmed };
    },
  );

  // It reads in small pieces beside the calls, with a time limit of its own (`maxAuditMs`), not REQUEST_TIMEOUT.
  app.get(
    '/audit',
    about('Check the calls and pods in the store for contradictions now', {
      response: { 200: schemas.Audit, 503: ErrorAnswer },
    }),
    async () => {
      router.assertPrepared();
      return auditor.audit();
    },
  );
}

/** Reads a page over all pools. A cursor is a pool and the store's cursor in it. */
async function readPage<T>(
  store: HttpContext['store'],
  query: { pool?: string; cursor?: string; limit?: string },
  read: (pool: PoolId, cursor: string, count: number) => Promise<Page<T>>,
): Promise<{ items: T[]; cursor: string | null }> {
  const limit = Number(query.limit ?? 100);
  let [pool, cursor = '0'] = (query.cursor ?? '').split(',');
  const known = (await store.snapshot()).pools;
  // A request for an unreadable pool gets the error; a list of all pools leaves it out.
  const pools = known
    .filter((one) => (query.pool === undefined ? one.unreadableKey === '' : one.pool === query.pool))
    .map((one) => one.pool);
  const items: T[] = [];
  // If the pool of the cursor has been deleted, continue with the next one by name.
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

function showRequest({ callSid, merchantId, provider, flow, template }: CallInfo | WaitingCall) {
  return { call_sid: callSid, merchant_id: merchantId, provider, flow, template };
}

function showWaiting(call: WaitingCall) {
  return {
    ...showRequest(call),
    position: call.position,
    waiting_since: new Date(call.sinceMs).toISOString(),
    wait_expires_at: new Date(call.untilMs).toISOString(),
    reason: call.isAtLimit ? 'merchant_limit' : 'no_pods',
    saw: call.saw,
  };
}

export function showCall(call: CallInfo) {
  return {
    ...showRequest(call),
    pod_name: call.podName,
    source_pool: call.sourcePool,
    allocated_at: call.allocatedAt,
    renewed_at: call.renewedAt ?? null,
    lease_expires_at: new Date(call.leaseExpiresAtMs).toISOString(),
    fence: call.fence,
  };
}
