/**
 * What travels: the router's snake_case answers, checked and turned into this library's words. A decoder
 * throws `ShapeError`; the transport makes a `RouterUnavailableError` of it, since whoever answered 200
 * with something else (a proxy's login page, say) is not the router.
 */
export class ShapeError extends Error {
  override readonly name = 'ShapeError';
}

/** Turns a parsed 2xx body into a result, or throws {@link ShapeError}. */
export type Decode<T> = (body: Record<string, unknown>) => T;

/** What `allocate` gives. Times are the store's. */
export interface Allocation {
  podName: string;
  wsUrl: string;
  /** `pool:{tier}` or `merchant:{id}`. */
  sourcePool: string;
  allocatedAt: Date;
  leaseExpiresAt: Date;
  /** Names this claim of the call: sent with every renew and release, so that a late one touches nothing. */
  fence: number;
  /** True when the call already had this pod: a retry, or another router replica was first. */
  wasExisting: boolean;
}

/** The answer to a pod's report. All are call SIDs. */
export interface Report {
  /** Served by this pod and renewed. */
  renewed: string[];
  /** The router had forgotten them and knows them again. */
  adopted: string[];
  /** The pod no longer reported them; they are over. */
  ended: string[];
  /** Not this pod's to serve: drop them. */
  conflicts: string[];
  /** The fences of reported calls, where the router gave them. */
  fences: Record<string, number>;
  /** The router's time in milliseconds; older routers do not tell it. */
  atMs?: number;
}

export interface ReleasedPod {
  podName: string;
  /** Where the pod is available again; null when it is draining, terminating or not ready. */
  releasedToPool: string | null;
  wasDraining: boolean;
}

export interface DrainResult {
  podName: string;
  hasActiveCall: boolean;
  activeCalls: number;
  message: string;
  /** When the drain ends by itself; null if the router is older than this field. */
  drainExpiresAt: Date | null;
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

export const decodeAllocation: Decode<Allocation> = (body) => {
  const fence = body.fence;
  if (!isFence(fence)) throw new ShapeError('fence is not an integer');
  return {
    podName: string(body, 'pod_name'),
    wsUrl: string(body, 'ws_url'),
    sourcePool: string(body, 'source_pool'),
    allocatedAt: time(body, 'allocated_at'),
    leaseExpiresAt: time(body, 'lease_expires_at'),
    fence,
    wasExisting: boolean(body, 'was_existing'),
  };
};

export const decodeRelease: Decode<ReleasedPod> = (body) => ({
  podName: string(body, 'pod_name'),
  releasedToPool: body.released_to_pool === null ? null : string(body, 'released_to_pool'),
  wasDraining: boolean(body, 'was_draining'),
});

export const decodeRenewal: Decode<{ leaseExpiresAt: Date }> = (body) => ({
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

export const decodeDrain: Decode<DrainResult> = (body) => {
  const activeCalls = body.active_calls;
  if (!Number.isSafeInteger(activeCalls)) throw new ShapeError('active_calls is not an integer');
  return {
    podName: string(body, 'pod_name'),
    hasActiveCall: boolean(body, 'has_active_call'),
    activeCalls: activeCalls as number,
    message: string(body, 'message'),
    drainExpiresAt: body.drain_expires_at === undefined ? null : time(body, 'drain_expires_at'),
  };
};

/** The contract promises nothing of undrain's answer but its success. */
export const decodeUndrain: Decode<void> = () => {};
