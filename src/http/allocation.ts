/**
 * One allocate for a caller that may go away. Before the store is asked, a caller that is gone gets nothing.
 * After it, a pod that nobody will hear of goes back at once, unless somebody has asked for the same call since.
 */
import type { FastifyRequest } from 'fastify';
import type { CallRequest } from '../calls/router.js';
import type { Allocation } from '../calls/store/store.js';
import { AppError } from '../errors.js';
import type { HttpContext } from './context.js';
import { disconnectedError, isDisconnected, withDeadline } from './deadline.js';
import { overloaded } from './gate.js';
import { buildWsUrl, defaultCallTemplate, isPathSegment } from './providers/ws-url.js';

type Wanted = Omit<CallRequest, 'template'> & { template: string | undefined };

export async function allocateFor(
  context: HttpContext,
  request: FastifyRequest,
  wanted: Wanted,
): Promise<{ allocation: Allocation; wsUrl: string }> {
  const { router, clock, config, log } = context;
  const call: CallRequest = { ...wanted, template: wanted.template ?? defaultCallTemplate(wanted.provider) };
  request.about.call_sid = call.callSid;
  for (const field of ['provider', 'flow', 'template'] as const) {
    if (!isPathSegment(call[field])) {
      throw new AppError('invalid_request', `${field} must be usable as a part of a URL's path`);
    }
  }
  if (isDisconnected(request)) throw disconnectedError();
  // Whoever came in under another address: a provider's webhook, or one that is written in another way.
  if (!context.admission.hasRoomForCall) {
    context.metrics.requestsShed.inc({ kind: 'call' });
    throw overloaded();
  }
  const giveBack = (allocation: Allocation) =>
    router.giveBack(call.callSid, allocation).catch((error: unknown) => {
      log.warn(
        { err: error, call_sid: call.callSid },
        'a pod for a caller that is gone could not be given back: its lease will end',
      );
    });
  const pending = router.allocate(call);
  let allocation: Allocation;
  try {
    allocation = await withDeadline(clock, config.requestTimeoutMs, pending);
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
