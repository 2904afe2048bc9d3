/** Routes of voice agents: report, drain, undrain, read one pod. */

import { untilNoCalls } from '../../calls/drain-wait.js';
import type { PodInfo } from '../../calls/store/replies.js';
import type { Drained } from '../../calls/store/store.js';
import { abortWith } from '../../clock.js';
import { parseDuration } from '../../config/durations.js';
import { showValue, tierNameOf } from '../../config/tiers.js';
import { AppError } from '../../errors.js';
import { bodyField } from '../action-log.js';
import { markOf } from '../allocation.js';
import { type App, bodyLimitBytes, documented, type HttpContext } from '../context.js';
import { inTime, isDisconnected } from '../deadline.js';
import { overloaded } from '../gate.js';
import * as schemas from '../schemas.js';

/** 10,000 call ids of 256 characters of 4 bytes, as UTF-8, and the JSON around them. */
const maxReportBytes = 11 * 1024 * 1024;
/** Concurrent reports over 64 KiB, or of unknown length: each may take 11 MiB of memory. */
const maxLargeReports = 16;
const maxWaitMs = 24 * 3_600_000;
/** An event id after all others. */
const farAhead = '18446744073709551615-0';
/** Each waiting drain holds a connection and polls once a second. */
const maxWaiters = 1000;

export async function podRoutes(app: App, context: HttpContext): Promise<void> {
  const { router, store, clock, feed, stopping } = context;
  const { ErrorAnswer } = schemas;
  const about = documented('pods');
  const guard = { access: 'api' as const };
  const errors = { 400: ErrorAnswer, 404: schemas.errorOf('pod_not_found'), 503: ErrorAnswer };
  const replaced = { 409: schemas.errorOf('pod_replaced') };
  let waiters = 0;
  let largeReports = 0;

  app.post(
    '/pod/:pod/report',
    {
      bodyLimit: maxReportBytes,
      config: guard,
      onRequest: async ({ headers }, { raw }) => {
        if (Number(headers['content-length'] ?? maxReportBytes) <= bodyLimitBytes) return;
        if (largeReports >= maxLargeReports) throw overloaded();
        largeReports += 1;
        raw.once('close', () => {
          largeReports -= 1;
        });
      },
      ...about("A pod's heartbeat with the calls that it serves", {
        params: schemas.PodParams,
        body: schemas.ReportBody,
        response: { 200: schemas.Reported, ...errors, 409: schemas.errorOf('stale_report') },
      }),
    },
    async (request) => {
      const { pod } = request.params;
      request.about.pod_name = pod;
      const { calls, as_of: asOfMs, interval_ms: intervalMs, ...about } = request.body;
      const work = router.report(pod, calls, { ...about, asOfMs, intervalMs });
      const { atMs: at, ...report } = await inTime(context, work);
      return { at, ...report, ...router.generation };
    },
  );

  app.post(
    '/drain',
    {
      // A terminating pod may not wait for the response. A superfluous drain costs a pod until it expires or is undrained;
      // a missing one costs a call.
      config: { ...guard, action: { name: 'pod.drain', target: bodyField('pod_name'), mayBeLate: true } },
      ...about(
        'Drain a pod: no new calls, running calls continue. With wait, answers when the last call has ended',
        {
          body: schemas.DrainBody,
          response: { 200: schemas.Drained, ...errors, ...replaced, 429: ErrorAnswer },
        },
      ),
    },
    async (request, reply) => {
      const { pod_name, uid } = request.body;
      request.about.pod_name = pod_name;
      const waitMs = parseWait(request.body.wait);
      if (waitMs > 0 && waiters >= maxWaiters) {
        throw new AppError(
          'too_many_requests',
          `${maxWaiters} drains with wait are open on this router: retry, or use another replica`,
          { retryAfterSeconds: 5 },
        );
      }
      // Before the first await: a caller that disconnects during it is noticed, and a burst is counted in time.
      const over = new AbortController();
      const end = () => over.abort();
      reply.raw.once('close', end);
      const unlink = abortWith(over, stopping);
      if (waitMs > 0) waiters += 1;
      let drained: Drained;
      let activeCalls: number;
      try {
        // Sent before the drain, so that a removal right after it is not missed. Without it every removal is missed: safe.
        const newest = waitMs > 0 ? feed.newestRareId().catch(() => farAhead) : farAhead;
        const work = router.drain(pod_name, waitMs, { uid, by: request.actor });
        drained = await inTime(context, work);
        ({ activeCalls } = drained);
        const since = await newest;
        if (waitMs > 0 && activeCalls > 0) {
          if (isDisconnected(request) || stopping.aborted) end();
          const drain = (leftMs: number) => router.drain(pod_name, leftMs, { uid, by: request.actor });
          const wait = { store, feed, clock, drain };
          activeCalls = await untilNoCalls(wait, { podName: pod_name, uid, since, waitMs }, over.signal);
        }
      } finally {
        if (waitMs > 0) waiters -= 1;
        unlink();
      }
      const message =
        activeCalls > 0
          ? `Pod ${pod_name} is draining with active call in progress. Will complete when call ends.`
          : `Pod ${pod_name} is draining with no active calls.`;
      return {
        success: true as const,
        pod_name,
        has_active_call: activeCalls > 0,
        active_calls: activeCalls,
        message,
        drain_expires_at: new Date(drained.untilMs).toISOString(),
        ...markOf(drained),
      };
    },
  );

  app.post(
    '/undrain',
    {
      config: { ...guard, action: { name: 'pod.undrain', target: bodyField('pod_name') } },
      ...about('End a drain now', {
        body: schemas.UndrainBody,
        response: { 200: schemas.Undrained, ...errors, ...replaced },
      }),
    },
    async (request) => {
      const { pod_name, uid } = request.body;
      request.about.pod_name = pod_name;
      const work = router.undrain(pod_name, { uid, by: request.actor });
      const { activeCalls, blockedBy } = await inTime(context, work);
      const message =
        blockedBy === ''
          ? `Pod ${pod_name} takes calls again.`
          : `Pod ${pod_name} no longer drains, but takes no calls: ${blockedBy}.`;
      return { success: true as const, pod_name, active_calls: activeCalls, message };
    },
  );

  app.get(
    '/pod/:pod',
    {
      config: guard,
      ...about('One pod with its calls', {
        params: schemas.PodParams,
        response: { 200: schemas.Pod, ...errors },
      }),
    },
    async ({ params }) => showPod(await inTime(context, store.pod(params.pod))),
  );
}

function parseWait(text: string | undefined): number {
  if (text === undefined) return 0;
  const ms = parseDuration(text);
  if (ms === undefined || ms > maxWaitMs) {
    throw new AppError(
      'invalid_request',
      `wait must be a duration like 30s or 5m, at most 24h, got ${showValue(text)}`,
    );
  }
  return ms;
}

export function showPod(pod: PodInfo) {
  return {
    pod_name: pod.podName,
    tier: pod.pool === '' ? '' : tierNameOf(pod.pool),
    is_draining: pod.blockedBy === 'draining' || pod.blockedBy === 'terminating',
    draining_until: pod.drainingUntilMs === undefined ? null : new Date(pod.drainingUntilMs).toISOString(),
    blocked_by: pod.blockedBy === '' ? null : pod.blockedBy,
    has_active_lease: pod.calls.length > 0,
    lease_call_sid: pod.leaseCallSid,
    calls: pod.calls.map(({ callSid }) => callSid),
    leases: pod.calls.map(({ callSid, leaseExpiresAtMs }) => ({
      call_sid: callSid,
      lease_expires_at: new Date(leaseExpiresAtMs).toISOString(),
    })),
    last_report_at: pod.lastReportMs === undefined ? null : new Date(pod.lastReportMs).toISOString(),
    uid: pod.uid,
    started_at: startedAt(pod.metadata),
  };
}

/** From the metadata of the cluster; other pod sources have none. */
function startedAt(metadata: string): string | null {
  try {
    const { started_at } = JSON.parse(metadata) as { started_at?: unknown };
    return typeof started_at === 'string' ? started_at : null;
  } catch {
    return null;
  }
}
