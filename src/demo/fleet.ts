/** The voice agents as their StatefulSets run them: how far a roll is, and what can be done to one of them. */

import type { Cluster } from '../cluster/simulator/cluster.js';
import type { AgentHooks } from '../cluster/simulator/pod-lifecycle.js';
import { runStatefulSet, type StatefulSet } from '../cluster/simulator/stateful-set.js';
import type { Roster } from './cluster-monitor.js';
import { agentCount, annotationsOf, seconds, setOf, sets } from './setup.js';

export class Fleet {
  readonly #roster: Roster;
  readonly #sets: ReadonlyMap<string, StatefulSet>;
  #version = 1;

  constructor(cluster: Cluster, roster: Roster, hooks: AgentHooks, speed: number) {
    const ms = (value: number) => (value * 1000) / speed;
    this.#roster = roster;
    this.#sets = new Map(
      sets.map((set) => [
        set.name,
        runStatefulSet(cluster, {
          name: set.name,
          replicas: set.replicas,
          labels: { app: 'voice-agent', set: set.name },
          annotations: annotationsOf(set),
          podManagementPolicy: 'Parallel',
          startAfterMs: ms(seconds.agentStarts),
          readyAfterMs: ms(seconds.agentBecomesReady),
          restartAfterMs: ms(seconds.agentRestarts),
          graceMs: ms(seconds.grace),
          hooks,
        }),
      ]),
    );
  }

  /** The one that all agents have or will have. */
  get version(): number {
    return this.#version;
  }

  /** Agents that are ready and of the newest version. */
  get renewed(): number {
    const version = String(this.#version);
    return this.#roster.agents.filter((agent) => agent.state === 'ready' && agent.version === version).length;
  }

  get isRolling(): boolean {
    return [...this.#sets.values()].some((set) => set.status().rolling);
  }

  get isComplete(): boolean {
    return !this.isRolling && this.renewed === agentCount;
  }

  /** A new version for all, in each set one after the other from the last one down. */
  roll(): void {
    this.#version += 1;
    for (const set of this.#sets.values()) set.roll({ version: String(this.#version) });
  }

  crash(pod: string): boolean {
    return this.#of(pod)?.crash(pod) ?? false;
  }

  /** As `kubectl delete pod` does. */
  remove(pod: string): void {
    this.#of(pod)?.remove(pod);
  }

  stop(): void {
    for (const set of this.#sets.values()) set.stop();
  }

  #of(pod: string): StatefulSet | undefined {
    return this.#sets.get(setOf(pod)?.name ?? '');
  }
}
