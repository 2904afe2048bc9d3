/**
 * Allocates a pod for a caller that may disconnect. Before the store is asked, a disconnected caller gets nothing. After
 * it, the pod of a disconnected caller is released at once, unless another request has asked for the same call since.
 */
import type { FastifyRequest } from 'fastify';
import type { Allocation, CallRequest } from '../calls/store/store.js';
import { AppError } from '../errors.js';
import type { HttpContext } from './context.js';
import { disconnectedError, inTime, isDisconnected } from './deadline.js';
import { overloaded } from './gate.js';
import { buildWsUrl, defaultCallTemplate, isPathSegment } from './providers/ws-url.js';

type Wanted = Omit<CallRequest, 'template'> & { template: string | undefined };

export async function allocateFor(
  context: HttpContext,
  request: FastifyRequest,
  wanted: Wanted,
): Promise<{ allocation: Allocation; wsUrl: string }> {
  const { router, config, log } = context;
  const call: CallRequest = { ...wanted, template: wanted.template ?? defaultCallTemplate(wanted.provider) };
  request.about.call_sid = call.callSid;
  for (const field of ['provider', 'flow', 'template'] as const) {
    if (!isPathSegment(call[field])) {
      throw new AppError('invalid_request', `${field} must be usable as a segment of a URL path`);
    }
  }
  if (isDisconnected(request)) throw disconnectedError();
  // Webhooks, and paths that are written in another way, hold the slot of an `other` request.
  if (!context.admission.hasRoomForCall) {
    context.metrics.requestsShed.inc({ kind: 'call' });
    throw overloaded();
  }
  const giveBack = (allocation: Allocation) =>
    router.giveBack(call.callSid, allocation).catch((error: unknown) => {
      log.warn(
        { err: error, call_sid: call.callSid },
        'caller disconnected; releasing its pod failed, the lease will expire',
      );
    });
  const pending = router.allocate(call);
  let allocation: Allocation;
  try {
    allocation = await inTime(context, pending);
  } catch (error) {
    if (error instanceof AppError && error.code === 'timeout') pending.then(giveBack, () => undefined);
    throw error;
  }
  if (isDisconnected(request)) {
    await giveBack(allocation);
    throw disconnectedError();
  }
  request.about.pod_name = allocation.podName;
  request.about.source_pool = allocation.sourcePool;
  const wsUrl = buildWsUrl({
    template: config.wsUrlTemplate,
    baseUrl: config.voiceAgentBaseUrl,
    pod: allocation.podName,
    provider: call.provider,
    callTemplate: call.template,
    flow: call.flow,
  });
  return { allocation, wsUrl };
}
