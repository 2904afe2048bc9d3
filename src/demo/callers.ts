/**
 * The simulated callers: they get an agent through the public client or through Twilio, talk for a while and hang up. If
 * all agents are busy, they stay on the line and wait for one.
 */
import { NoPodsError, RouterUnavailableError, StillWaitingError } from '../client/index.js';
import type { Needs } from './context.js';
import { inSeconds } from './lines.js';
import { maxWait, podIn } from './setup.js';

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

export class Callers {
  #lastNumber = 100;

  constructor(private readonly options: Needs<'client' | 'twilio' | 'agents' | 'counts'>) {}

  /** Resolves to undefined when the call got no agent. `mayWait`: the caller waits if all agents are busy. */
  async place(talkSeconds: number, merchantId?: string, mayWait = true) {
    const { client } = this.options;
    const callSid = this.#newSid();
    const waiting = this.#waiting();
    const call = await client
      .allocate({ callSid, merchantId }, mayWait ? { wait: maxWait, onWaiting: waiting.begin } : {})
      .catch((error: unknown) => this.#refused(error));
    const isConnected = call !== undefined && !call.fallback;
    waiting.end(isConnected);
    if (!isConnected) return undefined;
    const { podName, fence, allocatedAt } = call;
    // Attached as an agent does it: if the router loses the call, the agent's report gets a new fence for the release.
    const held = client.attach({ callSid, podName, fence });
    return this.#connect(callSid, podName, allocatedAt.getTime(), talkSeconds, held);
  }

  /** As `place`, but through Twilio: while all agents are busy the caller is held and hears the place in the queue. */
  async ring(talkSeconds: number): Promise<void> {
    const { twilio, counts, clock, log, signal } = this.options;
    const call = this.#newSid();
    const startedMs = clock.monotonic();
    const waiting = this.#waiting();
    const known = new Set<string>();
    const onHeld = (heard: string[]) => {
      waiting.begin();
      const news = heard.filter((text) => !known.has(text));
      for (const text of news) known.add(text);
      if (news.length > 0) log('hears', `“${news.join(' ')}”`, { call });
    };
    const release = () => twilio.completed(call);
    const stream = await twilio.ring(call, onHeld).catch(async () => {
      if (!signal.aborted) counts.unanswered += 1;
      await release().catch(() => {});
      return null;
    });
    if (stream === undefined) counts.busy += 1;
    const pod = stream ? podIn(stream.url) : undefined;
    const wasHeld = waiting.end(pod !== undefined);
    if (!stream || pod === undefined) return;
    const text = `by Twilio, after ${inSeconds(clock.monotonic() - startedMs)} on hold`;
    if (wasHeld) log('connected', text, { call, pod });
    this.#connect(call, pod, stream.askedAtMs, talkSeconds, { release, detach() {} });
  }

  #newSid(): string {
    this.#lastNumber += 1;
    return `CA-${this.#lastNumber}`;
  }

  /** Counts a caller who waits, and one who got an agent after it. */
  #waiting() {
    const { counts } = this.options;
    let isWaiting = false;
    return {
      begin() {
        if (!isWaiting) counts.waiting += 1;
        isWaiting = true;
      },
      end(gotAgent: boolean): boolean {
        if (isWaiting) counts.waiting -= 1;
        if (isWaiting && gotAgent) counts.waited += 1;
        return isWaiting;
      },
    };
  }

  #refused(error: unknown): undefined {
    const { counts, signal } = this.options;
    if (signal.aborted) return;
    if (error instanceof NoPodsError || error instanceof StillWaitingError) counts.busy += 1;
    else if (error instanceof RouterUnavailableError) counts.unanswered += 1;
    else throw error;
  }

  #connect(
    callSid: string,
    podName: string,
    askedAtMs: number,
    talkSeconds: number,
    held: { detach(): void; release(): Promise<unknown> },
  ) {
    const { agents, counts, later, log } = this.options;
    counts.started += 1;
    const endCall = agents.connect(podName, callSid, askedAtMs, (how, why) => {
      held.detach();
      counts[how] += 1;
      if (how === 'cut') log('cut', why, { call: callSid, pod: podName });
    });
    let isReleased = true;
    const hangUp = () => {
      if (endCall()) counts.served += 1;
    };
    later(talkSeconds, async () => {
      hangUp();
      // If the release fails, the next report of the agent does not list the call, and the router ends it.
      if (isReleased) await held.release().catch(() => {});
    });
    return {
      callSid,
      podName,
      /** Ends the call at its agent without a release. */
      hangUpWithoutRelease() {
        isReleased = false;
        held.detach();
        hangUp();
      },
    };
  }
}
