/**
 * The simulated callers: they allocate, talk for a while and release, through the public client. If all agents are busy,
 * they stay on the line and wait for one.
 */
import { type Client, NoPodsError, RouterUnavailableError, StillWaitingError } from '../client/index.js';
import type { Agents, EarlyEnd } from './agents.js';
import type { DemoContext } from './context.js';

/**
 * What happened to every call, counted by its caller and its agent, not by the routers. `cut` and `doubled` must stay 0
 * during every failure of routers, Redis and the API server, and every replacement of agents.
 */
export class CallCounts {
  /** Calls that got an agent. */
  started = 0;
  /** Ended by the caller. */
  served = 0;
  /** Their agent crashed: no router can prevent that. */
  lost = 0;
  /** Ended before the caller hung up although the agent did not crash. */
  cut = 0;
  /** Assigned to an agent that already had all the calls it can take. */
  doubled = 0;
  /** Callers on the line who wait for an agent. */
  waiting = 0;
  /** Calls that got an agent after a wait. */
  waited = 0;
  /** No agent was free, or not before the wait ended. */
  busy = 0;
  /** No router answered, or none could reach the store. */
  unanswered = 0;

  get live(): number {
    return this.started - this.served - this.lost - this.cut;
  }
}

interface CallersOptions {
  client: Client;
  agents: Agents;
  counts: CallCounts;
  later: DemoContext['later'];
  onCut: (callSid: string, pod: string, why: string) => void;
}

export interface PlacedCall {
  callSid: string;
  podName: string;
  /** Ends the call at its agent without a release. */
  hangUpWithoutRelease(): void;
}

/** As long as the tiers allow. */
const maxWait = '30s';

export class Callers {
  readonly #options: CallersOptions;
  #lastNumber = 100;

  constructor(options: CallersOptions) {
    this.#options = options;
  }

  /** Whether a visitor placed the call. */
  static isVisitor(callSid: string): boolean {
    return !/^CA-\d+$/.test(callSid);
  }

  /** Resolves to undefined when the call got no agent. `mayWait`: the caller waits if all agents are busy. */
  async place(talkSeconds: number, merchantId?: string, mayWait = true): Promise<PlacedCall | undefined> {
    const { client, agents, counts, later, onCut } = this.#options;
    this.#lastNumber += 1;
    const callSid = `CA-${this.#lastNumber}`;
    let isWaiting = false;
    const onWaiting = () => {
      if (!isWaiting) counts.waiting += 1;
      isWaiting = true;
    };
    const call = await client
      .allocate({ callSid, merchantId }, mayWait ? { wait: maxWait, onWaiting } : {})
      .catch((error: unknown) => {
        if (error instanceof NoPodsError || error instanceof StillWaitingError) counts.busy += 1;
        else if (error instanceof RouterUnavailableError) counts.unanswered += 1;
        else throw error;
      })
      .finally(() => {
        if (isWaiting) counts.waiting -= 1;
      });
    if (!call || call.fallback) return undefined;
    if (isWaiting) counts.waited += 1;
    const { podName, fence } = call;
    counts.started += 1;
    // Attached as an agent does it: if the router loses the call, the agent's report gets a new fence for the release.
    const held = client.attach({ callSid, podName, fence });
    const line = agents.connect(podName, callSid, (how: EarlyEnd, why) => {
      held.detach();
      counts[how] += 1;
      if (how === 'cut') onCut(callSid, podName, why);
    });
    let isReleased = true;
    const hangUp = () => {
      if (line.hangUp()) counts.served += 1;
    };
    later(talkSeconds, async () => {
      hangUp();
      // If the release fails, the next report of the agent does not list the call, and the router ends it.
      if (isReleased) await held.release().catch(() => {});
    });
    return {
      callSid,
      podName,
      hangUpWithoutRelease() {
        isReleased = false;
        held.detach();
        hangUp();
      },
    };
  }
}
