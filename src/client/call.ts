import { fullJitterMs, jitteredPeriodMs } from './backoff.js';
import { CallLostError, CallNotFoundError, type LostReason, StaleFenceError } from './errors.js';
import { type Loop, startLoop } from './loop.js';
import { type ReleaseOptions, type ReleaseResult, releaseCall, renewCall } from './operations.js';
import { integer, maxDurationMs } from './options.js';
import type { Requester } from './requester.js';

/** A third of the default lease (15 m): a wrong client clock can stretch no interval beyond it. */
const maxRenewMs = 5 * 60 * 1000;
const minRenewMs = 1000;
/** Failed background renews are repeated after 1, 2, 4 ... 30 s (full jitter): well inside any sane lease. */
const retryBaseMs = 1000;
const retryMaxMs = 30_000;

/** The open handles by SID, so that a report's answer reaches them. */
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
  /** The lease's length by the store's own clock, where it is known. */
  leaseMs: number | null;
}

/**
 * A call that somebody in this process answers for: renews it, and releases it in the end.
 *
 *   live -> releasing -> released      `release()`; a failed release may be repeated
 *   live -> lost                       the router said that the call ended or is not ours
 *   live -> detached                   `detach()`, or the client closed
 */
export class HeldCall {
  readonly callSid: string;
  readonly podName: string | null;
  // Truly private: a logged handle must not show the settings, and with them the API key.
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

  /** Names our claim; null until known (a call attached without one, before its first report). */
  get fence(): number | null {
    return this.#fence;
  }

  /** As of the last answer; null until the first renew of an attached call. */
  get leaseExpiresAt(): Date | null {
    return this.#leaseExpiresAt;
  }

  /** Aborts, with a `CallLostError` as reason, once the router says that this call is no longer ours. */
  get lost(): AbortSignal {
    return this.#lost.signal;
  }

  /**
   * Renews in the background, at a third of the lease, until the call is released, detached or lost, or the
   * client closes. A failure that says nothing about the call is repeated. Calling it again does nothing.
   * It never keeps the process alive. An attached call is renewed at once, to learn its lease.
   */
  keepAlive(options: { intervalMs?: number | undefined } = {}): void {
    if (this.#loop !== null || this.#state !== 'live') return;
    this.#requester.lifetime.assertOpen(`keepAlive ${this.callSid}`);
    const fixedMs =
      options.intervalMs === undefined
        ? null
        : integer('intervalMs', options.intervalMs, 0, 1, maxDurationMs);
    const { clock } = this.#requester.settings;
    let failures = 0;
    const firstDelayMs = this.#leaseExpiresAt === null ? 0 : this.#renewDelayMs(fixedMs);
    this.#track();
    this.#loop = startLoop(clock, firstDelayMs, async (signal) => {
      try {
        await this.#renew({ retries: 0, signal });
        failures = 0;
        return this.#renewDelayMs(fixedMs);
      } catch (error) {
        if (signal.aborted || this.#state !== 'live') return null;
        const retryInMs = fullJitterMs(
          clock,
          retryBaseMs,
          Math.min(retryMaxMs, fixedMs ?? retryMaxMs),
          failures++,
        );
        this.#requester.emit({ type: 'renew_failed', callSid: this.callSid, error, retryInMs });
        return retryInMs;
      }
    });
  }

  /**
   * Renews once, now, with retries.
   * @throws CallNotFoundError, StaleFenceError (then `lost` aborts too), RouterUnavailableError
   */
  async renew(options: { signal?: AbortSignal | undefined } = {}): Promise<{ leaseExpiresAt: Date }> {
    return this.#renew({ signal: options.signal });
  }

  /**
   * Stops renewing and ends the call. That it has ended already, or is no longer ours, is a result and not
   * an error: a hang-up path has nothing to do about it. Shared by concurrent callers; may be repeated after
   * a failure. When nobody repeats it, the lease ends the call.
   * @throws RouterUnavailableError once the retries are used up
   */
  release(options: Omit<ReleaseOptions, 'fence'> = {}): Promise<ReleaseResult> {
    this.#end('releasing');
    this.#release ??= releaseCall(this.#requester, this.callSid, {
      fence: this.#fence ?? undefined,
      reason: options.reason,
      signal: options.signal,
    }).catch((error: unknown) => {
      this.#release = null;
      throw error;
    });
    return this.#release;
  }

  /** Stops renewing and lets go of the handle without ending the call: somebody else answers for it now. */
  detach(): void {
    this.#end('detached');
  }

  /** @internal Makes reports reach this handle, until it ends. */
  track(): this {
    this.#track();
    return this;
  }

  /** @internal Fences only grow, so that a report overtaken by a later one changes nothing. */
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

  async #renew(options: { retries?: number; signal: AbortSignal | undefined }) {
    const fence = this.#fence;
    try {
      const renewal = await renewCall(this.#requester, this.callSid, {
        ...options,
        fence: fence ?? undefined,
      });
      this.#leaseExpiresAt = renewal.leaseExpiresAt;
      this.#requester.emit({ type: 'renewed', callSid: this.callSid, ...renewal });
      return renewal;
    } catch (error) {
      // A report that came in between may have brought a new fence: then this answer is about the old claim.
      if (this.#fence === fence) {
        if (error instanceof CallNotFoundError) this.markLost('ended', error);
        if (error instanceof StaleFenceError) this.markLost('stale_fence', error);
      }
      throw error;
    }
  }

  #renewDelayMs(fixedMs: number | null): number {
    const { clock } = this.#requester.settings;
    const leaseMs = this.#leaseMs ?? (this.#leaseExpiresAt?.getTime() ?? 0) - clock.now();
    const third = Math.min(maxRenewMs, Math.max(minRenewMs, leaseMs / 3));
    return jitteredPeriodMs(clock, fixedMs ?? third);
  }

  #track(): void {
    this.#registry.add(this);
    this.#forgetClose();
    this.#forgetClose = this.#requester.lifetime.onClose(() => this.#end('detached'));
  }

  #end(state: 'releasing' | 'lost' | 'detached'): void {
    if (this.#state === 'live' || state === 'releasing') this.#state = state;
    this.#loop?.stop();
    this.#forgetClose();
    this.#registry.remove(this);
  }
}
