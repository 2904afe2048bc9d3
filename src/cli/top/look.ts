/**
 * One look at a router: its status, pods and calls, and what newer routers tell beside (pace, replicas, alerts). A router
 * that does not tell one of these answers 404: then it is null here, and shown as unknown.
 */
import { type Alert, alertsIfTold } from '../alerts.js';
import type { Call, Pod, Status } from '../answers.js';
import type { RouterApi } from '../api.js';
import type { RouterEvent } from '../event-feed.js';
import { toFailure } from '../failure.js';
import { ifTold, readAll, readStatus } from '../lists.js';

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
