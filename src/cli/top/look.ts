import type { RouterApi } from '../api.js';
import { type Alert, alertsIfTold } from '../commands/alerts.js';
import { type State, stateOf } from '../commands/pods.js';
import type { RouterEvent } from '../event-stream.js';
import { toFailure } from '../failure.js';
import { byText, type Call, ifTold, type Pod, readAll, readStatus, type Status } from '../replies.js';

export interface Pace {
  callsPerSecond: number | null;
  noPodsPerSecond: number | null;
  p99Ms: number | null;
}

export interface Look {
  /** The router's clock, to the second. */
  nowMs: number;
  status: Status;
  pods: readonly Pod[];
  calls: readonly Call[];
  /** Why pods and calls are those of an earlier look. */
  listsProblem: string | null;
  replicas: number | null;
  pace: Pace;
  /** Worst first; null if the router does not tell. */
  alerts: readonly Alert[] | null;
}

interface History {
  replicas: readonly unknown[];
  points: readonly { allocated?: unknown; no_pods?: unknown; p99_ms?: unknown }[];
}

export async function look(api: RouterApi, before: Look | undefined): Promise<Look> {
  const { body: status, nowMs } = await readStatus(api);
  const [lists, history, alerts] = await Promise.all([
    readLists(api, status, before),
    ifTold<History>(api, '/history?minutes=1', 'points'),
    alertsIfTold(api),
  ]);
  const latest = history?.points.at(-1);
  return {
    nowMs,
    status,
    ...lists,
    // None is impossible, somebody answers: a store that lost its content has lost the rows that name them.
    replicas: (Array.isArray(history?.replicas) && history.replicas.length) || null,
    pace: {
      callsPerSecond: numberOf(latest?.allocated),
      noPodsPerSecond: numberOf(latest?.no_pods),
      p99Ms: numberOf(latest?.p99_ms),
    },
    alerts,
  };
}

/** While the store is away the router knows no lists: the last ones are better than none, and said to be old. */
async function readLists(
  api: RouterApi,
  status: Status,
  before: Look | undefined,
): Promise<Pick<Look, 'pods' | 'calls' | 'listsProblem'>> {
  const old = { pods: before?.pods ?? [], calls: before?.calls ?? [] };
  if (status.status === 'down')
    return { ...old, listsProblem: status.store_error ?? 'the store does not answer' };
  try {
    const [pods, calls] = await Promise.all([
      readAll<Pod>(api, 'pods', undefined, ({ pod_name }) => pod_name),
      readAll<Call>(api, 'calls', undefined, ({ call_sid }) => call_sid),
    ]);
    return { pods: pods.body, calls: calls.body, listsProblem: null };
  } catch (error) {
    const failure = toFailure(error);
    if (failure.exitCode !== 6) throw failure;
    return { ...old, listsProblem: failure.message };
  }
}

const numberOf = (value: unknown) => (typeof value === 'number' && Number.isFinite(value) ? value : null);

const paceWindowMs = 10_000;

/** For routers without a history: what the events of the last ten seconds say. `heardMs` is for how long they were heard. */
export function paceOfEvents(events: readonly RouterEvent[], nowMs: number, heardMs: number): Pace {
  const windowMs = Math.min(paceWindowMs, heardMs);
  if (windowMs < 1000) return { callsPerSecond: null, noPodsPerSecond: null, p99Ms: null };
  const counted = (type: string) =>
    events.filter((event) => event.type === type && Date.parse(event.at) > nowMs - windowMs).length;
  return {
    callsPerSecond: counted('call_allocated') / (windowMs / 1000),
    noPodsPerSecond: counted('no_pods') / (windowMs / 1000),
    p99Ms: null,
  };
}

export interface PoolUse {
  name: string;
  type: string;
  assigned: number;
  activeCalls: number;
  capacity: number;
  /** Pods by state; together they are `assigned`, unless one moved between two answers. */
  states: Readonly<Record<State, number>>;
  /**
   * Places for calls: taken by one (busy), not to be had because the pod drains or is blocked, free. Of a shared pool a
   * pod is many of them, so these are what stands beside "2/15 calls"; together they are the capacity, or the calls
   * where there are more.
   */
  places: Readonly<Record<State, number>>;
}

export function poolUses({ status, pods }: Look): PoolUse[] {
  const byPool = new Map<string, Pod[]>();
  for (const pod of pods) {
    const same = byPool.get(pod.tier);
    if (same) same.push(pod);
    else byPool.set(pod.tier, [pod]);
  }
  return Object.entries(status.pools)
    .sort(([a], [b]) => byText(a, b))
    .map(([name, { type, assigned, active_calls, capacity }]) => {
      const states = { free: 0, busy: 0, draining: 0, blocked: 0 };
      const mine = byPool.get(name) ?? [];
      for (const pod of mine) states[stateOf(pod)] += 1;
      const places = placesOf(mine, active_calls, capacity, assigned > 0 ? capacity / assigned : 0);
      return { name, type, assigned, activeCalls: active_calls, capacity, states, places };
    });
}

function placesOf(
  pods: readonly Pod[],
  calls: number,
  capacity: number,
  perPod: number,
): Record<State, number> {
  const closed = { draining: 0, blocked: 0 };
  for (const pod of pods) {
    const state = stateOf(pod);
    if (state === 'draining' || state === 'blocked') closed[state] += Math.max(0, perPod - pod.calls.length);
  }
  return { busy: calls, ...closed, free: Math.max(0, capacity - calls - closed.draining - closed.blocked) };
}
