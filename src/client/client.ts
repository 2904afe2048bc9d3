import type { BreakerState } from './breaker.js';
import { type AttachedCall, type Call, FallbackCall, HandleRegistry, HeldCall, routedCall } from './call.js';
import { RouterUnavailableError } from './errors.js';
import {
  allocateCall,
  allocateWithWait,
  type ClaimOptions,
  checkCallSid,
  checkFence,
  type DrainOptions,
  drainPod,
  type ReleaseOptions,
  type ReleaseResult,
  type ReportOptions,
  readPod,
  releaseCall,
  renewCall,
  reportPod,
  type SignalOption,
  type UndrainOptions,
  undrainPod,
  type WaitOptions,
} from './operations.js';
import { type AllocateRequest, type ClientOptions, resolveOptions } from './options.js';
import { type ListCalls, type Reporter, type ReportingOptions, startReporter } from './reporter.js';
import { Requester } from './requester.js';
import type { DrainResult, PodState, Renewal, Report } from './wire.js';

export interface AllocateOptions extends WaitOptions {
  /** Starts `call.keepAlive()` at once. Only for a process that lives as long as the call. */
  autoRenew?: boolean | undefined;
}

export interface AttachRequest {
  callSid: string;
  /**
   * From the allocation; null for a fallback call, which has none. Without it, renew and release are unfenced
   * until a report brings it.
   */
  fence?: number | null | undefined;
  /** The pod that serves the call, if one process reports for several pods. */
  podName?: string | null | undefined;
}

/** Made by {@link createClient}. One per process: the breaker learns from all of its requests. */
export class Client {
  readonly #requester: Requester;
  readonly #registry = new HandleRegistry();
  /** The router's time, from the response to the last report. */
  #routerTime: { atMs: number; receivedMs: number; sentMs: number } | undefined;

  /** @internal */
  constructor(options: ClientOptions) {
    this.#requester = new Requester(resolveOptions(options));
  }

  /** For health pages. */
  get breakerState(): BreakerState {
    return this.#requester.breaker.state;
  }

  /**
   * Allocates a pod for a call; the same SID gets the same pod while the call lives, so repeating it is safe.
   * While the router is down it returns a call with the fallback URL, if one is configured. With `wait` the call waits for
   * a pod if all are busy; if `signal` aborts then, the client releases the SID, best effort.
   * @throws NoPodsError (never retried, never a fallback), StillWaitingError (the `wait` has ended), RouterUnavailableError,
   * ApiError
   */
  async allocate(request: AllocateRequest, options: AllocateOptions = {}): Promise<Call> {
    try {
      const allocate = options.wait === undefined ? allocateCall : allocateWithWait;
      const allocation = await allocate(this.#requester, request, options);
      const call = routedCall(this.#requester, this.#registry, request.callSid, allocation);
      if (options.autoRenew) call.keepAlive();
      return call;
    } catch (error) {
      if (error instanceof RouterUnavailableError) return this.#fallBack(request, error);
      throw error;
    }
  }

  /** Creates a handle for a call that was allocated elsewhere; end it with `release()` or `detach()`. */
  attach(request: AttachRequest): AttachedCall {
    checkCallSid(request.callSid);
    const fence = checkFence(request.fence) ?? null;
    this.#requester.lifetime.assertOpen(`attach ${request.callSid}`);
    return new HeldCall(this.#requester, this.#registry, {
      callSid: request.callSid,
      podName: request.podName ?? null,
      fence,
      leaseExpiresAt: null,
      leaseMs: null,
    }).track();
  }

  /** Ends a call by its SID. A call that has already ended is not an error: see {@link ReleaseResult}. */
  async release(callSid: string, options: ReleaseOptions = {}): Promise<ReleaseResult> {
    return releaseCall(this.#requester, callSid, options);
  }

  /**
   * Renews a call's lease once.
   * @throws CallNotFoundError, StaleFenceError, RouterUnavailableError
   */
  async renew(callSid: string, options: ClaimOptions = {}): Promise<Renewal> {
    const { fence, signal } = options;
    return renewCall(this.#requester, callSid, { fence, signal });
  }

  /** Reports once which calls a pod serves; handles of those calls learn their fences and losses from it. */
  async report(pod: string, calls: readonly string[], options: ReportOptions = {}): Promise<Report> {
    const { uid, tier, merchant, intervalMs, signal } = options;
    return this.#report(pod, calls, { uid, tier, merchant, intervalMs, signal });
  }

  /** Reports periodically in the background, until `stop()` or `close()`. */
  startReporting(pod: string, listCalls: ListCalls, options: ReportingOptions = {}): Reporter {
    return startReporter(this.#requester, pod, listCalls, options, (calls, reportOptions) =>
      this.#report(pod, calls, reportOptions),
    );
  }

  /**
   * Drains a pod: no new calls, running calls continue. With `wait` it resolves when the last one has ended.
   * @throws PodReplacedError, RouterUnavailableError, ApiError
   */
  async drain(pod: string, options: DrainOptions = {}): Promise<DrainResult> {
    return drainPod(this.#requester, pod, options);
  }

  /** Ends a drain now. */
  async undrain(pod: string, options: UndrainOptions = {}): Promise<void> {
    return undrainPod(this.#requester, pod, options);
  }

  /**
   * Reads which calls the router has on a pod: for a process that restarted while its calls went on.
   * @throws ApiError (`pod_not_found`), RouterUnavailableError
   */
  async readPod(pod: string, options: SignalOption = {}): Promise<PodState> {
    return readPod(this.#requester, pod, options);
  }

  /**
   * Stops all background work and fails requests in flight with `ClientClosedError`. It does not release calls, because
   * people are still talking. Await your releases first.
   */
  close(): void {
    this.#requester.lifetime.close();
  }

  async #report(pod: string, calls: readonly string[], options: ReportOptions & { heartbeat?: boolean }) {
    // `asOfMs` keeps a delayed report from counting as the current state.
    const { clock } = this.#requester.settings;
    const last = this.#routerTime;
    const sentMs = clock.monotonic();
    const asOfMs = last && Math.floor(last.atMs + sentMs - last.receivedMs);
    const report = await reportPod(this.#requester, pod, calls, { ...options, asOfMs });
    // Of two concurrent reports the later one counts, in any order of their responses.
    if (report.atMs !== undefined && sentMs >= (this.#routerTime?.sentMs ?? 0))
      this.#routerTime = { atMs: report.atMs, receivedMs: clock.monotonic(), sentMs };
    for (const [callSid, fence] of Object.entries(report.fences)) {
      for (const call of this.#registry.of(callSid, pod)) call.learnFence(fence);
    }
    for (const callSid of report.conflicts) {
      for (const call of this.#registry.of(callSid, pod)) call.markLost('conflict');
    }
    this.#requester.emit({ type: 'reported', pod, report });
    return report;
  }

  #fallBack(request: AllocateRequest, error: RouterUnavailableError): FallbackCall {
    const { fallbackUrl } = this.#requester.settings;
    if (fallbackUrl === undefined) throw error;
    let url: unknown;
    try {
      url = typeof fallbackUrl === 'string' ? fallbackUrl : fallbackUrl(request);
      if (typeof url !== 'string' || url === '') throw new TypeError('fallbackUrl returned no URL');
    } catch (problem) {
      // The caller gets the error of the router; the failed fallback is an event.
      this.#requester.emit({ type: 'callback_failed', callback: 'fallbackUrl', error: problem });
      throw error;
    }
    this.#requester.emit({ type: 'fallback', callSid: request.callSid, error });
    return new FallbackCall(this.#requester, request.callSid, url as string, error);
  }
}

/**
 * Creates a client.
 * @throws InvalidArgumentError naming the option that is wrong
 */
export function createClient(options: ClientOptions): Client {
  return new Client(options);
}
