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
      for (const pod of byPool.get(name) ?? []) states[stateOf(pod)] += 1;
      return { name, type, assigned, activeCalls: active_calls, capacity, states };
    });
}
