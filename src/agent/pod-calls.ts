import {
  ApiError,
  type Client,
  type ClientEvent,
  createClient,
  type Reporter,
  SmartRouterError,
} from '../client/index.js';
import { type Clock, within } from '../clock.js';
import type { AgentConfig } from '../config/agent.js';
import { AppError, messageOf } from '../errors.js';
import type { Log } from './log.js';
import { routerFetch } from './router-fetch.js';

/** The router accepts no longer report. */
const maxCalls = 10_000;
/** After this time a request of the agent is answered, and the sidecar goes on by itself. */
const defaultAnswerWithinMs = 2000;
/** Every request here is repeated until it succeeds: a longer pause would only delay a restore or a release. */
const breakerOpenMs = 5000;
const restoreRetryMs = 5000;
/**
 * A call that was restored after a restart, and that the agent has not named since, is dropped after this time: the agent
 * may have ended it while the sidecar was down. Twilio ends calls after four hours.
 */
const maxUnconfirmedMs = 4 * 60 * 60 * 1000;
/** One wait of a drain. After so much time without an answer only the calls known here count. */
const drainSliceMs = 25_000;
const drainPauseMs = 2000;

interface PodCall {
  fence: number | undefined;
  /** The first report since it arrived has been answered or has failed. */
  arrival: Promise<void>;
  /** The router has accepted it in a report. */
  confirmed: boolean;
  isLost?: boolean;
  /** When it was restored, until the agent names it. */
  restoredAtMs?: number | undefined;
  release?: Promise<boolean> | undefined;
}

export interface PodCallsOptions {
  clock: Clock;
  log: Log;
  /** Between two reports; default 10 s. */
  intervalMs?: number | undefined;
  /** How long a request of the agent waits for the router; default 2 s. */
  answerWithinMs?: number | undefined;
  /** The deadline of one request to the router; default 2 s. */
  timeoutMs?: number | undefined;
}

/** The calls of this pod, as the agent names them, and all traffic with the router about them. */
export class PodCalls {
  readonly #client: Client;
  readonly #calls = new Map<string, PodCall>();
  /** Ended by the agent and not yet released at the router. No report names them. */
  readonly #ending = new Map<string, PodCall>();
  /** Ended before the calls were restored. */
  readonly #endedEarly = new Set<string>();
  readonly #config: AgentConfig;
  readonly #options: PodCallsOptions;
  readonly #closed = new AbortController();
  #begun: Promise<Reporter | undefined> = Promise.resolve(undefined);
  #isRestored = false;
  #running: Promise<void> = Promise.resolve();
  #queued: Promise<void> | undefined;
  #flushing = false;
  #draining: Promise<void> | undefined;
  #idle = new AbortController();
  /** Why the last request failed; undefined after a report was accepted. */
  #problem: string | undefined = 'no report sent yet';
  /** The code of that failure. */
  #failure: string | undefined;

  constructor(config: AgentConfig, options: PodCallsOptions) {
    this.#config = config;
    this.#options = options;
    this.#client = createClient({
      baseUrl: config.url,
      apiKey: config.apiKey,
      clock: options.clock,
      fetch: routerFetch(config),
      timeoutMs: options.timeoutMs,
      breaker: { openMs: breakerOpenMs },
      onEvent: (event) => this.#onEvent(event),
    });
  }

  /** Called once, when the port is ours: of two sidecars in one pod only one may report. */
  start(): void {
    this.#begun = this.#begin();
  }

  get size(): number {
    return this.#calls.size;
  }

  get isDraining(): boolean {
    return this.#draining !== undefined;
  }

  /** Why the router does not know the calls of this pod now; undefined if it does. */
  get problem(): string | undefined {
    return this.#problem;
  }

  list() {
    return [...this.#calls].map(([call_sid, { fence = null, confirmed }]) => ({
      call_sid,
      fence,
      confirmed,
    }));
  }

  /**
   * Adds a call and reports it at once. Resolves to whether the router has accepted it; false while the router is
   * unreachable. Repeating it is safe.
   * @throws AppError `call_lost` if the router says that the call is not one of this pod
   */
  async arrive(callSid: string, fence: number | undefined): Promise<boolean> {
    const before = this.#calls.get(callSid) ?? this.#ending.get(callSid);
    if (before === undefined && this.#calls.size + this.#ending.size >= maxCalls)
      throw new AppError('too_many_requests', `this sidecar has ${maxCalls} calls: end some first`);
    const call: PodCall = before ?? { fence: undefined, confirmed: false, arrival: Promise.resolve() };
    call.fence ??= fence;
    call.restoredAtMs = undefined;
    this.#endedEarly.delete(callSid);
    this.#ending.delete(callSid);
    this.#calls.set(callSid, call);
    call.arrival = this.#report();
    await this.#within(call.arrival);
    if (this.#calls.has(callSid)) return call.confirmed;
    // The agent has ended it since.
    if (!call.isLost) return false;
    throw new AppError(
      'call_lost',
      `call ${callSid} is owned by another pod, has ended, or does not fit on this pod: stop serving it`,
    );
  }

  /**
   * Ends a call. Resolves to whether the router has confirmed it; otherwise the sidecar keeps trying. Undefined for
   * an unknown call.
   */
  async end(callSid: string): Promise<boolean | undefined> {
    const call = this.#calls.get(callSid) ?? this.#ending.get(callSid);
    if (call === undefined) {
      if (this.#isRestored) return undefined;
      if (this.#endedEarly.size < maxCalls) this.#endedEarly.add(callSid);
      return false;
    }
    this.#ending.set(callSid, call);
    this.#remove(callSid);
    return (await this.#within(this.#release(callSid, call))) ?? false;
  }

  /** Ends every call: the agent is dead. */
  endAll(): void {
    for (const [callSid, call] of [...this.#calls]) {
      this.#ending.set(callSid, call);
      this.#remove(callSid);
    }
    void this.#releaseRest();
  }

  /** Stops new calls to this pod. Resolves when its last call has ended. */
  drain(): Promise<void> {
    this.#draining ??= this.#untilDrained().finally(() => {
      this.#draining = undefined;
    });
    return this.#draining;
  }

  /** Stops all requests. Calls live on by their lease. */
  close(): void {
    this.#closed.abort();
    this.#idle.abort();
    this.#client.close();
  }

  /** Reads the calls that the router has for this pod, then reports. Earlier, a report would end those calls. */
  async #begin(): Promise<Reporter | undefined> {
    const { signal } = this.#closed;
    while (!this.#isRestored && !signal.aborted) {
      try {
        this.#restore(await this.#callsOfRouter());
      } catch (error) {
        this.#failed(error);
        await this.#options.clock.sleep(this.#options.clock.random() * restoreRetryMs, signal);
      }
    }
    if (signal.aborted) return undefined;
    return this.#client.startReporting(this.#config.podName, () => this.#reportable(), {
      uid: this.#config.podUid,
      intervalMs: this.#options.intervalMs,
      onConflict: (callSids) => this.#lose(callSids),
    });
  }

  async #callsOfRouter(): Promise<string[]> {
    const { signal } = this.#closed;
    try {
      const { uid, calls } = await this.#client.readPod(this.#config.podName, { signal });
      // An earlier pod of this name: its calls ended with it.
      return this.#config.podUid !== undefined && uid !== '' && uid !== this.#config.podUid ? [] : calls;
    } catch (error) {
      // A new pod, which the router does not know yet.
      if (error instanceof ApiError && error.code === 'pod_not_found') return [];
      throw error;
    }
  }

  #restore(callSids: readonly string[]): void {
    this.#isRestored = true;
    const restoredAtMs = this.#options.clock.monotonic();
    const arrival = this.#report();
    for (const callSid of callSids) {
      if (this.#calls.has(callSid) || this.#ending.has(callSid) || this.#endedEarly.has(callSid)) continue;
      this.#calls.set(callSid, { fence: undefined, confirmed: false, arrival, restoredAtMs });
    }
    this.#endedEarly.clear();
    if (callSids.length > 0)
      this.#options.log('info', 'calls restored from the router', { calls: callSids.length });
  }

  #reportable(): string[] {
    const oldestMs = this.#options.clock.monotonic() - maxUnconfirmedMs;
    for (const [callSid, { restoredAtMs }] of this.#calls) {
      if (restoredAtMs === undefined || restoredAtMs > oldestMs) continue;
      this.#remove(callSid);
      this.#options.log('warn', 'restored call dropped; the agent has not named it for four hours', {
        call_sid: callSid,
      });
    }
    return [...this.#calls.keys()];
  }

  /** Reports soon. All who ask before the report is sent share it. Never rejects. */
  #report(): Promise<void> {
    this.#queued ??= this.#running.then(async () => {
      const reporter = await this.#begun;
      this.#queued = undefined;
      this.#running = (reporter?.runOnce() ?? Promise.resolve()).then(
        () => {},
        (error: unknown) => this.#failed(error),
      );
      return this.#running;
    });
    return this.#queued;
  }

  #onEvent(event: ClientEvent): void {
    if (event.type === 'report_failed') this.#failed(event.error);
    if (event.type !== 'reported') return;
    const { fences, ended } = event.report;
    for (const [callSid, fence] of Object.entries(fences)) {
      const call = this.#calls.get(callSid) ?? this.#ending.get(callSid);
      if (call === undefined) continue;
      // Reports are answered in order, so this is the latest one. It also replaces a wrong fence of the agent.
      call.fence = fence;
      call.confirmed = true;
    }
    for (const callSid of ended) this.#ending.delete(callSid);
    if (this.#problem !== undefined)
      this.#options.log('info', 'router accepts reports', { calls: this.#calls.size });
    this.#problem = undefined;
    this.#failure = undefined;
    void this.#releaseRest();
  }

  /** Logs one line per kind of failure, not one per attempt. */
  #failed(error: unknown): void {
    if (this.#closed.signal.aborted) return;
    this.#problem = messageOf(error);
    const code = error instanceof SmartRouterError ? error.code : 'internal';
    if (code !== this.#failure)
      this.#options.log('warn', 'request to the router failed; retrying', { code, error: this.#problem });
    this.#failure = code;
  }

  #lose(callSids: readonly string[]): void {
    for (const callSid of callSids) {
      const call = this.#calls.get(callSid);
      if (call === undefined) continue;
      call.isLost = true;
      this.#remove(callSid);
      this.#options.log('warn', 'call lost; the agent must stop serving it', { call_sid: callSid });
    }
  }

  #remove(callSid: string): void {
    this.#calls.delete(callSid);
    if (this.#calls.size === 0) this.#idle.abort();
  }

  #release(callSid: string, call: PodCall): Promise<boolean> {
    call.release ??= this.#releaseOnce(callSid, call).finally(() => {
      call.release = undefined;
    });
    return call.release;
  }

  /**
   * Never without a fence: the same SID may have another pod by now. Without one, the next report, which does not name the
   * call, ends it after REPORT_GRACE.
   */
  async #releaseOnce(callSid: string, call: PodCall): Promise<boolean> {
    if (call.fence === undefined) await call.arrival;
    const { fence } = call;
    try {
      if (fence !== undefined) await this.#client.release(callSid, { fence });
    } catch (error) {
      this.#failed(error);
      return false;
    }
    if (this.#ending.get(callSid) === call) this.#ending.delete(callSid);
    return fence !== undefined;
  }

  /** The router answers again: releases what it could not before, one at a time, until one fails. */
  async #releaseRest(): Promise<void> {
    if (this.#flushing) return;
    this.#flushing = true;
    for (const [callSid, call] of this.#ending) {
      await this.#release(callSid, call);
      if (this.#ending.get(callSid) === call) break;
    }
    this.#flushing = false;
  }

  async #untilDrained(): Promise<void> {
    this.#options.log('info', 'draining', { calls: this.#calls.size });
    for (;;) {
      const activeCalls = await this.#drainAtRouter();
      if (this.#closed.signal.aborted) return;
      if (this.#calls.size === 0 && activeCalls === 0) break;
      if (activeCalls > 0) continue;
      // The agent still serves calls that the router does not know, or the router is unreachable.
      if (this.#idle.signal.aborted) this.#idle = new AbortController();
      await this.#options.clock.sleep(drainPauseMs, this.#idle.signal);
    }
    this.#options.log('info', 'drained', {});
  }

  /** Live calls of this pod at the router: 0 also if the router has no such pod or does not answer. */
  async #drainAtRouter(): Promise<number> {
    try {
      return (
        await this.#client.drain(this.#config.podName, { uid: this.#config.podUid, wait: drainSliceMs })
      ).activeCalls;
    } catch (error) {
      this.#failed(error);
      return 0;
    }
  }

  /** The result of `work`, or undefined if it takes too long for a waiting agent. */
  #within<T>(work: Promise<T>): Promise<T | undefined> {
    const { clock, answerWithinMs = defaultAnswerWithinMs } = this.#options;
    return within(clock, answerWithinMs, work, () => undefined);
  }
}
