/** Parses the replies of scripts: pods, calls and pools as operators see them. */
import type { PoolId } from '../../config/tiers.js';
import { AppError } from '../../errors.js';
import type { Reply } from './connection.js';

export interface PoolCounts {
  pool: PoolId;
  /** `gone`: its tier was deleted, and its pods have not been moved yet. */
  kind: 'exclusive' | 'shared' | 'gone';
  maxConcurrent: number;
  assigned: number;
  /** Pods that can take a call. */
  available: number;
  activeCalls: number;
  /** Pods that have no call and cannot get one: blocked, or lost from `available`. */
  stranded: number;
  /** Calls that its pods can serve at once. */
  capacity: number;
  /** The key `assigned` if it has a wrong type, which makes the counts unknown; else empty. */
  unreadableKey: string;
}

export interface Snapshot {
  nowMs: number;
  tierVersion: number;
  epoch: string;
  /** Pods that the removal brake holds. */
  removalsHeld: number;
  /** Pods on which calls failed several times in a row, at most 100: the first to take calls again comes first. */
  setBack: string[];
  waitingCalls: number;
  pools: PoolCounts[];
  activeCalls: number;
}

export interface PodInfo {
  podName: string;
  pool: PoolId | '';
  /**
   * Why it takes no new call: `draining`, `terminating`, `not_ready`, `awaiting_report`, `flapping`, `unconfirmed`,
   * `unreadable` (in lists), or empty.
   */
  blockedBy: string;
  drainingUntilMs: number | undefined;
  leaseCallSid: string | null;
  uid: string;
  metadata: string;
  calls: { callSid: string; leaseExpiresAtMs: number }[];
  /** Undefined if the pod never reported. */
  lastReportMs: number | undefined;
}

/** Where a call comes from. */
export interface Route {
  provider: string;
  flow: string;
  template: string;
}

export interface CallInfo extends Route {
  callSid: string;
  leaseExpiresAtMs: number;
  podName: string;
  sourcePool: string;
  merchantId: string;
  allocatedAt: string;
  renewedAt: string | undefined;
  fence: number;
}

export function parseSnapshot(reply: Reply[]): Snapshot {
  const [now, version, epoch, removalsHeld, setBack, waiting, ...rows] = reply;
  const pools = rows.map(parsePool).sort((a, b) => (a.pool < b.pool ? -1 : 1));
  return {
    nowMs: Number(now),
    tierVersion: Number(version),
    epoch: String(epoch),
    removalsHeld: Number(removalsHeld),
    setBack: strings(setBack ?? null),
    waitingCalls: Number(waiting),
    pools,
    activeCalls: pools.reduce((sum, pool) => sum + pool.activeCalls, 0),
  };
}

function parsePool(row: Reply): PoolCounts {
  const [pool, value, assigned, available, activeCalls, stranded, unreadableKey = ''] = strings(row);
  const { kind = 'gone', max: maxConcurrent } = parseKind(value);
  return {
    pool: pool as PoolId,
    kind,
    maxConcurrent,
    assigned: Number(assigned),
    available: Number(available),
    activeCalls: Number(activeCalls),
    stranded: Number(stranded),
    capacity: Number(assigned) * maxConcurrent,
    unreadableKey,
  };
}

/** The kind of a pool as `pools` stores it: see lua/lib/pools.lua. */
export function parseKind(value: string | undefined): { kind?: 'exclusive' | 'shared'; max: number } {
  if (value === 'exclusive' || value === 'label') return { kind: 'exclusive', max: 1 };
  const shared = /^shared:(\d+)$/.exec(value ?? '');
  return shared ? { kind: 'shared', max: Number(shared[1]) } : { max: 0 };
}

export function parsePod(row: Reply): PodInfo {
  const parts = Array.isArray(row) ? row : [];
  const [podName = '', pool = '', blockedBy = '', until = '', lease = '', uid = '', metadata = ''] = parts
    .slice(0, 7)
    .map(String);
  return {
    podName,
    pool: pool as PoolId | '',
    blockedBy,
    // An operator wrote any other text by hand, without a deadline: see deadline_of in lua/lib/pods.lua.
    drainingUntilMs: /^\d{12,14}$/.test(until) ? Number(until) : undefined,
    leaseCallSid: lease === '' ? null : lease,
    uid,
    metadata,
    calls: pairs(strings(parts[7] ?? null)).map(([callSid, deadline]) => ({
      callSid,
      leaseExpiresAtMs: Number(deadline),
    })),
    lastReportMs: Number(parts[8] ?? '') || undefined,
  };
}

export function parseCall(row: Reply): CallInfo {
  const [callSid = '', deadline, ...rest] = strings(row);
  const fields = new Map(pairs(rest));
  const field = (name: string) => fields.get(name) ?? '';
  return {
    callSid,
    leaseExpiresAtMs: Number(deadline),
    podName: field('pod_name'),
    sourcePool: field('source_pool'),
    merchantId: field('merchant_id'),
    ...splitRoute(field('route')),
    allocatedAt: field('allocated_at'),
    renewedAt: fields.get('renewed_at'),
    fence: Number(field('fence')),
  };
}

export interface WaitingCall extends Route {
  callSid: string;
  merchantId: string;
  /** Place among the waiting calls of its queue, from 1. */
  position: number;
  sinceMs: number;
  untilMs: number;
  /** Its merchant has `max_calls` live calls. */
  isAtLimit: boolean;
  /** Why it found no pod when it entered the queue. */
  saw: string;
}

export function parseWaiting(row: Reply): WaitingCall {
  const [callSid = '', position, isAtLimit, ...rest] = strings(row);
  const fields = new Map(pairs(rest));
  const field = (name: string) => fields.get(name) ?? '';
  return {
    callSid,
    merchantId: field('merchant_id'),
    ...splitRoute(field('route')),
    position: Number(position),
    sinceMs: Number(field('waiting_since')),
    untilMs: Number(field('wait_until')),
    isAtLimit: isAtLimit === '1',
    saw: field('saw'),
  };
}

/** Pairs of a flat list (name, value, name, value), as Redis returns hashes, streams and scores. */
export function pairs(flat: readonly string[]): [string, string][] {
  return flat.flatMap((item, i) => (i % 2 === 0 ? [[item, flat[i + 1] ?? ''] as [string, string]] : []));
}

export function strings(reply: Reply): string[] {
  return Array.isArray(reply) ? reply.map(String) : [];
}

export function list(reply: Reply): Reply[] {
  if (!Array.isArray(reply)) throw new AppError('internal', 'unexpected reply from the store: not a list');
  return reply;
}

/** The most frequent replies are the lines of one string: the client takes 0.4 us to read an element of a list. */
export function lines(reply: Reply): Reply[] {
  return typeof reply === 'string' ? reply.split('\n') : list(reply);
}

/** One field of the call record instead of three: each argument of a script costs the store time. */
export function joinRoute({ provider, flow, template }: Route): string {
  return [provider, flow, template].map(encodeURIComponent).join('/');
}

function splitRoute(route: string): Route {
  const [provider = '', flow = '', template = ''] = route.split('/').map(decodeURIComponent);
  return { provider, flow, template };
}
