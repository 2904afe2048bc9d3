/** The simulated callers: they allocate, talk for a while and release, through the client that everybody uses. */
import { type Client, NoPodsError, RouterUnavailableError } from '../client/index.js';
import type { Agents, Gone } from './agents.js';
import type { Ledger } from './ledger.js';

interface CallersOptions {
  client: Client;
  agents: Agents;
  ledger: Ledger;
  /** Runs in the background until the demo ends. */
  later: (afterSeconds: number, work: () => Promise<unknown>) => void;
  onGone: (callSid: string, pod: string, how: Gone, why: string) => void;
}

export interface PlacedCall {
  callSid: string;
  podName: string;
  /** Its agent knows that it has ended, and nobody tells the router. */
  hangUpUnheard(): void;
}

export class Callers {
  readonly #options: CallersOptions;
  #count = 100;

  constructor(options: CallersOptions) {
    this.#options = options;
  }

  /** Whether a call is not one of ours. */
  static isGuest(callSid: string): boolean {
    return !/^CA-\d+$/.test(callSid);
  }

  /** Undefined when there was no agent for it. */
  async place(talkSeconds: number, merchantId?: string): Promise<PlacedCall | undefined> {
    const { client, agents, ledger, later, onGone } = this.#options;
    this.#count += 1;
    const callSid = `CA-${this.#count}`;
    const call = await client.allocate({ callSid, merchantId }).catch((error: unknown) => {
      if (error instanceof NoPodsError) ledger.busy += 1;
      else if (error instanceof RouterUnavailableError) ledger.unanswered += 1;
      else throw error;
    });
    if (!call || call.fallback) return undefined;
    ledger.began += 1;
    // As an agent holds it: should the router forget the call, the agent's report brings a new fence for its release.
    const held = client.attach({ callSid, podName: call.podName, fence: call.fence });
    const line = agents.connect(call.podName, callSid, (how, why) => {
      held.detach();
      ledger[how] += 1;
      onGone(callSid, call.podName, how, why);
    });
    let isHeard = true;
    const hangUp = () => {
      if (line.hangUp()) ledger.served += 1;
    };
    later(talkSeconds, async () => {
      hangUp();
      // A release that fails is made good by the agent, which reports without this call from now on.
      if (isHeard) await held.release().catch(() => {});
    });
    return {
      callSid,
      podName: call.podName,
      hangUpUnheard() {
        isHeard = false;
        held.detach();
        hangUp();
      },
    };
  }
}
