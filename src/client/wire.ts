/**
 * Decodes the router's JSON. A decoder throws `ShapeError` for any other response, for example the login page of a proxy;
 * the transport turns it into a `RouterUnavailableError`.
 */
export class ShapeError extends Error {
  override readonly name = 'ShapeError';
}

/** Turns a parsed 2xx body into a result, or throws {@link ShapeError}. */
export type Decode<T> = (body: Record<string, unknown>) => T;

/** The result of `allocate`. Times are the store's. */
export interface Allocation {
  podName: string;
  wsUrl: string;
  /** `pool:{tier}` or `merchant:{id}`. */
  sourcePool: string;
  allocatedAt: Date;
  leaseExpiresAt: Date;
  /** Identifies this claim of the call: with it, a late renew or release changes nothing. */
  fence: number;
  /** True when the call already had this pod: a retry, or another router replica was first. */
  wasExisting: boolean;
  /** How long the call waited for its pod; null if it did not wait. */
  waitedMs: number | null;
}

/** The place of a call that waits for a pod. Times are the store's. */
export interface WaitingPlace {
  /** Among the waiting calls of its merchant, from 1. */
  position: number;
  waitingSince: Date;
  /** When the router ends the wait: `max_wait` of its configuration. */
  waitExpiresAt: Date;
}

/** The response to a pod's report: lists of call SIDs. */
export interface Report {
  /** Served by this pod and renewed. */
  renewed: string[];
  /** Calls that the router did not know and has assigned to this pod. */
  adopted: string[];
  /** Ended, because the pod no longer reported them. */
  ended: string[];
  /** Not calls of this pod: drop them. */
  conflicts: string[];
  /** The fences of reported calls. */
  fences: Record<string, number>;
  /** The router's time in milliseconds; undefined from older routers. */
  atMs?: number;
}

/** The pod of a released call. */
export interface ReleasedPod {
  podName: string;
  /** The pool in which the pod is available again; null when it is draining, terminating or not ready. */
  releasedToPool: string | null;
  wasDraining: boolean;
}

/** The result of `renew`. */
export interface Renewal {
  leaseExpiresAt: Date;
}

/** The result of `drain`. */
export interface DrainResult {
  podName: string;
  hasActiveCall: boolean;
  activeCalls: number;
  message: string;
  /** When the drain expires; null from older routers. */
  drainExpiresAt: Date | null;
}

/** A pod as the router knows it. */
export interface PodState {
  podName: string;
  /** Empty if the router knows none. */
  uid: string;
  /** SIDs of its live calls, also of those that have not arrived yet. */
  calls: string[];
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Fences are positive integers that a double holds exactly (they start at the clock's microseconds). */
export function isFence(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

function string(body: Record<string, unknown>, field: string): string {
  const value = body[field];
  if (typeof value !== 'string' || value === '') throw new ShapeError(`${field} is not a string`);
  return value;
}

function boolean(body: Record<string, unknown>, field: string): boolean {
  const value = body[field];
  if (typeof value !== 'boolean') throw new ShapeError(`${field} is not true or false`);
  return value;
}

function time(body: Record<string, unknown>, field: string): Date {
  const value = new Date(string(body, field));
  if (Number.isNaN(value.getTime())) throw new ShapeError(`${field} is not an ISO 8601 time`);
  return value;
}

function sids(body: Record<string, unknown>, field: string): string[] {
  const value = body[field];
  if (!Array.isArray(value) || !value.every((sid) => typeof sid === 'string')) {
    throw new ShapeError(`${field} is not an array of call SIDs`);
  }
  return value;
}

function count(body: Record<string, unknown>, field: string): number {
  const value = body[field];
  if (!isFence(value)) throw new ShapeError(`${field} is not an integer`);
  return value;
}

export const decodeAllocation: Decode<Allocation> = (body) => ({
  fence: count(body, 'fence'),
  podName: string(body, 'pod_name'),
  wsUrl: string(body, 'ws_url'),
  sourcePool: string(body, 'source_pool'),
  allocatedAt: time(body, 'allocated_at'),
  leaseExpiresAt: time(body, 'lease_expires_at'),
  wasExisting: boolean(body, 'was_existing'),
  waitedMs: body.waited_ms === undefined ? null : count(body, 'waited_ms'),
});

/** The response to an allocate with `wait`: a pod, or a place in the queue (202). */
export const decodeAllocationOrPlace: Decode<Allocation | (WaitingPlace & { retryAfterMs: number })> = (
  body,
) =>
  body.status !== 'waiting'
    ? decodeAllocation(body)
    : {
        position: count(body, 'position'),
        waitingSince: time(body, 'waiting_since'),
        waitExpiresAt: time(body, 'wait_expires_at'),
        retryAfterMs: count(body, 'retry_after_ms'),
      };

/** Null: the call waited for a pod and had none. */
export const decodeRelease: Decode<ReleasedPod | null> = (body) =>
  body.was_waiting === true
    ? null
    : {
        podName: string(body, 'pod_name'),
        releasedToPool: body.released_to_pool === null ? null : string(body, 'released_to_pool'),
        wasDraining: boolean(body, 'was_draining'),
      };

export const decodeRenewal: Decode<Renewal> = (body) => ({
  leaseExpiresAt: time(body, 'lease_expires_at'),
});

export const decodeReport: Decode<Report> = (body) => {
  const fences = body.fences ?? {};
  if (!isRecord(fences) || !Object.values(fences).every(isFence)) {
    throw new ShapeError('fences is not a map of call SIDs to integers');
  }
  return {
    renewed: sids(body, 'renewed'),
    adopted: sids(body, 'adopted'),
    ended: sids(body, 'ended'),
    conflicts: sids(body, 'conflicts'),
    fences: fences as Record<string, number>,
    ...(Number.isSafeInteger(body.at) ? { atMs: body.at as number } : {}),
  };
};

export const decodeDrain: Decode<DrainResult> = (body) => ({
  podName: string(body, 'pod_name'),
  hasActiveCall: boolean(body, 'has_active_call'),
  activeCalls: count(body, 'active_calls'),
  message: string(body, 'message'),
  drainExpiresAt: body.drain_expires_at === undefined ? null : time(body, 'drain_expires_at'),
});

export const decodePod: Decode<PodState> = (body) => ({
  podName: string(body, 'pod_name'),
  uid: typeof body.uid === 'string' ? body.uid : '',
  calls: sids(body, 'calls'),
});

/** The contract promises only the success of an undrain. */
export const decodeUndrain: Decode<void> = () => {};
