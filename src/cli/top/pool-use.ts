/** How the pods of each pool are used: the status has the numbers of calls, the pods say which of them still take any. */
import type { Pod } from '../answers.js';
import { type State, stateOf } from '../commands/pods.js';
import { byText } from '../lists.js';
import type { Look } from './look.js';

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
