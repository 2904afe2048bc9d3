/**
 * The agents and the leader, read from the store of the simulated API server, so before any router sees a change. Writes
 * one line when a router starts or exits, when the leader changes, and when an agent is replaced or restarted.
 *
 * The leader is the holder of the Lease, unless that router has exited: the Lease names it until another takes over.
 */
import type { Cluster } from '../cluster/simulator/cluster.js';
import type { Pod } from '../cluster/simulator/objects.js';
import { leases, pods } from '../cluster/simulator/resources.js';
import type { CallCounts } from './callers.js';
import type { DemoContext } from './context.js';
import { count, inSeconds } from './lines.js';
import type { Exit, ManagedProcess } from './processes.js';

/** `starting`: not ready yet. `crashed`: its container exited and waits for its next start. */
type AgentState = 'ready' | 'starting' | 'crashed' | 'terminating';

interface AgentPod {
  name: string;
  uid: string;
  version: string;
  state: AgentState;
  restarts: number;
}

interface MonitorOptions extends DemoContext {
  cluster: Cluster;
  counts: CallCounts;
}

export class ClusterMonitor {
  readonly #options: MonitorOptions;
  leader: string | undefined;
  readonly #agents = new Map<string, AgentPod>();
  readonly #stop: () => void;
  /** By pod: what its drain did, for the line about its replacement. */
  readonly #drains = new Map<string, string>();
  #holder = '';
  /** Since when there is no leader, and how many calls had started by then. */
  #leaderless: { after: string | undefined; sinceMs: number; calls: number } | undefined;

  constructor(options: MonitorOptions) {
    this.#options = options;
    this.#leaderless = { after: undefined, sinceMs: options.clock.monotonic(), calls: 0 };
    this.#stop = options.cluster.internals.store.onChange((resource, { type, now }) => {
      if (resource === leases) this.#leaseChanged(type === 'DELETED' ? '{}' : now.json);
      if (resource !== pods) return;
      if (type !== 'DELETED') this.#podChanged(JSON.parse(now.json) as Pod);
      else if (this.#agents.get(now.name)?.uid === now.uid) this.#agents.delete(now.name);
    });
  }

  /** Undefined while there is no pod of that name. */
  agent(name: string): AgentPod | undefined {
    return this.#agents.get(name);
  }

  get readyAgents(): AgentPod[] {
    return [...this.#agents.values()].filter(({ state }) => state === 'ready');
  }

  stop(): void {
    this.#stop();
  }

  routerExited({ name }: ManagedProcess, { requested, code, lastError }: Exit): void {
    const wasLeader = this.leader === name;
    const how = {
      kill: `was killed${wasLeader ? ' while leading' : ''}`,
      stop: 'stopped cleanly',
      none:
        code === 0
          ? 'exited: it could not renew the leader lease'
          : `exited with code ${code}: ${lastError ?? 'no error message'}`,
    }[requested ?? 'none'];
    this.#options.log('router', `${name} ${how}`);
    if (wasLeader) this.#leaderEnded(name);
  }

  agentDrained(pod: string, calls: number, ms: number): void {
    this.#drains.set(pod, calls === 0 ? '' : `finished ${count(calls, 'call')} in ${inSeconds(ms)} and `);
  }

  #podChanged(pod: Pod): void {
    const agent = agentPodOf(pod);
    const { name, uid, version, state, restarts } = agent;
    const before = this.#agents.get(name);
    this.#agents.set(name, agent);
    if (state !== 'ready' || (before?.state === 'ready' && before.uid === uid)) return;
    const drain = this.#drains.get(name);
    this.#drains.delete(name);
    if (drain !== undefined) this.#options.log('agent', `${name} ${drain}was replaced by version ${version}`);
    else if (restarts > 0) this.#options.log('agent', `${name} restarted`);
  }

  #leaseChanged(json: string): void {
    const { spec } = JSON.parse(json) as { spec?: { holderIdentity?: string | null } };
    const holder = spec?.holderIdentity ?? '';
    if (holder === this.#holder) return;
    this.#holder = holder;
    if (holder !== '') this.#leaderStarted(holder);
    else if (this.leader !== undefined) {
      this.#options.log('leader', `${this.leader} released the leader lease`);
      this.#leaderEnded(this.leader);
    }
  }

  #leaderStarted(leader: string): void {
    const { clock, counts, log } = this.#options;
    const gap = this.#leaderless;
    this.leader = leader;
    this.#leaderless = undefined;
    if (!gap) {
      log('leader', `${leader} leads`);
      return;
    }
    const after = inSeconds(clock.monotonic() - gap.sinceMs);
    const calls = count(counts.started - gap.calls, 'call');
    if (gap.after === undefined) log('leader', `${leader} leads, ${after} after the start`);
    else log('leader', `${leader} leads, ${after} after ${gap.after}; ${calls} started in between`);
  }

  #leaderEnded(name: string): void {
    const { clock, counts } = this.#options;
    this.leader = undefined;
    this.#leaderless ??= { after: name, sinceMs: clock.monotonic(), calls: counts.started };
  }
}

function agentPodOf({ metadata, spec, status }: Pod): AgentPod {
  const [container] = status.containerStatuses ?? [];
  const isReady = status.conditions?.some(({ type, status: is }) => type === 'Ready' && is === 'True');
  const state = () => {
    if (metadata.deletionTimestamp !== undefined) return 'terminating';
    if (isReady) return 'ready';
    return container?.state.waiting?.reason === 'CrashLoopBackOff' ? 'crashed' : 'starting';
  };
  return {
    name: metadata.name,
    uid: metadata.uid,
    version: spec.containers[0]?.image.split(':').at(-1) ?? '',
    state: state(),
    restarts: container?.restartCount ?? 0,
  };
}
