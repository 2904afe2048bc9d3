/**
 * Who is there: the agents and the holder of the leader's Lease as the simulated cluster has them, and what has just
 * changed about them. It reads what the API server stores, so it knows before any router does.
 */
import type { Cluster } from '../cluster/simulator/cluster.js';
import type { Change } from '../cluster/simulator/history.js';
import type { Pod } from '../cluster/simulator/objects.js';
import { leases, pods, type Resource } from '../cluster/simulator/resources.js';

/** `starting`: it runs, or will soon, and is not ready. `crashed`: its container ended and waits for its next start. */
export type AgentState = 'ready' | 'starting' | 'crashed' | 'terminating';

export interface RosterEntry {
  name: string;
  uid: string;
  version: string;
  state: AgentState;
  restarts: number;
}

export interface RosterEvents {
  onReady: (agent: RosterEntry) => void;
  /** Empty: nobody holds it. */
  onHolder: (holder: string) => void;
}

export class Roster {
  readonly #events: RosterEvents;
  readonly #agents = new Map<string, RosterEntry>();
  readonly #stop: () => void;
  #holder = '';

  constructor(cluster: Cluster, events: RosterEvents) {
    this.#events = events;
    this.#stop = cluster.internals.store.onChange((resource, change) => this.#hear(resource, change));
  }

  /** Undefined while there is no pod of that name. */
  agent(name: string): RosterEntry | undefined {
    return this.#agents.get(name);
  }

  get agents(): RosterEntry[] {
    return [...this.#agents.values()];
  }

  /** Whom the Lease names; it may be dead. */
  get holder(): string {
    return this.#holder;
  }

  stop(): void {
    this.#stop();
  }

  #hear(resource: Resource, { type, now }: Change): void {
    if (resource === leases) this.#hearLease(type === 'DELETED' ? '{}' : now.json);
    if (resource !== pods) return;
    const before = this.#agents.get(now.name);
    if (type === 'DELETED') {
      if (before?.uid === now.uid) this.#agents.delete(now.name);
      return;
    }
    const agent = entryOf(JSON.parse(now.json) as Pod);
    this.#agents.set(now.name, agent);
    if (agent.state === before?.state && agent.uid === before.uid) return;
    if (agent.state === 'ready') this.#events.onReady(agent);
  }

  #hearLease(json: string): void {
    const { spec } = JSON.parse(json) as { spec?: { holderIdentity?: string | null } };
    const holder = spec?.holderIdentity ?? '';
    if (holder === this.#holder) return;
    this.#holder = holder;
    this.#events.onHolder(holder);
  }
}

function entryOf({ metadata, spec, status }: Pod): RosterEntry {
  const [container] = status.containerStatuses ?? [];
  const isReady = status.conditions?.some(({ type, status: is }) => type === 'Ready' && is === 'True');
  const state = () => {
    if (metadata.deletionTimestamp !== undefined) return 'terminating';
    if (isReady) return 'ready';
    return (container?.restartCount ?? 0) > 0 && container?.state.waiting ? 'crashed' : 'starting';
  };
  return {
    name: metadata.name,
    uid: metadata.uid,
    version: spec.containers[0]?.image.split(':').at(-1) ?? '',
    state: state(),
    restarts: container?.restartCount ?? 0,
  };
}
