/**
 * What a call goes through on this replica: its chain, one store operation, the counts. No state of its own:
 * any replica can answer any request, and dying in the middle leaves what the store has acknowledged.
 */
import type { Clock } from '../clock.js';
import { tierNameOf } from '../config/tiers.js';
import { AppError } from '../errors.js';
import type { Metrics } from './metrics.js';
import type { Settings } from './settings.js';
import type {
  Allocation,
  CallStore,
  DrainCaller,
  Drained,
  ReleaseDetails,
  Released,
  Report,
  ReportDetails,
} from './store/store.js';

export interface CallRequest {
  callSid: string;
  merchantId: string;
  provider: string;
  flow: string;
  template: string;
}

export interface CallRouterOptions {
  store: CallStore;
  settings: Settings;
  metrics: Metrics;
  clock: Clock;
  /** An allocate that the store has not begun by then must not happen any more. */
  patienceMs: number;
  /** False until the store has been checked, taken over and configured: before that no call may be touched. */
  isPrepared(): boolean;
  /** Makes a pod known that says so itself; only where pods come from their own reports. */
  announce?: (pod: { name: string } & PodWishes) => Promise<void>;
}

/** What a pod says of itself in a report. */
export interface PodWishes extends ReportDetails {
  tier?: string | undefined;
  merchant?: string | undefined;
}

export class CallRouter {
  readonly #options: CallRouterOptions;

  constructor(options: CallRouterOptions) {
    this.#options = options;
  }

  assertPrepared(): void {
    if (this.#options.isPrepared()) return;
    throw new AppError('store_unavailable', 'the store has not been taken into use yet: see the log', {
      retryAfterSeconds: 1,
    });
  }

  async allocate(request: CallRequest): Promise<Allocation> {
    this.assertPrepared();
    const { store, settings, metrics, clock, patienceMs } = this.#options;
    const chain = settings.chainFor(request.merchantId).steps;
    const start = clock.monotonic();
    const done = (pool: string, status: string) => {
      metrics.allocations.inc({ pool, status });
      metrics.allocateDuration.observe({ status }, (clock.monotonic() - start) / 1000);
    };
    let allocation: Allocation | undefined;
    try {
      allocation = await store.allocate({ ...request, chain, patienceMs });
    } catch (error) {
      done('', 'error');
      throw error;
    }
    if (!allocation) {
      done('', 'no_pods');
      metrics.noPods.inc({ chain: chain.join(' ') });
      for (const pool of chain) metrics.unmetDemand.inc({ tier: tierNameOf(pool) });
      throw new AppError('no_pods', `no pod is free for this call: tried ${chain.join(', ')}`, {
        retryAfterSeconds: 1,
      });
    }
    done(allocation.sourcePool, allocation.wasExisting ? 'existing' : 'success');
    if (allocation.reclaimed > 0) metrics.zombiesRecovered.inc(allocation.reclaimed);
    if (!allocation.wasExisting) {
      for (const pool of chain.slice(0, Math.max(0, chain.indexOf(allocation.sourcePool)))) {
        metrics.unmetDemand.inc({ tier: tierNameOf(pool) });
      }
    }
    return allocation;
  }

  /** The caller hung up before it got its answer: the pod goes back, unless somebody has asked since. */
  async giveBack(callSid: string, { fence, wasExisting, sourcePool }: Allocation): Promise<void> {
    if (wasExisting) return;
    if (await this.#options.store.releaseUnclaimed(callSid, fence)) {
      this.#options.metrics.releases.inc({ pool: sourcePool, status: 'caller_gone' });
    }
  }

  async release(callSid: string, fence?: number, about: ReleaseDetails = {}): Promise<Released> {
    this.assertPrepared();
    const { store, metrics } = this.#options;
    try {
      const released = await store.release(callSid, fence, about);
      if (released.isSetBack) metrics.podsBlocked.inc({ reason: 'flapping' });
      metrics.releases.inc({
        pool: released.pool,
        status: released.wasDraining ? 'draining' : 'success',
      });
      return released;
    } catch (error) {
      const code = error instanceof AppError ? error.code : 'internal';
      const status = code === 'call_not_found' ? 'not_found' : code === 'stale_fence' ? code : 'error';
      metrics.releases.inc({ pool: '', status });
      throw error;
    }
  }

  async renew(callSid: string, fence?: number): Promise<{ leaseExpiresAtMs: number; podName: string }> {
    this.assertPrepared();
    return this.#options.store.renew(callSid, fence);
  }

  async report(podName: string, calls: readonly string[], about: PodWishes = {}): Promise<Report> {
    this.assertPrepared();
    const { metrics } = this.#options;
    const report = await this.#report(podName, calls, about);
    const { renewed, adopted, ended, conflicts } = report;
    for (const [outcome, sids] of Object.entries({ renewed, adopted, ended, conflict: conflicts })) {
      if (sids.length > 0) metrics.reportedCalls.inc({ outcome }, sids.length);
    }
    if (ended.length > 0) metrics.zombiesRecovered.inc(ended.length);
    return report;
  }

  /** Where pods announce themselves, a report of an unknown pod or of its successor makes it known first. */
  async #report(podName: string, calls: readonly string[], about: PodWishes): Promise<Report> {
    const { store, announce } = this.#options;
    try {
      return await store.report(podName, calls, about);
    } catch (error) {
      if (!announce || !(error instanceof AppError) || error.code !== 'pod_not_found') throw error;
    }
    await announce({ name: podName, ...about });
    return store.report(podName, calls, about);
  }

  async drain(podName: string, waitMs: number, caller: DrainCaller = {}): Promise<Drained> {
    this.assertPrepared();
    const drained = await this.#options.store.drain(podName, waitMs, caller);
    this.#options.metrics.drains.inc();
    return drained;
  }

  async undrain(
    podName: string,
    caller: DrainCaller = {},
  ): Promise<{ activeCalls: number; blockedBy: string }> {
    this.assertPrepared();
    return this.#options.store.undrain(podName, this.#options.patienceMs, caller);
  }
}
