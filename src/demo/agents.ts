/**
 * The simulated voice agents: what runs in the pods of the StatefulSets. Each has the calls whose audio reached it,
 * reports them, and when it is asked to end does what a real one's preStop does (deploy/examples/drain-and-wait.mjs):
 * it drains itself and waits, again and again, until its last call is over. Then it ends, with whatever it still has.
 *
 * A call is cut when its agent ends or must drop it while the caller is still there, and lost when the agent crashed.
 */
import type { Client, Reporter } from '../client/index.js';
import { ApiError } from '../client/index.js';
import type { Clock } from '../clock.js';
import type { Pod } from '../cluster/simulator/objects.js';
import type { AgentHooks } from '../cluster/simulator/pod-lifecycle.js';
import type { Ledger } from './ledger.js';
import { setOf } from './setup.js';

/** How a call ended that its caller had not ended. */
export type Gone = 'lost' | 'cut';
type OnGone = (how: Gone, why: string) => void;

/** The caller’s end of a call. */
export interface PhoneLine {
  /** False when the call was gone already. */
  hangUp(): boolean;
}

export interface AgentsOptions {
  client: Client;
  clock: Clock;
  ledger: Ledger;
  reportMs: number;
  /** A call that a visitor allocated by hand and never released is given up after this time. */
  guestMs: number;
  /** A drain that has come to its end, with the calls that were waited for. */
  onDrained: (pod: string, calls: number, ms: number) => void;
}

interface Agent {
  readonly name: string;
  readonly uid: string;
  readonly calls: Map<string, OnGone>;
  readonly reporter: Reporter;
}

const pauseMs = 500;

export class Agents {
  readonly hooks: AgentHooks = {
    onStart: (pod) => this.#start(pod),
    preStop: (pod, signal) => this.#drain(pod, signal),
    onStop: (pod) => this.#end(pod.metadata.name, 'cut', 'its agent was stopped'),
    onKill: ({ metadata }) => {
      if (metadata.deletionTimestamp === undefined) this.#end(metadata.name, 'lost', 'its agent crashed');
      else this.#end(metadata.name, 'cut', 'its agent’s time was up');
    },
  };
  readonly #options: AgentsOptions;
  readonly #agents = new Map<string, Agent>();
  readonly #guests = new Map<string, { line: PhoneLine; cancel: () => void }>();

  constructor(options: AgentsOptions) {
    this.#options = options;
  }

  /** Calls that somebody is talking on. */
  get liveCalls(): string[] {
    return [...this.#agents.values()].flatMap(({ calls }) => [...calls.keys()]);
  }

  callsOn(pod: string): number {
    return this.#agents.get(pod)?.calls.size ?? 0;
  }

  /** The audio of a call arrives; `onGone` is told if it breaks off. */
  connect(pod: string, callSid: string, onGone: OnGone): PhoneLine {
    const agent = this.#agents.get(pod);
    if (!agent) {
      // It crashed between the router's answer and now.
      onGone('lost', 'its agent crashed before it could answer');
      return { hangUp: () => false };
    }
    if (agent.calls.size >= (setOf(pod)?.calls ?? 1)) this.#options.ledger.doubled += 1;
    agent.calls.set(callSid, onGone);
    return { hangUp: () => agent.calls.delete(callSid) };
  }

  /** A visitor's call has no caller that connects and hangs up: its agent keeps it for a while. */
  receiveGuest(pod: string, callSid: string): void {
    const { clock, guestMs } = this.#options;
    if (this.#guests.has(callSid)) return;
    const line = this.connect(pod, callSid, () => this.dismissGuest(callSid));
    const cancel = clock.after(guestMs, () => this.dismissGuest(callSid), { unref: true });
    this.#guests.set(callSid, { line, cancel });
  }

  dismissGuest(callSid: string): void {
    const guest = this.#guests.get(callSid);
    this.#guests.delete(callSid);
    guest?.cancel();
    guest?.line.hangUp();
  }

  #start({ metadata: { name, uid } }: Pod): void {
    const { client, reportMs } = this.#options;
    const calls: Agent['calls'] = new Map();
    const reporter = client.startReporting(name, () => [...calls.keys()], {
      uid,
      intervalMs: Math.round(reportMs),
      onConflict: (refused) => {
        for (const callSid of refused) this.#drop(agent, callSid, 'cut', 'the router gave it to another');
      },
    });
    const agent: Agent = { name, uid, calls, reporter };
    this.#agents.set(name, agent);
  }

  async #drain({ metadata: { name, uid } }: Pod, signal: AbortSignal): Promise<void> {
    const { client, clock, onDrained } = this.#options;
    const since = clock.monotonic();
    const waitedFor = this.callsOn(name);
    // A router that has just lost its store knows nothing of the calls here: the agent believes itself too.
    while (!signal.aborted) {
      const isEmpty = await client.drain(name, { uid, wait: '50s', signal }).then(
        ({ activeCalls }) => activeCalls === 0,
        (error: unknown) =>
          error instanceof ApiError && ['pod_not_found', 'pod_replaced'].includes(error.code),
      );
      if (isEmpty && this.callsOn(name) === 0) break;
      await clock.sleep(pauseMs, signal);
    }
    if (!signal.aborted) onDrained(name, waitedFor, clock.monotonic() - since);
  }

  #end(pod: string, how: Gone, why: string): void {
    const agent = this.#agents.get(pod);
    if (!agent) return;
    this.#agents.delete(pod);
    agent.reporter.stop();
    for (const callSid of [...agent.calls.keys()]) this.#drop(agent, callSid, how, why);
  }

  #drop({ calls }: Agent, callSid: string, how: Gone, why: string): void {
    const onGone = calls.get(callSid);
    calls.delete(callSid);
    onGone?.(how, why);
  }
}
