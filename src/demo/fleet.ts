/** The StatefulSets of the voice agents: rolls, crashes and deletions. */
import type { Cluster } from '../cluster/simulator/cluster.js';
import type { AgentHooks } from '../cluster/simulator/pod-lifecycle.js';
import { StatefulSet } from '../cluster/simulator/stateful-set.js';
import type { ClusterMonitor } from './cluster-monitor.js';
import type { DemoContext } from './context.js';
import { agentCount, annotationsOf, seconds, setOf, sets } from './setup.js';

export class Fleet {
  readonly #monitor: ClusterMonitor;
  readonly #sets: ReadonlyMap<string, StatefulSet>;
  /** The version that all agents have or will have. */
  version = 1;

  constructor(cluster: Cluster, monitor: ClusterMonitor, hooks: AgentHooks, { ms }: DemoContext) {
    this.#monitor = monitor;
    this.#sets = new Map(
      sets.map((set) => [
        set.name,
        new StatefulSet(cluster, {
          name: set.name,
          replicas: set.replicas,
          labels: { app: 'voice-agent', set: set.name },
          annotations: annotationsOf(set),
          podManagementPolicy: 'Parallel',
          startAfterMs: ms(seconds.agentStart),
          readyAfterMs: ms(seconds.agentReady),
          restartAfterMs: ms(seconds.agentRestart),
          graceMs: ms(seconds.grace),
          hooks,
        }),
      ]),
    );
  }

  /** How many agents are ready and run the newest version. */
  get updated(): number {
    const version = String(this.version);
    return this.#monitor.readyAgents.filter((agent) => agent.version === version).length;
  }

  get isRolling(): boolean {
    return [...this.#sets.values()].some((set) => set.status().rolling);
  }

  get isComplete(): boolean {
    return !this.isRolling && this.updated === agentCount;
  }

  /** Gives all agents a new version, in each set one at a time from the highest ordinal down. */
  roll(): void {
    this.version += 1;
    for (const set of this.#sets.values()) set.roll({ version: String(this.version) });
  }

  /** Returns false when no container was running. */
  crash(pod: string): boolean {
    return this.#setOf(pod)?.crash(pod) ?? false;
  }

  /** Same as `kubectl delete pod`. */
  delete(pod: string): void {
    this.#setOf(pod)?.remove(pod);
  }

  stop(): void {
    for (const set of this.#sets.values()) set.stop();
  }

  #setOf(pod: string): StatefulSet | undefined {
    return this.#sets.get(setOf(pod)?.name ?? '');
  }
}
