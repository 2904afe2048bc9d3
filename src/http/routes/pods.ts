/** What voice agents need of pods: report, drain, undrain, and a look at one. */
import type { PodInfo } from '../../calls/store/replies.js';
import { untilNoCalls } from '../../calls/waiting.js';
import { parseDuration } from '../../config/durations.js';
import { showValue, tierNameOf } from '../../config/tiers.js';
import { AppError } from '../../errors.js';
import { bodyField } from '../audit.js';
import { type App, bodyLimitBytes, type HttpContext } from '../context.js';
import { callerGone, withDeadline } from '../deadline.js';
import { overloaded } from '../gate.js';
import * as schemas from '../schemas.js';

/** 10,000 call ids of 256 characters of 4 bytes, as UTF-8, and what is around them. */
const reportBytes = 11 * 1024 * 1024;
/** Reports over 64 KiB, or of unknown length, that may be on their way at once: each may take 11 MiB of memory. */
const maxLargeReports = 16;
const longestWaitMs = 24 * 3_600_000;
/** Each waiter holds a connection and looks once a second. */
const mostWaiters = 1000;

export async function podRoutes(app: App, context: HttpContext): Promise<void> {
  const { router, store, clock, config, feed, stopping } = context;
  const { ErrorAnswer } = schemas;
  const tags = ['pods'];
  const guard = { access: 'api' as const };
  const errors = { 400: ErrorAnswer, 404: schemas.errorOf('pod_not_found'), 503: ErrorAnswer };
  const replaced = { 409: schemas.errorOf('pod_replaced') };
  let waiters = 0;
  let largeReports = 0;

  app.post(
    '/pod/:pod/report',
    {
      bodyLimit: reportBytes,
      config: guard,
      onRequest: async ({ headers }, { raw }) => {
        if (Number(headers['content-length'] ?? reportBytes) <= bodyLimitBytes) return;
        if (largeReports >= maxLargeReports) throw overloaded();
        largeReports += 1;
        raw.once('close', () => {
          largeReports -= 1;
        });
      },
      schema: {
        tags,
        summary: "A pod's heartbeat with the calls it really serves",
        params: schemas.PodParams,
        body: schemas.ReportBody,
        response: { 200: schemas.Reported, ...errors, 409: schemas.errorOf('stale_report') },
      },
    },
    async (request) => {
      const { pod } = request.params;
      request.about.pod_name = pod;
      const { calls, as_of: asOfMs, interval_ms: intervalMs, ...about } = request.body;
      const work = router.report(pod, calls, { ...about, asOfMs, intervalMs });
      const { atMs: at, ...report } = await withDeadline(clock, config.requestTimeoutMs, work);
      return { at, ...report };
    },
  );

  app.post(
    '/drain',
    {
      // A pod that ends may have no time to wait for an answer. One drain too many costs a pod until it ends, by itself or
      // by an undrain; one too few costs a call.
      config: { ...guard, audit: { action: 'pod.drain', what: bodyField('pod_name'), mayBeLate: true } },
      schema: {
        tags,
        summary: 'No new calls for a pod; running ones go on. With wait, answers when the last has ended',
        body: schemas.DrainBody,
        response: { 200: schemas.Drained, ...errors, ...replaced, 429: ErrorAnswer },
      },
    },
    async (request, reply) => {
      const { pod_name, uid } = request.body;
      request.about.pod_name = pod_name;
      const waitMs = parseWait(request.body.wait);
      if (waitMs > 0 && waiters >= mostWaiters) {
        throw new AppError(
          'too_many_requests',
          `${mostWaiters} drains are being waited for on this router: try another`,
          {
            retryAfterSeconds: 5,
          },
        );
      }
      // Before anything is waited for: a caller that leaves meanwhile is noticed too, and a burst is counted in time.
      const over = new AbortController();
      const end = () => over.abort();
      reply.raw.once('close', end);
      stopping.addEventListener('abort', end, { once: true });
      if (waitMs > 0) waiters += 1;
      let activeCalls: number;
      let untilMs: number;
      try {
        const work = router.drain(pod_name, waitMs, { uid, by: request.actor });
        ({ activeCalls, untilMs } = await withDeadline(clock, config.requestTimeoutMs, work));
        if (waitMs > 0 && activeCalls > 0) {
          if (callerGone(request) || stopping.aborted) end();
          activeCalls = await untilNoCalls({ store, feed, clock }, pod_name, uid, waitMs, over.signal);
        }
      } finally {
        if (waitMs > 0) waiters -= 1;
        stopping.removeEventListener('abort', end);
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
        drain_expires_at: new Date(untilMs).toISOString(),
      };
    },
  );

  app.post(
    '/undrain',
    {
      config: { ...guard, audit: { action: 'pod.undrain', what: bodyField('pod_name') } },
      schema: {
        tags,
        summary: 'End a drain now',
        body: schemas.UndrainBody,
        response: { 200: schemas.Undrained, ...errors, ...replaced },
      },
    },
    async (request) => {
      const { pod_name, uid } = request.body;
      request.about.pod_name = pod_name;
      const { activeCalls, blockedBy } = await withDeadline(
        clock,
        config.requestTimeoutMs,
        router.undrain(pod_name, { uid, by: request.actor }),
      );
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
      schema: {
        tags,
        summary: 'One pod with its calls',
        params: schemas.PodParams,
        response: { 200: schemas.Pod, ...errors },
      },
    },
    async (request) =>
      showPod(await withDeadline(clock, config.requestTimeoutMs, store.pod(request.params.pod))),
  );
}

function parseWait(text: string | undefined): number {
  if (text === undefined) return 0;
  const ms = parseDuration(text);
  if (ms === undefined || ms > longestWaitMs) {
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

/** What the cluster told when the pod was registered; other sources do not know. */
function startedAt(metadata: string): string | null {
  try {
    const { started_at } = JSON.parse(metadata) as { started_at?: unknown };
    return typeof started_at === 'string' ? started_at : null;
  } catch {
    return null;
  }
}
