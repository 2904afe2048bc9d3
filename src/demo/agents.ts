/**
 * The simulated voice agents. Each one reports the calls it serves, as a real one would; it learns of them
 * from the store's events, where a real one gets the audio of the call.
 */
import type { StoreEvent } from '../calls/events.js';
import type { Client, Reporter } from '../client/index.js';
import type { Clock } from '../clock.js';

interface AgentsOptions {
  client: Client;
  clock: Clock;
  pods: readonly string[];
  reportMs: number;
  /** A call that a visitor allocated by hand and never released is given up after this time. */
  guestMs: number;
  isGuest: (callSid: string) => boolean;
}

export class Agents {
  readonly #options: AgentsOptions;
  readonly #serving = new Map<string, Set<string>>();
  readonly #reporters = new Map<string, Reporter>();
  readonly #guests = new Map<string, () => void>();
  /** The pod of an agent that crashed, with the call that was on it. */
  readonly #crashed = new Map<string, string>();

  constructor(options: AgentsOptions) {
    this.#options = options;
    for (const pod of options.pods) this.#boot(pod);
  }

  hear({ type, fields: { call = '', pod = '' } }: StoreEvent): void {
    if (type === 'call_allocated' || type === 'call_adopted') {
      if (!this.#crashed.has(pod)) this.#serving.get(pod)?.add(call);
      if (this.#options.isGuest(call)) this.#receiveGuest(call);
    }
    if (type === 'call_released' || type === 'call_recovered' || type === 'call_lost') {
      this.#serving.get(pod)?.delete(call);
      this.#guests.get(call)?.();
      this.#guests.delete(call);
      if (this.#crashed.get(pod) === call) this.#boot(pod);
    }
  }

  /** No report, no renewal, until the router has ended `callSid`; then the agent is back, knowing nothing. */
  crash(pod: string, callSid: string): void {
    this.#reporters.get(pod)?.stop();
    this.#serving.get(pod)?.clear();
    this.#crashed.set(pod, callSid);
  }

  /** The audio has ended: the agent reports on, without this call. */
  hangUp(callSid: string): void {
    for (const calls of this.#serving.values()) calls.delete(callSid);
  }

  #boot(pod: string): void {
    const { client, reportMs } = this.#options;
    const calls = new Set<string>();
    this.#crashed.delete(pod);
    this.#serving.set(pod, calls);
    const options = {
      intervalMs: Math.round(reportMs),
      onConflict: (lost: string[]) => {
        for (const callSid of lost) calls.delete(callSid);
      },
    };
    this.#reporters.set(
      pod,
      client.startReporting(pod, () => [...calls], options),
    );
  }

  #receiveGuest(callSid: string): void {
    const { clock, guestMs } = this.#options;
    this.#guests.get(callSid)?.();
    this.#guests.set(
      callSid,
      clock.after(guestMs, () => this.hangUp(callSid)),
    );
  }
}
