import { type HandleRegistry, HeldCall } from './call.js';
import { type RouterUnavailableError, SmartRouterError } from './errors.js';
import { type ReleaseOptions, type ReleaseResult, releaseCall } from './operations.js';
import type { Requester } from './requester.js';
import type { Allocation } from './wire.js';

/** A call held by this process without having been allocated here: see `client.attach`. */
export type AttachedCall = Pick<
  HeldCall,
  'callSid' | 'podName' | 'fence' | 'leaseExpiresAt' | 'lost' | 'keepAlive' | 'renew' | 'release' | 'detach'
>;

/** A call with a pod of the router's choice. */
export type RoutedCall = AttachedCall & Readonly<Allocation> & { readonly fallback: false };

/** What `allocate` gives: `call.fallback` tells the two apart, `call.wsUrl` is there in both. */
export type Call = RoutedCall | FallbackCall;

/** The implementation of {@link RoutedCall}. */
export class RoutedHandle extends HeldCall {
  readonly fallback = false;
  declare readonly podName: string;
  readonly wsUrl: string;
  readonly sourcePool: string;
  readonly allocatedAt: Date;
  readonly wasExisting: boolean;

  constructor(requester: Requester, registry: HandleRegistry, callSid: string, allocation: Allocation) {
    super(requester, registry, {
      callSid,
      podName: allocation.podName,
      fence: allocation.fence,
      leaseExpiresAt: allocation.leaseExpiresAt,
      // Both times are the store's, so their difference is exact; an existing call may have been renewed since.
      leaseMs: allocation.wasExisting
        ? null
        : allocation.leaseExpiresAt.getTime() - allocation.allocatedAt.getTime(),
    });
    this.wsUrl = allocation.wsUrl;
    this.sourcePool = allocation.sourcePool;
    this.allocatedAt = allocation.allocatedAt;
    this.wasExisting = allocation.wasExisting;
  }

  override get fence(): number {
    return super.fence as number;
  }

  override get leaseExpiresAt(): Date {
    return super.leaseExpiresAt as Date;
  }
}

/**
 * A call that goes to the fallback URL because the router is down. It has the shape of a routed call, so
 * that most code need not tell them apart; there is no lease, so keepAlive does nothing and `lost` never
 * aborts.
 */
export class FallbackCall {
  readonly fallback = true;
  readonly podName = null;
  readonly sourcePool = null;
  readonly allocatedAt = null;
  readonly leaseExpiresAt = null;
  readonly fence = null;
  readonly wasExisting = false;
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

  detach(): void {}

  /**
   * If a request was sent, the router may have taken a pod and only its answer was lost, so the SID is
   * released, without a fence because none is known. Best effort: a router that is still down is no error
   * here, since the lease frees such a pod anyway.
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
