import {
  CallNotFoundError,
  InvalidArgumentError,
  isPassing,
  StaleFenceError,
  StillWaitingError,
} from './errors.js';
import { fullJitterMs } from './loop.js';
import { type AllocateRequest, integer, maxDurationMs } from './options.js';
import type { Requester } from './requester.js';
import {
  type Allocation,
  type DrainResult,
  decodeAllocation,
  decodeAllocationOrPlace,
  decodeDrain,
  decodePod,
  decodeRelease,
  decodeRenewal,
  decodeReport,
  decodeUndrain,
  isFence,
  type PodState,
  type ReleasedPod,
  type Renewal,
  type Report,
  type WaitingPlace,
} from './wire.js';

/** The router's operations: each function checks arguments, builds the request and decodes the response. */

export interface SignalOption {
  /** Aborts the operation, with its reason. */
  signal?: AbortSignal | undefined;
}

export interface ClaimOptions extends SignalOption {
  /** From the allocation; without it (null or undefined) the router acts on any claim of the call. */
  fence?: number | null | undefined;
}

export interface ReleaseOptions extends ClaimOptions {
  /** The caller could not connect to the pod. Three such calls in a row set the pod back. */
  reason?: 'connect_failed' | undefined;
}

export interface UndrainOptions extends SignalOption {
  /** The pod's UID (`POD_UID`); throws `PodReplacedError` if another pod has its name now. */
  uid?: string | undefined;
}

export interface DrainOptions extends UndrainOptions {
  /**
   * Wait until the last call has ended, at most this long: milliseconds, or `"500ms"`, `"30s"`, `"15m"`, `"1h"`. A retry
   * waits for the rest of this time.
   */
  wait?: number | string | undefined;
}

export interface WaitOptions extends SignalOption {
  /**
   * Wait for a pod if all are busy and the router's configuration has `hold`, at most this long: milliseconds, or `"30s"`,
   * `"2m"`. With `0` the call enters the queue, and the result is a pod or `StillWaitingError` at once.
   */
  wait?: number | string | undefined;
  /** Called when the call enters the queue, and about every 10 s while it waits. */
  onWaiting?: ((place: WaitingPlace) => void) | undefined;
}

export interface ReportOptions extends SignalOption {
  /** The pod's UID, so that a report from a replaced pod of the same name does not count. */
  uid?: string | undefined;
  /** The tier of a pod that registers itself (`POD_SOURCE=registered`). */
  tier?: string | undefined;
  merchant?: string | undefined;
  /** Time between reports: after three intervals (at least 15 s) without one the pod gets no new calls. */
  intervalMs?: number | undefined;
}

/**
 * How a release ended. `already_ended` is also the result of a retry whose first response was lost; `not_ours`: a later
 * claim holds the call (409 `stale_fence`); `was_waiting`: the call waited for a pod and has left the queue; `fallback`: the
 * call never had a pod. None of them needs any action.
 */
export type ReleaseResult =
  | ({ released: true } & ReleasedPod)
  | { released: false; reason: 'already_ended' | 'not_ours' | 'was_waiting' | 'fallback' };

/** Rejects the values that the router would reject. */
export function checkCallSid(callSid: unknown): void {
  if (isCallSid(callSid)) return;
  throw new InvalidArgumentError(
    'callSid must be 1 to 256 characters of valid Unicode without control characters.',
  );
}

function isCallSid(callSid: unknown): callSid is string {
  return typeof callSid === 'string' && /^[^\p{Cc}\p{Cs}]{1,256}$/u.test(callSid);
}

/** Also keeps `..` and the like out of the path. */
export function checkPod(pod: unknown): void {
  if (typeof pod !== 'string' || pod.length > 253 || !/^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$/.test(pod)) {
    throw new InvalidArgumentError(
      'The pod must be a Kubernetes name: lower-case letters, digits, - and dots.',
    );
  }
}

/** Returns undefined for null: a field that is undefined is not sent. */
export function checkFence(fence: number | null | undefined): number | undefined {
  if (fence === undefined || fence === null) return undefined;
  if (!isFence(fence)) throw new InvalidArgumentError('fence must be the integer from the allocation.');
  return fence;
}

function waitMilliseconds(wait: number | string | undefined): number {
  if (wait === undefined) return 0;
  const match = /^(\d{1,8})(ms|s|m|h)$/.exec(typeof wait === 'number' ? `${wait}ms` : wait);
  const unitMs = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 }[match?.[2] ?? ''] ?? Number.NaN;
  const waitMs = Number(match?.[1]) * unitMs;
  if (!(waitMs <= maxDurationMs)) {
    throw new InvalidArgumentError('wait must be whole milliseconds, or like "30s" or "15m", up to one day.');
  }
  return waitMs;
}

function allocateBody(request: AllocateRequest) {
  return {
    call_sid: request.callSid,
    merchant_id: request.merchantId,
    provider: request.provider,
    flow: request.flow,
    template: request.template,
  };
}

export async function allocateCall(
  requester: Requester,
  request: AllocateRequest,
  options: SignalOption,
): Promise<Allocation> {
  checkCallSid(request.callSid);
  return requester.send({
    operation: `allocate ${request.callSid}`,
    path: '/allocate',
    body: () => allocateBody(request),
    decode: decodeAllocation,
    signal: options.signal,
  });
}

/**
 * The longest poll of an allocate with `wait`. With the deadline of an attempt (2 s) it stays below the 15 s after which a
 * call that is not asked for loses its place: also a connection that dies without a sign costs no place.
 */
const maxPollMs = 10_000;

/**
 * Allocates a pod, and waits for one if all are busy. The first request returns at once, with a pod or a place in the queue;
 * then polls follow until the call has a pod. After a failed poll it asks at once, as any allocate does, and keeps its place.
 * If that fails too it repeats it until the time is up or the breaker opens.
 */
export async function allocateWithWait(
  requester: Requester,
  request: AllocateRequest,
  options: WaitOptions,
): Promise<Allocation> {
  const { callSid } = request;
  checkCallSid(callSid);
  const { clock } = requester.settings;
  const operation = `allocate ${callSid}`;
  const leftMs = timer(requester, options.wait);
  let isQueued = false;
  const ask = (pollMs: number, signal: AbortSignal) =>
    requester.send({
      operation,
      path: '/allocate',
      body: () => ({ ...allocateBody(request), wait: `${pollMs}ms` }),
      decode: decodeAllocationOrPlace,
      extraTimeMs: () => pollMs,
      ...(pollMs > 0 ? { retries: 0 } : {}),
      signal,
    });
  const untilServed = async (signal: AbortSignal): Promise<Allocation> => {
    let earlyAnswers = 0;
    let pollMs = 0;
    for (let attempt = 1; ; attempt++) {
      let pauseMs = 0;
      const askedAtMs = clock.monotonic();
      try {
        const answer = await ask(pollMs, signal);
        if ('podName' in answer) return answer;
        isQueued = true;
        const { retryAfterMs, ...place } = answer;
        requester.callBack('onWaiting', () => options.onWaiting?.(place));
        if (leftMs() === 0) throw new StillWaitingError(operation, place);
        // The router answers a poll early if it is stopping or has too many of them.
        if (clock.monotonic() - askedAtMs < pollMs / 2) {
          pauseMs = fullJitterMs(clock, pauseBetweenMs, retryAfterMs, earlyAnswers++);
        }
        pollMs = Math.min(leftMs(), maxPollMs);
      } catch (error) {
        const mayAskAgain = isQueued && leftMs() > 0 && requester.breaker.state !== 'open';
        if (!mayAskAgain || !isPassing(error)) throw error;
        if (pollMs === 0) pauseMs = pauseBetweenMs;
        pollMs = 0;
        requester.emit({ type: 'retry', operation, attempt, delayMs: pauseMs, error });
      }
      await clock.sleep(Math.min(pauseMs, leftMs()), signal);
      signal.throwIfAborted();
    }
  };
  try {
    return await requester.lifetime.run(operation, options.signal, untilServed);
  } catch (error) {
    // Once, in the background: otherwise the call leaves the queue when the router misses its polls. It has no fence, because
    // the call may have got a pod at this moment; a retry would be late and could end a later allocation of the SID.
    if (isQueued && options.signal?.aborted)
      void releaseCall(requester, callSid, { retries: 0 }).catch(() => {});
    throw error;
  }
}

/** The rest of a `wait`, which begins now. */
function timer({ settings: { clock } }: Requester, wait: number | string | undefined): () => number {
  const endsAtMs = clock.monotonic() + waitMilliseconds(wait);
  return () => Math.max(0, Math.ceil(endsAtMs - clock.monotonic()));
}

export async function releaseCall(
  requester: Requester,
  callSid: string,
  options: ReleaseOptions & { retries?: number },
): Promise<ReleaseResult> {
  checkCallSid(callSid);
  const fence = checkFence(options.fence);
  try {
    const pod = await requester.send({
      operation: `release ${callSid}`,
      path: '/release',
      body: () => ({ call_sid: callSid, fence, reason: options.reason }),
      decode: decodeRelease,
      signal: options.signal,
      retries: options.retries,
    });
    return pod ? { released: true, ...pod } : { released: false, reason: 'was_waiting' };
  } catch (error) {
    if (error instanceof CallNotFoundError) return { released: false, reason: 'already_ended' };
    if (error instanceof StaleFenceError) return { released: false, reason: 'not_ours' };
    throw error;
  }
}

export async function renewCall(
  requester: Requester,
  callSid: string,
  options: ClaimOptions & { heartbeat?: boolean },
): Promise<Renewal> {
  checkCallSid(callSid);
  const fence = checkFence(options.fence);
  return requester.send({
    operation: `renew ${callSid}`,
    path: '/renew',
    body: () => ({ call_sid: callSid, fence }),
    decode: decodeRenewal,
    signal: options.signal,
    heartbeat: options.heartbeat,
  });
}

/** The router accepts 100 ms to 10 min. A longer interval is not sent: the router would block the pod too early. */
function sentIntervalMs(intervalMs: number | undefined): number | undefined {
  if (intervalMs === undefined) return undefined;
  const checked = integer('intervalMs', intervalMs, intervalMs, 1, maxDurationMs);
  return checked > 600_000 ? undefined : Math.max(100, checked);
}

export async function reportPod(
  requester: Requester,
  pod: string,
  calls: readonly string[],
  options: ReportOptions & { heartbeat?: boolean; asOfMs: number | undefined },
): Promise<Report> {
  checkPod(pod);
  // Anything but an array must not count as an empty list: that would end the pod's calls.
  if (!Array.isArray(calls)) throw new InvalidArgumentError('calls must be an array of call SIDs.');
  // A caller can send the agent any SID: it must not keep the others of a heartbeat from being renewed.
  const invalid = options.heartbeat ? calls.filter((callSid) => !isCallSid(callSid)) : [];
  const snapshot = calls.filter((callSid) => !invalid.includes(callSid));
  for (const callSid of snapshot) checkCallSid(callSid);
  const { uid, tier, merchant, asOfMs } = options;
  const intervalMs = sentIntervalMs(options.intervalMs);
  const report = await requester.send({
    operation: `report ${pod}`,
    path: `/pod/${encodeURIComponent(pod)}/report`,
    body: () => ({ calls: snapshot, uid, tier, merchant, as_of: asOfMs, interval_ms: intervalMs }),
    decode: decodeReport,
    signal: options.signal,
    heartbeat: options.heartbeat,
  });
  return { ...report, conflicts: [...report.conflicts, ...invalid.map(String)] };
}

/** Proxies cut connections that are silent for a minute or two, and fetch may notice that only at the deadline. */
const maxSliceMs = 50_000;
const pauseBetweenMs = 500;
const pauseOpenMs = 2000;

/**
 * With `wait`, resolves when the last call has ended or the time is up, over several requests. If the router is down, it
 * fails only when the time is up: an agent that stops waiting earlier would cut its calls.
 */
export async function drainPod(
  requester: Requester,
  pod: string,
  options: DrainOptions,
): Promise<DrainResult> {
  checkPod(pod);
  const operation = `drain ${pod}`;
  const leftMs = timer(requester, options.wait);
  const sliceMs = () => Math.min(leftMs(), maxSliceMs);
  const { uid } = options;
  const untilDrained = async (signal: AbortSignal): Promise<DrainResult> => {
    for (let attempt = 1; ; attempt++) {
      let pauseMs = pauseBetweenMs;
      try {
        const answer = await requester.send({
          operation,
          path: '/drain',
          body: () => ({ pod_name: pod, uid, wait: sliceMs() > 0 ? `${sliceMs()}ms` : undefined }),
          decode: decodeDrain,
          extraTimeMs: sliceMs,
          signal,
        });
        // Live calls before the time is up: the slice has ended, or that router is stopping. Send the next request.
        if (!answer.hasActiveCall || leftMs() === 0) return answer;
      } catch (error) {
        if (!isPassing(error) || leftMs() === 0) throw error;
        // A heartbeat may close the breaker earlier than it says.
        if (requester.breaker.state === 'open') pauseMs = pauseOpenMs;
        requester.emit({ type: 'retry', operation, attempt, delayMs: pauseMs, error });
      }
      await requester.settings.clock.sleep(Math.min(pauseMs, leftMs()), signal);
      signal.throwIfAborted();
    }
  };
  // For all requests and the pauses between them: closing the client ends a pause too.
  return requester.lifetime.run(operation, options.signal, untilDrained);
}

export async function undrainPod(requester: Requester, pod: string, options: UndrainOptions): Promise<void> {
  checkPod(pod);
  return requester.send({
    operation: `undrain ${pod}`,
    path: '/undrain',
    body: () => ({ pod_name: pod, uid: options.uid }),
    decode: decodeUndrain,
    signal: options.signal,
  });
}

export async function readPod(requester: Requester, pod: string, options: SignalOption): Promise<PodState> {
  checkPod(pod);
  return requester.send({
    operation: `read ${pod}`,
    path: `/pod/${encodeURIComponent(pod)}`,
    body: () => undefined,
    decode: decodePod,
    signal: options.signal,
  });
}
