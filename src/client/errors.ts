/**
 * The errors of this library. A caller does one of three things: fix the code (`InvalidArgumentError`, `ApiError`), try
 * elsewhere or later (`NoPodsError`, `StillWaitingError`, `RouterUnavailableError`), or drop the call (`CallNotFoundError`,
 * `StaleFenceError`, `CallLostError`). No message contains the API key.
 */
import type { WaitingPlace } from './wire.js';

/** The base class of all errors of this library. */
export class SmartRouterError extends Error {
  override readonly name: string = 'SmartRouterError';

  constructor(
    /** Stable, for branching: the router's code if it sent one, else one of this library's. */
    readonly code: string,
    message: string,
    options?: { cause?: unknown },
  ) {
    super(message, options);
  }

  /** The message of an Error is not enumerable: without this, a JSON log would lose it. */
  toJSON(): Record<string, unknown> {
    const fields: object = { ...this };
    return { name: this.name, message: this.message, ...fields };
  }
}

/** An option or argument is wrong; nothing was sent. */
export class InvalidArgumentError extends SmartRouterError {
  override readonly name = 'InvalidArgumentError';

  constructor(message: string) {
    super('invalid_argument', message);
  }
}

/** `close()` was called before or while the operation ran. */
export class ClientClosedError extends SmartRouterError {
  override readonly name = 'ClientClosedError';

  constructor(operation: string) {
    super('client_closed', `${operation}: the client is closed. Create a new client.`);
  }
}

/** The router's error response. */
export interface Refusal {
  /** For example `release CA123`. */
  operation: string;
  status: number;
  /** The router's code, or `unexpected_status` if the response was not the router's JSON. */
  code: string;
  /** The router's message. */
  text: string;
  /** From `Retry-After`, uncapped; null when absent. */
  retryAfterMs: number | null;
}

const advice: Record<string, string> = {
  invalid_request: 'Fix the request: repeating it will not help.',
  unauthorized: 'Check the apiKey option against SMART_ROUTER_API_KEY of the router.',
  forbidden: 'This key has no permission: check which key the router expects for this operation.',
  not_found: 'The router has no such path: check baseUrl.',
  pod_not_found: 'Check the pod name.',
  pod_replaced: 'Another pod has this name now: do nothing.',
  too_many_requests: 'Slow down and try again after the time in retryAfterMs.',
  no_pods: 'Play a busy message, or try again after the time in retryAfterMs.',
  queue_full: 'Play a busy message, or try again after the time in retryAfterMs.',
  merchant_limit: 'Play a busy message, or try again after the time in retryAfterMs.',
  wait_expired: 'Play a busy message.',
  call_not_found: 'The call has ended or was never allocated: stop serving it.',
  stale_fence: 'The call now belongs to a later claim: stop serving it.',
  stale_report: 'A later report of this pod counts: drop this one.',
  unexpected_status: 'This is not a response of the router: check baseUrl and the proxies in between.',
};

/** Joins the message and our advice as two sentences: the router's messages have no full stop, a proxy's may. */
export function withAdvice(text: string, hint: string): string {
  const sentence = text.trimEnd().replace(/\.+$/, '');
  return sentence === '' ? hint : `${sentence}${/[!?]$/.test(sentence) ? '' : '.'} ${hint}`;
}

/** The router rejected the request. Not retried, except 429 `too_many_requests`. */
export class ApiError extends SmartRouterError {
  override readonly name: string = 'ApiError';
  readonly status: number;
  readonly retryAfterMs: number | null;

  constructor(refusal: Refusal) {
    const hint = Object.hasOwn(advice, refusal.code) ? advice[refusal.code] : undefined;
    super(
      refusal.code,
      `${refusal.operation}: the router answered ${refusal.status} ${refusal.code}: ${hint ? withAdvice(refusal.text, hint) : refusal.text}`,
    );
    this.status = refusal.status;
    this.retryAfterMs = refusal.retryAfterMs;
  }
}

/**
 * The router works and has no pod for this call. Not retried, and no reason for a fallback. `code`: `no_pods` (every pod is
 * busy), `queue_full` (too many calls wait), `wait_expired` (it waited as long as the router allows), `merchant_limit` (its
 * merchant has as many calls as it may).
 */
export class NoPodsError extends ApiError {
  override readonly name = 'NoPodsError';
}

/**
 * The call still waits for a pod when the `wait` of its allocate ends. It keeps its place for three poll intervals of the
 * router (15 s): allocate it again with `wait`, or release it.
 */
export class StillWaitingError extends SmartRouterError implements WaitingPlace {
  override readonly name = 'StillWaitingError';
  readonly position: number;
  readonly waitingSince: Date;
  readonly waitExpiresAt: Date;

  constructor(operation: string, place: WaitingPlace) {
    super(
      'still_waiting',
      `${operation}: the call still waits for a pod, at place ${place.position}. Allocate it again with wait to keep its place, or release it.`,
    );
    this.position = place.position;
    this.waitingSince = place.waitingSince;
    this.waitExpiresAt = place.waitExpiresAt;
  }
}

/** 404 `call_not_found`: the call has ended, or the router never knew it. */
export class CallNotFoundError extends ApiError {
  override readonly name = 'CallNotFoundError';
}

/** 409 `stale_fence`: the call exists, but under a later claim than ours. */
export class StaleFenceError extends ApiError {
  override readonly name = 'StaleFenceError';
}

/** 409 `pod_replaced`: another pod of this name is registered; the old pod and its calls have ended. */
export class PodReplacedError extends ApiError {
  override readonly name = 'PodReplacedError';
}

export type UnavailableReason = 'network' | 'timeout' | 'server_error' | 'bad_response' | 'breaker_open';

/** The router is unreachable, timed out, failed with a 5xx, or sent an unexpected response. */
export class RouterUnavailableError extends SmartRouterError {
  override readonly name = 'RouterUnavailableError';
  readonly reason: UnavailableReason;
  /** Requests sent: 0 if the breaker was open. */
  readonly attempts: number;
  /** The HTTP status, when there was one. */
  readonly status: number | null;
  readonly retryAfterMs: number | null;

  constructor(failure: {
    operation: string;
    reason: UnavailableReason;
    text: string;
    attempts: number;
    /** The router's code, for a 5xx that carried one. */
    code?: string | undefined;
    status?: number | undefined;
    retryAfterMs?: number | null | undefined;
    cause?: unknown;
  }) {
    super(
      failure.code ?? 'router_unavailable',
      `${failure.operation}: ${failure.text} (requests sent: ${failure.attempts})`,
      failure.cause === undefined ? undefined : { cause: failure.cause },
    );
    this.reason = failure.reason;
    this.attempts = failure.attempts;
    this.status = failure.status ?? null;
    this.retryAfterMs = failure.retryAfterMs ?? null;
  }
}

/** Why a call was lost: it ended at the router, a later claim holds it, or another pod owns it. */
export type LostReason = 'ended' | 'stale_fence' | 'conflict';

/** The reason of an aborted `call.lost`. */
export class CallLostError extends SmartRouterError {
  override readonly name = 'CallLostError';

  constructor(
    readonly callSid: string,
    readonly reason: LostReason,
    options?: { cause?: unknown },
  ) {
    const what = {
      ended: 'has ended at the router',
      stale_fence: 'now belongs to a later claim',
      conflict: 'is owned by another pod, has ended, or does not fit on this pod',
    }[reason];
    super('call_lost', `Call ${callSid} ${what}: stop serving it; its pod may get other calls.`, options);
  }
}

const noPodCodes: ReadonlySet<string> = new Set(['no_pods', 'queue_full', 'wait_expired', 'merchant_limit']);

/** Whether the response says that the router works and has no pod for the call. */
export function isNoPod(code: string | undefined): boolean {
  return code !== undefined && noPodCodes.has(code);
}

const classes: Record<string, typeof ApiError> = {
  call_not_found: CallNotFoundError,
  stale_fence: StaleFenceError,
  pod_replaced: PodReplacedError,
};

/** The only place where codes become error classes. */
export function refusalError(refusal: Refusal): ApiError {
  const known = Object.hasOwn(classes, refusal.code) ? classes[refusal.code] : undefined;
  return new (isNoPod(refusal.code) ? NoPodsError : (known ?? ApiError))(refusal);
}

/** Whether the router is down. Not with a full Redis: the router still renews, releases and reports. */
export function isDown(error: unknown): error is RouterUnavailableError {
  return error instanceof RouterUnavailableError && error.code !== 'store_full';
}

/** Whether the same request may succeed soon: the router is down or overloaded. */
export function isPassing(error: unknown): error is RouterUnavailableError | ApiError {
  if (isDown(error)) return true;
  return error instanceof ApiError && error.status === 429 && !(error instanceof NoPodsError);
}
