import {
  CallLostError,
  CallNotFoundError,
  type LostReason,
  type RouterUnavailableError,
  SmartRouterError,
  StaleFenceError,
} from './errors.js';
import { type Loop, startLoop } from './loop.js';
import { type ReleaseOptions, type ReleaseResult, releaseCall, renewCall } from './operations.js';
import { integer, maxDurationMs } from './options.js';
import type { Requester } from './requester.js';
import type { Allocation, Renewal } from './wire.js';

/** A third of the default lease (15 m): limits the effect of a wrong client clock. */
const maxRenewMs = 5 * 60 * 1000;
const minRenewMs = 1000;
/** Well inside any sensible lease. */
const retryMaxMs = 30_000;

/** The open handles by SID, so that the response to a report reaches them. */
export class HandleRegistry {
  readonly #bySid = new Map<string, Set<HeldCall>>();

  add(call: HeldCall): void {
    const calls = this.#bySid.get(call.callSid) ?? new Set();
    this.#bySid.set(call.callSid, calls.add(call));
  }

  remove(call: HeldCall): void {
    const calls = this.#bySid.get(call.callSid);
    calls?.delete(call);
    if (calls?.size === 0) this.#bySid.delete(call.callSid);
  }

  /** Handles of this call that belong to `pod`, or that were attached without naming one. */
  of(callSid: string, pod: string): HeldCall[] {
    const calls = this.#bySid.get(callSid) ?? [];
    return [...calls].filter((call) => call.podName === null || call.podName === pod);
  }
}

export interface HeldCallStart {
  callSid: string;
  podName: string | null;
  fence: number | null;
  leaseExpiresAt: Date | null;
  /** The length of the lease by the store's clock, if known. */
  leaseMs: number | null;
}

/**
 * A call that this process holds: it renews the lease and finally releases the call.
 *
 *   live -> releasing -> released      `release()`; a failed release may be repeated
 *   live -> lost                       the router says that the call has ended or is not ours
 *   live -> detached                   `detach()`, or the client closed
 */
export class HeldCall {
  readonly callSid: string;
  readonly podName: string | null;
  // Private at run time: a logged handle must not show the settings, which hold the API key.
  readonly #requester: Requester;
  readonly #registry: HandleRegistry;
  readonly #lost = new AbortController();
  #state: 'live' | 'releasing' | 'lost' | 'detached' = 'live';
  #fence: number | null;
  #leaseExpiresAt: Date | null;
  #leaseMs: number | null;
  #loop: Loop | null = null;
  #release: Promise<ReleaseResult> | null = null;
  #forgetClose = () => {};

  /** @internal */
  constructor(requester: Requester, registry: HandleRegistry, start: HeldCallStart) {
    this.#requester = requester;
    this.#registry = registry;
    this.callSid = start.callSid;
    this.podName = start.podName;
    this.#fence = start.fence;
    this.#leaseExpiresAt = start.leaseExpiresAt;
    this.#leaseMs = start.leaseMs;
  }

  /** Identifies our claim; null until known (a call attached without one, before its first report). */
  get fence(): number | null {
    return this.#fence;
  }

  /** As of the last response; null until the first renew of an attached call. */
  get leaseExpiresAt(): Date | null {
    return this.#leaseExpiresAt;
  }

  /** Aborts, with a `CallLostError` as reason, once the router says that this call is no longer ours. */
  get lost(): AbortSignal {
    return this.#lost.signal;
  }

  /**
   * Renews in the background, at a third of the lease, until the call is released, detached or lost, or the
   * client closes. Other failures are retried. Calling it again does nothing. It does not keep the process
   * alive. An attached call is renewed at once, to learn its lease.
   */
  keepAlive(options: { intervalMs?: number | undefined } = {}): void {
    if (this.#loop !== null || this.#state !== 'live') return;
    this.#requester.lifetime.assertOpen(`keepAlive ${this.callSid}`);
    const fixedMs =
      options.intervalMs === undefined
        ? null
        : integer('intervalMs', options.intervalMs, 0, 1, maxDurationMs);
    this.track();
    this.#loop = startLoop({
      clock: this.#requester.settings.clock,
      startsNow: this.#leaseExpiresAt === null,
      runOnce: (signal) => this.#renew({ heartbeat: true, signal }),
      periodMs: () => fixedMs ?? this.#thirdOfLeaseMs(),
      retryMaxMs: Math.min(retryMaxMs, fixedMs ?? retryMaxMs),
      onFailure: (error, retryInMs) =>
        this.#requester.emit({ type: 'renew_failed', callSid: this.callSid, error, retryInMs }),
    });
  }

  /**
   * Renews once, now, with retries.
   * @throws CallNotFoundError, StaleFenceError (then `lost` aborts too), RouterUnavailableError
   */
  async renew(options: { signal?: AbortSignal | undefined } = {}): Promise<Renewal> {
    return this.#renew({ signal: options.signal });
  }

  /**
   * Stops renewing and ends the call. A call that has already ended, or is no longer ours, is a result and not
   * an error. Shared by concurrent callers; may be repeated after a failure. Otherwise the lease ends the call.
   * @throws RouterUnavailableError once the retries are used up
   */
  release(options: Omit<ReleaseOptions, 'fence'> = {}): Promise<ReleaseResult> {
    this.#end('releasing');
    if (this.#lost.signal.aborted && this.#fence === null) {
      // Without a fence a release ends any claim of this call, also that of another pod.
      const { reason } = this.#lost.signal.reason as CallLostError;
      return Promise.resolve({ released: false, reason: reason === 'ended' ? 'already_ended' : 'not_ours' });
    }
    this.#release ??= releaseCall(this.#requester, this.callSid, {
      fence: this.#fence,
      reason: options.reason,
      signal: options.signal,
    }).catch((error: unknown) => {
      this.#release = null;
      throw error;
    });
    return this.#release;
  }

  /** Stops renewing without ending the call: another process holds it now. */
  detach(): void {
    this.#end('detached');
  }

  /** @internal Connects this handle to reports, until it ends. */
  track(): this {
    this.#registry.add(this);
    this.#forgetClose();
    this.#forgetClose = this.#requester.lifetime.onClose(() => this.#end('detached'));
    return this;
  }

  /** @internal Fences only grow: a report overtaken by a later one changes nothing. */
  learnFence(fence: number): void {
    if (this.#fence === null || fence > this.#fence) this.#fence = fence;
  }

  /** @internal */
  markLost(reason: LostReason, cause?: unknown): void {
    if (this.#state !== 'live') return;
    this.#end('lost');
    this.#requester.emit({ type: 'lost', callSid: this.callSid, reason });
    this.#lost.abort(new CallLostError(this.callSid, reason, cause === undefined ? undefined : { cause }));
  }

  async #renew(options: { heartbeat?: boolean; signal: AbortSignal | undefined }) {
    const fence = this.#fence;
    try {
      const renewal = await renewCall(this.#requester, this.callSid, { ...options, fence });
      this.#leaseExpiresAt = renewal.leaseExpiresAt;
      this.#requester.emit({ type: 'renewed', callSid: this.callSid, ...renewal });
      return renewal;
    } catch (error) {
      // If a report has brought a new fence, this response is about the old claim.
      if (this.#fence === fence) {
        if (error instanceof CallNotFoundError) this.markLost('ended', error);
        if (error instanceof StaleFenceError) this.markLost('stale_fence', error);
      }
      throw error;
    }
  }

  #thirdOfLeaseMs(): number {
    const { clock } = this.#requester.settings;
    const leaseMs = this.#leaseMs ?? (this.#leaseExpiresAt?.getTime() ?? 0) - clock.now();
    return Math.min(maxRenewMs, Math.max(minRenewMs, leaseMs / 3));
  }

  #end(state: 'releasing' | 'lost' | 'detached'): void {
    if (this.#state === 'live' || state === 'releasing') this.#state = state;
    this.#loop?.stop();
    this.#forgetClose();
    this.#registry.remove(this);
  }
}

/** A call held by this process that was allocated elsewhere: see `client.attach`. */
export type AttachedCall = Pick<
  HeldCall,
  'callSid' | 'podName' | 'fence' | 'leaseExpiresAt' | 'lost' | 'keepAlive' | 'renew' | 'release' | 'detach'
>;

/** A call with a pod. */
export type RoutedCall = AttachedCall & Readonly<Allocation> & { readonly fallback: false };

/** The result of `allocate`: `call.fallback` tells the two apart, both have `call.wsUrl`. */
export type Call = RoutedCall | FallbackCall;

/** @internal The handle of an allocated call. */
export function routedCall(
  requester: Requester,
  registry: HandleRegistry,
  callSid: string,
  { podName, fence, leaseExpiresAt, ...rest }: Allocation,
): RoutedCall {
  const { allocatedAt, wasExisting, waitedMs } = rest;
  // Both times are the store's, so their difference is exact. An existing call may have been renewed since, and the lease of
  // one that waited began later.
  const isExact = !wasExisting && waitedMs === null;
  const leaseMs = isExact ? leaseExpiresAt.getTime() - allocatedAt.getTime() : null;
  const call = new HeldCall(requester, registry, { callSid, podName, fence, leaseExpiresAt, leaseMs });
  return Object.assign(call, rest, { fallback: false }) as HeldCall & RoutedCall;
}

/**
 * A call that goes to the fallback URL because the router is down. It has the shape of a routed call, but no lease:
 * `keepAlive` does nothing, `renew` rejects with `cause`, and `lost` never aborts.
 */
export class FallbackCall {
  readonly fallback = true;
  readonly podName = null;
  readonly sourcePool = null;
  readonly allocatedAt = null;
  readonly leaseExpiresAt = null;
  readonly fence = null;
  readonly wasExisting = false;
  readonly waitedMs = null;
  readonly lost: AbortSignal = new AbortController().signal;
  readonly #requester: Requester;

  /** @internal */
  constructor(
    requester: Requester,
    readonly callSid: string,
    readonly wsUrl: string,
    /** Why there is no pod. */
    readonly cause: RouterUnavailableError,
  ) {
    this.#requester = requester;
  }

  keepAlive(): void {}

  async renew(): Promise<never> {
    throw this.cause;
  }

  detach(): void {}

  /**
   * Releases the SID if a request was sent: the router may have allocated a pod, and only its response was lost. There
   * is no fence. Best effort: if the router is still down, the lease frees the pod.
   */
  async release(options: Omit<ReleaseOptions, 'fence'> = {}): Promise<ReleaseResult> {
    const nothing = { released: false, reason: 'fallback' } as const;
    if (this.cause.attempts === 0) return nothing;
    try {
      const result = await releaseCall(this.#requester, this.callSid, options);
      return result.released ? result : nothing;
    } catch (error) {
      if (error instanceof SmartRouterError) return nothing;
      throw error;
    }
  }
}
