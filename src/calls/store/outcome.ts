/** What an allocate gave, and what `explain` says that it would give. */
import type { PoolId } from '../../config/tiers.js';
import type { Reply } from './connection.js';
import { lines, list, pairs, parseKind, strings } from './replies.js';

export interface Waiting {
  /** Place among the waiting calls of its queue, from 1. */
  position: number;
  sinceMs: number;
  untilMs: number;
}

const refusals = ['no_pods', 'merchant_limit', 'queue_full', 'wait_expired', 'wait_over'] as const;
export type Refusal = (typeof refusals)[number];

/** Exactly one of the three. */
export interface AllocateOutcome {
  allocation?: Allocation;
  waiting?: Waiting;
  refusal?: Refusal;
}

export interface Allocation {
  podName: string;
  sourcePool: PoolId;
  allocatedAt: string;
  leaseExpiresAtMs: number;
  fence: number;
  wasExisting: boolean;
  /** Calls past their lease that were ended to free a pod. */
  reclaimed: number;
  /** How long the call waited for its pod; undefined if it did not. */
  waitedMs?: number | undefined;
  /** False: fewer than REDIS_WAIT_REPLICAS replicas confirmed it. */
  replicated?: false;
}

const isRefusal = (code: Reply | undefined): code is Refusal => refusals.some((refusal) => refusal === code);

/** Undefined for a reply that is an error. */
export function parseOutcome(reply: Reply[]): { outcome: AllocateOutcome; nowMs: number } | undefined {
  const [code] = reply;
  if (isRefusal(code)) return { outcome: { refusal: code }, nowMs: Number(reply[1]) };
  if (code === 'waiting') {
    const [, position = 1, sinceMs = 0, untilMs = 0, nowMs = 0] = reply.map(Number);
    return { outcome: { waiting: { position, sinceMs, untilMs } }, nowMs };
  }
  if (code !== 'ok') return undefined;
  const allocation: Allocation = {
    podName: String(reply[1]),
    sourcePool: String(reply[2]) as PoolId,
    allocatedAt: String(reply[3]),
    leaseExpiresAtMs: Number(reply[4]),
    fence: Number(reply[5]),
    wasExisting: reply[6] === '1',
    reclaimed: Number(reply[7]),
    waitedMs: reply[9] === '' ? undefined : Number(reply[9]),
  };
  return { outcome: { allocation }, nowMs: Number(reply[8]) / 1000 };
}

/** Every pod is in one state. `misplaced`: allocate finds it after the next sweep. `flapping`: set back. */
export const podStates = [
  'free',
  'busy',
  'draining',
  'terminating',
  'not_ready',
  'awaiting_report',
  'unconfirmed',
  'flapping',
  'misplaced',
  'unreadable',
] as const;
export type PodState = (typeof podStates)[number];

/** A pool of the chain as allocate sees it. */
export interface ChainStep {
  pool: PoolId;
  /** Undefined: the pool does not exist, or its tier was deleted. */
  kind: 'exclusive' | 'shared' | undefined;
  isDeleted: boolean;
  maxConcurrent: number;
  pods: number;
  /** Pods that were counted: fewer than `pods` if the chain has very many. */
  lookedAt: number;
  counts: Record<PodState, number>;
}

/** `limit`: the call counts against `max_calls` of the merchant. */
export interface NextPlace {
  what: 'lease' | 'drain' | 'limit';
  podName: string;
  callSid: string;
  atMs: number;
}

export interface Explanation {
  nowMs: number;
  outcome: AllocateOutcome;
  /** `flapping`: the pod is set back, and no other one is free. */
  podBlockedBy: string;
  isAtLimit: boolean;
  maxCalls: number | undefined;
  /** Of a merchant that has `max_calls`. */
  liveCalls: number;
  waiting: number;
  waitingAll: number;
  /** Waiting calls of merchants with a higher priority. */
  waitingBefore: number;
  steps: ChainStep[];
  /** What would free a place. */
  next: NextPlace[];
}

export function parseExplanation(reply: Reply[]): Explanation {
  const [result, block, isLimited, max, live, waiting, waitingAll, before, next, ...steps] = reply;
  const { outcome, nowMs } = parseOutcome(lines(result ?? null)) ?? { outcome: {}, nowMs: 0 };
  return {
    nowMs,
    outcome,
    podBlockedBy: String(block),
    isAtLimit: isLimited === 1,
    maxCalls: max === '' ? undefined : Number(max),
    liveCalls: Number(live),
    waiting: Number(waiting),
    waitingAll: Number(waitingAll),
    waitingBefore: Number(before),
    next: list(next ?? null).map((row) => {
      const [what, podName = '', callSid = '', atMs] = strings(row);
      return { what: what as NextPlace['what'], podName, callSid, atMs: Number(atMs) };
    }),
    steps: steps.map(parseStep),
  };
}

function parseStep(row: Reply): ChainStep {
  const [pool, value, pods, lookedAt, ...counted] = strings(row);
  const { kind, max } = parseKind(value);
  const counts = Object.fromEntries(podStates.map((state) => [state, 0])) as Record<PodState, number>;
  for (const [state, count] of pairs(counted)) {
    // An operator may have written another reason by hand.
    const known = podStates.find((one) => one === state) ?? 'unreadable';
    counts[known] += Number(count);
  }
  return {
    pool: pool as PoolId,
    kind,
    isDeleted: value === 'gone',
    maxConcurrent: max,
    pods: Number(pods),
    lookedAt: Number(lookedAt),
    counts,
  };
}
