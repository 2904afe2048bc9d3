/** One read of a router for `top`: its status, pods, calls, load, replicas and alerts, and what follows from them. */
import type { RouterApi } from '../api.js';
import { readAlerts } from '../commands/alerts.js';
import { stateOf } from '../commands/pods.js';
import { toFailure } from '../failure.js';
import { byText } from '../format.js';
import {
  type Alert,
  type Call,
  type History,
  type Pod,
  type RouterEvent,
  readAll,
  readOptional,
  readStatus,
  type Status,
} from '../replies.js';

export interface Snapshot {
  /** The router's clock, to the second. */
  nowMs: number;
  status: Status;
  pods: readonly Pod[];
  calls: readonly Call[];
  /** Why pods and calls are from an earlier snapshot. */
  listsProblem: string | null;
  replicas: number | null;
  load: Record<'callsPerSecond' | 'noPodsPerSecond' | 'p99Ms', number | null>;
  /** Most severe first; null if they cannot be read. */
  alerts: readonly Alert[] | null;
}

export interface Stale {
  sinceMs: number;
  reason: string;
}

/** Everything that a frame shows. */
export interface TopState {
  url: string;
  snapshot: Snapshot;
  /** Newest last. */
  events: readonly RouterEvent[];
  stale: Stale | undefined;
  /** The local wall clock, and the router's. */
  nowMs: number;
  routerNowMs: number;
}

export async function readSnapshot(api: RouterApi, before: Snapshot | undefined): Promise<Snapshot> {
  const { body: status, nowMs } = await readStatus(api);
  const [lists, history, alerts] = await Promise.all([
    readLists(api, status, before),
    readOptional<History>(api, '/history?minutes=1', 'points'),
    readAlerts(api),
  ]);
  const latest = history?.points.at(-1);
  return {
    nowMs,
    status,
    ...lists,
    // At least one replica answers; 0 means that the store lost the rows that name them.
    replicas: history?.replicas.length || null,
    load: {
      callsPerSecond: latest?.allocated ?? null,
      noPodsPerSecond: latest?.no_pods ?? null,
      p99Ms: latest?.p99_ms ?? null,
    },
    alerts,
  };
}

/** While the store is unreachable the previous lists are kept and marked as old. */
async function readLists(
  api: RouterApi,
  status: Status,
  before: Snapshot | undefined,
): Promise<Pick<Snapshot, 'pods' | 'calls' | 'listsProblem'>> {
  const old = { pods: before?.pods ?? [], calls: before?.calls ?? [] };
  if (status.status === 'down')
    return { ...old, listsProblem: status.store_error ?? 'the store is unreachable' };
  try {
    const [pods, calls] = await Promise.all([readAll(api, 'pods'), readAll(api, 'calls')]);
    return { pods: pods.body, calls: calls.body, listsProblem: null };
  } catch (error) {
    const failure = toFailure(error);
    if (failure.exitCode !== 6) throw failure;
    return { ...old, listsProblem: failure.message };
  }
}

export type PoolUse = ReturnType<typeof poolUses>[number];

/**
 * The use of each pool. `states`: pods by state; their sum is `assigned`, unless a pod moved between two replies. `slots`:
 * room for calls that is in use (busy), closed because the pod drains or is blocked, or free. A shared pod has several. Their
 * sum is the capacity, or the number of calls if that is larger.
 */
export function poolUses({ status, pods }: Snapshot) {
  const byPool = new Map<string, Pod[]>();
  for (const pod of pods) {
    const same = byPool.get(pod.tier);
    if (same) same.push(pod);
    else byPool.set(pod.tier, [pod]);
  }
  return Object.entries(status.pools)
    .sort(([a], [b]) => byText(a, b))
    .map(([name, { type, assigned, active_calls: activeCalls, capacity }]) => {
      const states = { free: 0, busy: 0, draining: 0, blocked: 0 };
      const closed = { draining: 0, blocked: 0 };
      const perPod = assigned > 0 ? capacity / assigned : 0;
      for (const pod of byPool.get(name) ?? []) {
        const state = stateOf(pod);
        states[state] += 1;
        if (state === 'draining' || state === 'blocked')
          closed[state] += Math.max(0, perPod - pod.calls.length);
      }
      const free = Math.max(0, capacity - activeCalls - closed.draining - closed.blocked);
      const slots = { busy: activeCalls, ...closed, free };
      return { name, type, assigned, activeCalls, capacity, states, slots };
    });
}
