/**
 * The simulated voice agents that run in the pods of the StatefulSets. Each holds the calls that were connected to it
 * and reports them. Asked to stop, it does what the preStop of a real agent does
 * (deploy/examples/drain-and-wait.mjs): it drains itself and waits until its last call has ended.
 *
 * A call is `cut` when its agent stops or drops it before the caller hung up, and `lost` when the agent crashed.
 */
import type { Client, Reporter } from '../client/index.js';
import { ApiError } from '../client/index.js';
import type { Pod } from '../cluster/simulator/objects.js';
import type { AgentHooks } from '../cluster/simulator/pod-lifecycle.js';
import type { CallCounts } from './callers.js';
import type { DemoContext } from './context.js';
import { seconds, setOf } from './setup.js';

/** How a call ended before its caller hung up. */
export type EarlyEnd = 'lost' | 'cut';
type OnEarlyEnd = (how: EarlyEnd, why: string) => void;

/** The caller's end of a call. */
interface PhoneLine {
  /** Returns false when the call had ended already. */
  hangUp(): boolean;
}

interface AgentsOptions extends DemoContext {
  client: Client;
  counts: CallCounts;
  /** A drain is complete; `calls` were live at its start. */
  onDrained: (pod: string, calls: number, ms: number) => void;
}

interface Agent {
  readonly startedAtMs: number;
  readonly calls: Map<string, OnEarlyEnd>;
  readonly reporter: Reporter;
}

const drainRetryMs = 500;

export class Agents {
  readonly hooks: AgentHooks = {
    onStart: (pod) => this.#start(pod),
    preStop: (pod, signal) => this.#drain(pod, signal),
    onStop: (pod) => this.#end(pod.metadata.name, 'cut', 'agent stopped'),
    onKill: ({ metadata }) => {
      if (metadata.deletionTimestamp === undefined) this.#end(metadata.name, 'lost', 'agent crashed');
      else this.#end(metadata.name, 'cut', 'agent exceeded its grace period');
    },
  };
  readonly #options: AgentsOptions;
  readonly #agents = new Map<string, Agent>();
  readonly #visitorCalls = new Map<string, { line: PhoneLine; cancel: () => void }>();

  constructor(options: AgentsOptions) {
    this.#options = options;
  }

  get liveCalls(): string[] {
    return [...this.#agents.values()].flatMap(({ calls }) => [...calls.keys()]);
  }

  callsOn(pod: string): number {
    return this.#agents.get(pod)?.calls.size ?? 0;
  }

  /** `askedAtMs`: when the call got the agent, or earlier. */
  connect(pod: string, callSid: string, askedAtMs: number, onEarlyEnd: OnEarlyEnd): PhoneLine {
    const agent = this.#agents.get(pod);
    if (!agent || agent.startedAtMs > askedAtMs) {
      // The agent that the router chose has crashed; a restarted one does not get its calls.
      onEarlyEnd('lost', 'agent crashed before it could answer');
      return { hangUp: () => false };
    }
    if (agent.calls.size >= (setOf(pod)?.calls ?? 1)) this.#options.counts.doubled += 1;
    agent.calls.set(callSid, onEarlyEnd);
    return { hangUp: () => agent.calls.delete(callSid) };
  }

  /** A visitor's call has no simulated caller: its agent keeps it for a while. */
  connectVisitor(pod: string, callSid: string): void {
    const { clock, ms } = this.#options;
    if (this.#visitorCalls.has(callSid)) return;
    const end = () => this.endVisitor(callSid);
    const line = this.connect(pod, callSid, clock.now(), end);
    const cancel = clock.after(ms(seconds.visitorCall), end, { unref: true });
    this.#visitorCalls.set(callSid, { line, cancel });
  }

  endVisitor(callSid: string): void {
    const call = this.#visitorCalls.get(callSid);
    this.#visitorCalls.delete(callSid);
    call?.cancel();
    call?.line.hangUp();
  }

  #start({ metadata: { name, uid } }: Pod): void {
    const { client, clock, ms } = this.#options;
    const calls: Agent['calls'] = new Map();
    const reporter = client.startReporting(name, () => [...calls.keys()], {
      uid,
      intervalMs: Math.round(ms(seconds.report, 300)),
      onConflict: (refused) => {
        for (const callSid of refused) drop(calls, callSid, 'cut', 'assigned to another agent');
      },
    });
    this.#agents.set(name, { startedAtMs: clock.now(), calls, reporter });
  }

  async #drain({ metadata: { name, uid } }: Pod, signal: AbortSignal): Promise<void> {
    const { client, clock, onDrained } = this.#options;
    const startedMs = clock.monotonic();
    const callsAtStart = this.callsOn(name);
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
    if (!signal.aborted) onDrained(name, callsAtStart, clock.monotonic() - startedMs);
  }

  #end(pod: string, how: EarlyEnd, why: string): void {
    const agent = this.#agents.get(pod);
    if (!agent) return;
    this.#agents.delete(pod);
    agent.reporter.stop();
    for (const callSid of [...agent.calls.keys()]) drop(agent.calls, callSid, how, why);
  }
}

function drop(calls: Agent['calls'], callSid: string, how: EarlyEnd, why: string): void {
  const onEarlyEnd = calls.get(callSid);
  calls.delete(callSid);
  onEarlyEnd?.(how, why);
}
