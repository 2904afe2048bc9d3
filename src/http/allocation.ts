/**
 * Allocates a pod for a caller that may disconnect. Before the store is asked, a disconnected caller gets nothing. After
 * it, the pod of a disconnected caller is released at once, unless another request has asked for the same call since.
 */
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Allocation, CallRequest, Waiting } from '../calls/store/store.js';
import { AppError } from '../errors.js';
import type { HttpContext } from './context.js';
import { disconnectedError, inTime, isDisconnected } from './deadline.js';
import { type GatedResponse, overloaded } from './gate.js';
import { buildWsUrl, defaultCallTemplate, isPathSegment } from './providers/ws-url.js';

/** Requests that wait on an open connection: each holds one. More get their place at once, and ask again. */
const maxOpenWaits = 5000;

/** A pod, or a place in the queue. */
export type Answer = { allocation: Allocation; wsUrl: string } | { waiting: Waiting };

interface WaitOptions {
  /** How long the request may stay open for a pod; undefined: the call may not wait. */
  waitMs?: number | undefined;
  /** The caller was told to wait before. */
  wasHeld?: boolean | undefined;
}

type Wanted = Omit<CallRequest, 'template'> & { template: string | undefined };

/** The field of an answer that says that too few replicas have the change. */
export function markOf({ replicated }: { replicated?: false }): { replicated?: false } {
  return replicated === undefined ? {} : { replicated };
}

export async function allocateFor(
  context: HttpContext,
  { request, reply }: { request: FastifyRequest; reply: FastifyReply },
  wanted: Wanted,
  { waitMs, wasHeld }: WaitOptions = {},
): Promise<Answer> {
  const { router, config, log, queue, clock, stopping } = context;
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
    request.server.countRejection('call');
    throw overloaded();
  }
  const giveBack = (allocation: Allocation) =>
    router.giveBack(call.callSid, allocation).catch((error: unknown) => {
      log.warn(
        { err: error, call_sid: call.callSid },
        'caller disconnected; releasing its pod failed, the lease will expire',
      );
    });
  const ask = async (held = wasHeld): Promise<Allocation | Waiting> => {
    const pending: Promise<Allocation | Waiting> =
      waitMs === undefined ? router.allocate(call) : router.allocateOrWait(call, held);
    try {
      return await inTime(context, pending);
    } catch (error) {
      if (error instanceof AppError && error.code === 'timeout') {
        pending.then(
          (late) => ('podName' in late ? giveBack(late) : undefined),
          () => undefined,
        );
      }
      throw error;
    }
  };
  const untilServed = async (): Promise<Allocation | Waiting> => {
    const deadline = clock.monotonic() + (waitMs ?? 0);
    const over = new AbortController();
    const end = () => over.abort();
    request.raw.socket.once('close', end);
    stopping.addEventListener('abort', end, { once: true });
    const waiter = queue.open(call.callSid);
    try {
      for (let held = wasHeld; ; held = true) {
        // Once it waits, a wait that has expired or was released ends the request: it must not enter the queue again.
        const answer = await ask(held);
        const leftMs = deadline - clock.monotonic();
        if ('podName' in answer || leftMs <= 0 || stopping.aborted || isDisconnected(request)) return answer;
        (reply.raw as GatedResponse).leave();
        await waiter.next(leftMs, over.signal);
      }
    } finally {
      waiter.close();
      request.raw.socket.removeListener('close', end);
      stopping.removeEventListener('abort', end);
    }
  };
  const isLongPoll = (waitMs ?? 0) > 0 && queue.openRequests < maxOpenWaits;
  const answer = isLongPoll ? await untilServed() : await ask();
  if (!('podName' in answer)) {
    request.about.waiting = answer.position;
    return { waiting: answer };
  }
  const allocation = answer;
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
