/**
 * The simulated voice agents: their StatefulSets, with rolls, crashes and deletions, and what runs in their pods. Each
 * agent holds the calls that were connected to it and reports them. Asked to stop, it does what the preStop of a real
 * agent does (deploy/examples/drain-and-wait.mjs): it drains itself and waits until its last call has ended.
 *
 * A call is `cut` when its agent stops or drops it before the caller hung up, and `lost` when the agent crashed. The
 * states come from the store of the simulated API server, so before any router sees a change. Writes one line when an
 * agent is replaced or restarted.
 */
import type { StoreEvent } from '../calls/events.js';
import { ApiError, type Reporter } from '../client/index.js';
import { observePod } from '../cluster/kubernetes/pods.js';
import type { ClusterPod } from '../cluster/pods.js';
import type { Pod } from '../cluster/simulator/objects.js';
import type { AgentHooks } from '../cluster/simulator/pod-lifecycle.js';
import { pods } from '../cluster/simulator/resources.js';
import { StatefulSet } from '../cluster/simulator/stateful-set.js';
import type { Needs } from './context.js';
import { count, inSeconds } from './lines.js';
import { agentCount, annotationsOf, seconds, setOf, sets } from './setup.js';

/** How a call ended before its caller hung up. */
type EarlyEnd = 'lost' | 'cut';
type OnEarlyEnd = (how: EarlyEnd, why: string) => void;

/** What runs in the container of a pod. */
interface Agent {
  readonly startedAtMs: number;
  readonly calls: Map<string, OnEarlyEnd>;
  readonly reporter: Reporter;
}

const drainRetryMs = 500;
/** Visitors choose other names. */
const simulatedCall = /^CA-\d+$/;

export class Agents {
  readonly #hooks: AgentHooks = {
    onStart: (pod) => this.#start(pod),
    preStop: (pod, signal) => this.#drain(pod, signal),
    onStop: (pod) => this.#end(pod.metadata.name, 'cut', 'agent stopped'),
    onKill: ({ metadata }) => {
      if (metadata.deletionTimestamp === undefined) this.#end(metadata.name, 'lost', 'agent crashed');
      else this.#end(metadata.name, 'cut', 'agent exceeded its grace period');
    },
  };
  /** The version that all agents have or will have. */
  version = 1;
  readonly #running = new Map<string, Agent>();
  /** By call: ends it. */
  readonly #visitorCalls = new Map<string, () => void>();
  /** By pod: what its drain did, for the line about its replacement. */
  readonly #drains = new Map<string, string>();
  readonly #sets: readonly StatefulSet[];
  readonly #stopListening: () => void;

  constructor(private readonly options: Needs<'cluster' | 'client' | 'counts'>) {
    const { cluster, ms } = options;
    this.#stopListening = cluster.internals.store.onChange((resource, { type, now, before }) => {
      if (resource !== pods || type === 'DELETED') return;
      const wasReady = before && observed(JSON.parse(before.json) as Pod).state === 'ready';
      if (!wasReady) this.#mayBeReady(JSON.parse(now.json) as Pod);
    });
    this.#sets = sets.map((set) => {
      const { name, replicas } = set;
      return new StatefulSet(cluster, {
        name,
        replicas,
        labels: { app: 'voice-agent', set: name },
        annotations: annotationsOf(set),
        podManagementPolicy: 'Parallel',
        startAfterMs: ms(seconds.agentStart),
        readyAfterMs: ms(seconds.agentReady),
        restartAfterMs: ms(seconds.agentRestart),
        graceMs: ms(seconds.grace),
        hooks: this.#hooks,
      });
    });
  }

  /** `starting`: not ready yet. `crashed`: its container exited and waits for its next start. `gone`: no such pod. */
  stateOf(name: string) {
    const pod = this.options.cluster.pods.get(name);
    return pod ? observed(pod).state : 'gone';
  }

  get ready() {
    const all = this.options.cluster.pods.list().map(observed);
    return all.filter(({ state }) => state === 'ready');
  }

  /** How many agents are ready and run the newest version. */
  get updated(): number {
    const version = String(this.version);
    return this.ready.filter((agent) => agent.version === version).length;
  }

  get isRolling(): boolean {
    return this.#sets.some((set) => set.status().rolling);
  }

  get isComplete(): boolean {
    return !this.isRolling && this.updated === agentCount;
  }

  get liveCalls(): string[] {
    return [...this.#running.values()].flatMap(({ calls }) => [...calls.keys()]);
  }

  callsOn(pod: string): number {
    return this.#running.get(pod)?.calls.size ?? 0;
  }

  /** Gives all agents a new version, in each set one at a time from the highest ordinal down. */
  roll(): void {
    this.version += 1;
    for (const set of this.#sets) set.roll({ version: String(this.version) });
  }

  /** Returns false when no container was running. */
  crash(pod: string): boolean {
    return this.#sets.some((set) => set.crash(pod));
  }

  /** Same as `kubectl delete pod`. */
  delete(pod: string): void {
    const { internals, namespace } = this.options.cluster;
    internals.registry.delete(pods, namespace, pod);
  }

  stop(): void {
    this.#stopListening();
    for (const set of this.#sets) set.stop();
  }

  /**
   * `askedAtMs`: when the call got the agent, or earlier. The result hangs up; it returns false when the call had ended
   * already.
   */
  connect(pod: string, callSid: string, askedAtMs: number, onEarlyEnd: OnEarlyEnd): () => boolean {
    const agent = this.#running.get(pod);
    if (!agent || agent.startedAtMs > askedAtMs) {
      // The agent that the router chose has crashed; a restarted one does not get its calls.
      onEarlyEnd('lost', 'agent crashed before it could answer');
      return () => false;
    }
    if (agent.calls.size >= (setOf(pod)?.calls ?? 1)) this.options.counts.doubled += 1;
    agent.calls.set(callSid, onEarlyEnd);
    return () => agent.calls.delete(callSid);
  }

  /** A visitor's call has no simulated caller: its agent follows the events of the store, and keeps it for a while. */
  follow({ type, fields: { call = '', pod = '' } }: StoreEvent): void {
    if (simulatedCall.test(call)) return;
    if (type === 'call_allocated' || type === 'call_assigned') this.#connectVisitor(pod, call);
    if (type === 'call_released' || type === 'call_recovered' || type === 'call_lost')
      this.#visitorCalls.get(call)?.();
  }

  #connectVisitor(pod: string, callSid: string): void {
    const { clock, ms } = this.options;
    if (this.#visitorCalls.has(callSid)) return;
    const end = () => {
      this.#visitorCalls.delete(callSid);
      cancel();
      this.#running.get(pod)?.calls.delete(callSid);
    };
    const cancel = clock.after(ms(seconds.visitorCall), end, { unref: true });
    this.#visitorCalls.set(callSid, end);
    this.connect(pod, callSid, clock.now(), end);
  }

  #start({ metadata: { name, uid } }: Pod): void {
    const { client, clock, ms } = this.options;
    const calls: Agent['calls'] = new Map();
    const reporter = client.startReporting(name, () => [...calls.keys()], {
      uid,
      intervalMs: Math.round(ms(seconds.report, 300)),
      onConflict: (refused) => {
        for (const callSid of refused) drop(calls, callSid, 'cut', 'assigned to another agent');
      },
    });
    this.#running.set(name, { startedAtMs: clock.now(), calls, reporter });
  }

  #mayBeReady(pod: Pod): void {
    const { name, state, version, restarts = 0 } = observed(pod);
    if (state !== 'ready') return;
    const drain = this.#drains.get(name);
    this.#drains.delete(name);
    if (drain !== undefined) this.options.log('agent', `${name} ${drain}was replaced by version ${version}`);
    else if (restarts > 0) this.options.log('agent', `${name} restarted`);
  }

  async #drain({ metadata: { name, uid } }: Pod, signal: AbortSignal): Promise<void> {
    const { client, clock } = this.options;
    const startedMs = clock.monotonic();
    const calls = this.callsOn(name);
    while (!signal.aborted) {
      const isEmpty = await client.drain(name, { uid, wait: '50s', signal }).then(
        ({ activeCalls }) => activeCalls === 0,
        (error: unknown) =>
          error instanceof ApiError && ['pod_not_found', 'pod_replaced'].includes(error.code),
      );
      // A router whose store was just lost reports no calls: the agent checks its own too.
      if (isEmpty && this.callsOn(name) === 0) break;
      await clock.sleep(drainRetryMs, signal);
    }
    if (signal.aborted) return;
    const took = inSeconds(clock.monotonic() - startedMs);
    this.#drains.set(name, calls === 0 ? '' : `finished ${count(calls, 'call')} in ${took} and `);
  }

  #end(pod: string, how: EarlyEnd, why: string): void {
    const agent = this.#running.get(pod);
    if (!agent) return;
    this.#running.delete(pod);
    agent.reporter.stop();
    for (const callSid of [...agent.calls.keys()]) drop(agent.calls, callSid, how, why);
  }
}

function drop(calls: Agent['calls'], callSid: string, how: EarlyEnd, why: string): void {
  const onEarlyEnd = calls.get(callSid);
  calls.delete(callSid);
  onEarlyEnd?.(how, why);
}

/** As the routers read it; `version` is the tag of its image. */
function observed(pod: Pod) {
  const found = observePod(pod) as ClusterPod;
  const unready = found.endedAt === undefined ? 'starting' : 'crashed';
  const state = found.state === 'not_ready' ? unready : found.state;
  return { ...found, state, version: pod.spec.containers[0]?.image.split(':').at(-1) ?? '' } as const;
}
