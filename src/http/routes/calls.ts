/** Allocate, release, renew. */
import { parseDuration } from '../../config/durations.js';
import { showValue } from '../../config/tiers.js';
import { AppError } from '../../errors.js';
import { bodyField, isOperator } from '../action-log.js';
import { allocateFor, markOf } from '../allocation.js';
import type { App, HttpContext } from '../context.js';
import { inTime } from '../deadline.js';
import {
  AllocateBody,
  Allocated,
  CallBody,
  ErrorAnswer,
  errorOf,
  ReleaseBody,
  Released,
  Renewed,
  WaitingAnswer,
} from '../schemas.js';

export async function callRoutes(app: App, context: HttpContext): Promise<void> {
  const { router } = context;
  const tags = ['calls'];
  const guard = { access: 'api' as const };
  const ofOneCall = {
    400: ErrorAnswer,
    404: errorOf('call_not_found'),
    409: errorOf('stale_fence'),
    503: ErrorAnswer,
  };
  // May be late: the pod of a disconnected caller is released (allocation.ts), and a release frees only its own call.
  const action = (name: string) => ({
    name,
    target: bodyField('call_sid'),
    ofOperatorsOnly: true,
    mayBeLate: true,
  });

  app.post(
    '/allocate',
    {
      config: { ...guard, action: action('call.allocate') },
      schema: {
        tags,
        summary: 'Allocate a pod for a call, or return the pod that it already has',
        body: AllocateBody,
        response: {
          200: Allocated,
          202: WaitingAnswer,
          400: ErrorAnswer,
          429: errorOf('merchant_limit'),
          503: errorOf(
            'no_pods',
            'queue_full',
            'wait_expired',
            'store_full',
            'store_unavailable',
            'not_replicated',
            'timeout',
          ),
        },
      },
    },
    async (request, reply) => {
      const { body } = request;
      const waitMs = parseWait(body.wait);
      const answer = await allocateFor(
        context,
        { request, reply },
        {
          callSid: body.call_sid,
          merchantId: body.merchant_id ?? '',
          provider: body.provider ?? 'twilio',
          flow: body.flow ?? 'v2',
          template: body.template,
        },
        { waitMs },
      );
      if ('waiting' in answer) {
        const { position, sinceMs, untilMs } = answer.waiting;
        reply.code(202);
        return {
          success: true as const,
          status: 'waiting' as const,
          position,
          waiting_since: new Date(sinceMs).toISOString(),
          wait_expires_at: new Date(untilMs).toISOString(),
          retry_after_ms: context.config.holdPollIntervalMs,
        };
      }
      const { allocation, wsUrl } = answer;
      return {
        success: true as const,
        pod_name: allocation.podName,
        ws_url: wsUrl,
        source_pool: allocation.sourcePool,
        allocated_at: allocation.allocatedAt,
        lease_expires_at: new Date(allocation.leaseExpiresAtMs).toISOString(),
        fence: allocation.fence,
        was_existing: allocation.wasExisting,
        ...(allocation.waitedMs === undefined ? {} : { waited_ms: allocation.waitedMs }),
        ...markOf(allocation),
        ...router.generation,
      };
    },
  );

  app.post(
    '/release',
    {
      config: { ...guard, action: action('call.release') },
      schema: {
        tags,
        summary: 'End a call; its pod becomes available unless it drains',
        body: ReleaseBody,
        response: { 200: Released, ...ofOneCall },
      },
    },
    async (request) => {
      const { call_sid, fence, reason } = request.body;
      request.about.call_sid = call_sid;
      const by = isOperator(request.actor) ? request.actor : undefined;
      const released = await inTime(context, router.release(call_sid, fence, { reason, by }));
      request.about.pod_name = released.podName;
      return {
        success: true as const,
        pod_name: released.podName,
        released_to_pool: released.releasedToPool,
        was_draining: released.wasDraining,
        ...(released.podName === null ? { was_waiting: true } : {}),
        ...markOf(released),
      };
    },
  );

  app.post(
    '/renew',
    {
      config: guard,
      schema: {
        tags,
        summary: 'Renew the lease of a call: a call keeps its pod as long as it is renewed',
        body: CallBody,
        response: { 200: Renewed, ...ofOneCall },
      },
    },
    async (request) => {
      const { call_sid, fence } = request.body;
      request.about.call_sid = call_sid;
      const { leaseExpiresAtMs } = await inTime(context, router.renew(call_sid, fence));
      return {
        success: true as const,
        lease_expires_at: new Date(leaseExpiresAtMs).toISOString(),
        ...router.generation,
      };
    },
  );
}

const maxWaitMs = 60_000;

/** Undefined: the call may not wait. */
export function parseWait(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const ms = parseDuration(text);
  if (ms !== undefined && ms <= maxWaitMs) return ms;
  throw new AppError(
    'invalid_request',
    `wait must be a duration from 0s to 60s like 30s, got ${showValue(text)}`,
  );
}
