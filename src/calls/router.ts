/**
 * The operations on calls: each resolves the chain, runs one store operation and counts it. It has no state: any replica
 * can serve any request, and a replica that dies loses nothing that the store has acknowledged.
 */
import type { Clock } from '../clock.js';
import { type PoolId, tierNameOf } from '../config/tiers.js';
import { AppError } from '../errors.js';
import type { ExplainedCall } from './explanation.js';
import type { Metrics } from './metrics.js';
import type { Settings } from './settings.js';
import type { Master, Replication } from './store/replication.js';
import type {
  AllocateOutcome,
  Allocation,
  CallRequest,
  CallStore,
  DrainCaller,
  Drained,
  HoldRules,
  Refusal,
  ReleaseDetails,
  Released,
  Report,
  ReportDetails,
  Waiting,
} from './store/store.js';

export interface CallRouterOptions {
  store: CallStore;
  settings: Settings;
  metrics: Metrics;
  clock: Clock;
  /** The store refuses an allocate that it receives later than this. */
  patienceMs: number;
  /** Confirms writes; undefined if REDIS_WAIT_REPLICAS is 0. */
  replication?: Replication | undefined;
  /** What an allocate that too few replicas have is answered. */
  replicationPolicy?: 'mark' | 'refuse';
  /** False until the store was checked, imported and configured: until then every operation is rejected. */
  isPrepared(): boolean;
  /** Grows with every change of the store's master; undefined while it is unknown. */
  generation?: () => number | undefined;
  /** Registers a pod that reports itself; only with POD_SOURCE=registered. */
  announce?: (pod: { name: string } & PodReport) => Promise<void>;
}

/** The details of a report, with the pool that the pod names. */
export interface PodReport extends ReportDetails {
  tier?: string | undefined;
  merchant?: string | undefined;
}

export class CallRouter {
  readonly #options: CallRouterOptions;

  constructor(options: CallRouterOptions) {
    this.#options = options;
  }

  /** For the answers of allocate, renew and report: an agent that finds another one than before reports at once. */
  get generation(): { generation?: number } {
    const generation = this.#options.generation?.();
    return generation === undefined ? {} : { generation };
  }

  assertPrepared(): void {
    if (this.#options.isPrepared()) return;
    throw new AppError(
      'store_unavailable',
      'the router is still preparing the store: retry, and see the log if this lasts',
      {
        retryAfterSeconds: 1,
      },
    );
  }

  /** Gives the call a pod. */
  async allocate(request: CallRequest): Promise<Allocation> {
    const answer = await this.#allocate(request, undefined, false);
    if ('podName' in answer) return answer;
    throw new AppError('internal', 'the store queued a call that may not wait');
  }

  /**
   * Gives the call a pod, or a place in the queue if the configuration has `hold`. `wasHeld`: its caller was told to wait
   * before, so that it must not enter the queue again after its wait has ended.
   */
  allocateOrWait(request: CallRequest, wasHeld = false): Promise<Allocation | Waiting> {
    return this.#allocate(request, this.#options.settings.holdFor(request.merchantId), wasHeld);
  }

  /** What `allocate`, or with `mayWait` `allocateOrWait`, would do now. Changes nothing. */
  async explain(request: CallRequest, mayWait: boolean): Promise<ExplainedCall> {
    this.assertPrepared();
    const { store, settings } = this.#options;
    const { callSid, merchantId } = request;
    const { steps: chain, skipped } = settings.chainFor(merchantId);
    const hold = mayWait ? settings.holdFor(merchantId) : undefined;
    return { ...(await store.explain({ ...request, chain, hold })), callSid, merchantId, skipped, hold };
  }

  async #allocate(
    request: CallRequest,
    hold: HoldRules | undefined,
    wasHeld: boolean,
  ): Promise<Allocation | Waiting> {
    this.assertPrepared();
    const { callSid, merchantId, provider, flow, template } = request;
    const { store, settings, metrics, clock, patienceMs, replication, replicationPolicy } = this.#options;
    const chain = settings.chainFor(merchantId).steps;
    const start = clock.monotonic();
    const done = (pool: string, status: string) => {
      metrics.allocations.inc({ pool, status });
      metrics.allocateDuration.observe({ status }, (clock.monotonic() - start) / 1000);
    };
    let outcome: AllocateOutcome;
    let master: Master | undefined;
    try {
      if (replication) master = await replication.master();
      // Each field by name: a spread of objects of several shapes took 3 % of the router's time.
      outcome = await store.allocate({
        callSid,
        merchantId,
        provider,
        flow,
        template,
        chain,
        patienceMs,
        hold,
        wasHeld,
      });
    } catch (error) {
      done('', 'error');
      throw error;
    }
    const { allocation, waiting, refusal = 'no_pods' } = outcome;
    if (waiting) {
      done('', 'waiting');
      return waiting;
    }
    if (!allocation) throw this.#refuse(refusal, request, chain, done);
    if (allocation.waitedMs !== undefined && !allocation.wasExisting) {
      metrics.waits.inc({ outcome: 'served' });
      metrics.waitDuration.observe(allocation.waitedMs / 1000);
    }
    const isReplicated = !replication || !master || (await replication.confirm(master));
    if (!isReplicated && replicationPolicy === 'refuse') {
      done(allocation.sourcePool, 'not_replicated');
      throw await this.#refuseUnreplicated(request.callSid, allocation);
    }
    done(allocation.sourcePool, allocation.wasExisting ? 'existing' : 'success');
    if (allocation.reclaimed > 0) metrics.zombiesRecovered.inc(allocation.reclaimed);
    if (!allocation.wasExisting) {
      for (const pool of chain.slice(0, Math.max(0, chain.indexOf(allocation.sourcePool)))) {
        metrics.unmetDemand.inc({ tier: tierNameOf(pool) });
      }
    }
    return isReplicated ? allocation : { ...allocation, replicated: false };
  }

  /** Releases a new call. One that already had its pod keeps it: a caller may be using it, or held callers ask again. */
  async #refuseUnreplicated(
    callSid: string,
    { fence, wasExisting, waitedMs, sourcePool }: Allocation,
  ): Promise<AppError> {
    const { store, metrics } = this.#options;
    if (!wasExisting && waitedMs === undefined) {
      // If this fails, the lease ends the call.
      const isReleased = await store.releaseUnclaimed(callSid, fence).catch(() => false);
      if (isReleased) metrics.releases.inc({ pool: sourcePool, status: 'not_replicated' });
    }
    return new AppError(
      'not_replicated',
      'too few replicas of Redis have the allocation (REDIS_WAIT_REPLICAS): retry, and check its replicas if this lasts',
      { retryAfterSeconds: 1 },
    );
  }

  #refuse(
    refusal: Refusal,
    { merchantId }: CallRequest,
    chain: readonly PoolId[],
    done: (pool: string, status: string) => void,
  ): AppError {
    const { metrics } = this.#options;
    const code = refusal === 'wait_over' ? 'wait_expired' : refusal;
    done('', code);
    if (code === 'queue_full') metrics.waits.inc({ outcome: code });
    if (code === 'merchant_limit') {
      return new AppError(code, `merchant ${merchantId} has as many live calls as its max_calls allows`, {
        retryAfterSeconds: 1,
      });
    }
    if (code === 'wait_expired') {
      const isOver = refusal === 'wait_over';
      metrics.waits.inc({ outcome: 'expired' }, isOver ? 0 : 1);
      const expired = 'the call waited as long as max_wait allows, and no pod became free';
      return new AppError(
        code,
        isOver ? 'the wait of the call has ended: it expired, or was released' : expired,
      );
    }
    metrics.noPods.inc({ chain: chain.join(' ') });
    for (const pool of chain) metrics.unmetDemand.inc({ tier: tierNameOf(pool) });
    const tried = `no free pod for this call: tried ${chain.join(', ')}`;
    const full = code === 'queue_full' ? '; as many calls wait as max_waiting allows' : '';
    return new AppError(code, tried + full, { retryAfterSeconds: 1 });
  }

  /** Releases the pod of a caller that hung up before the reply, unless the call was requested again. */
  async giveBack(callSid: string, { fence, wasExisting, sourcePool }: Allocation): Promise<void> {
    if (wasExisting) return;
    if (await this.#options.store.releaseUnclaimed(callSid, fence)) {
      this.#options.metrics.releases.inc({ pool: sourcePool, status: 'caller_gone' });
    }
  }

  async release(callSid: string, fence?: number, details: ReleaseDetails = {}): Promise<Released> {
    this.assertPrepared();
    const { store, metrics, replication } = this.#options;
    try {
      const master = replication && (await replication.master());
      const released = await store.release(callSid, fence, details);
      const isReplicated = !master || (await replication?.confirm(master));
      if (released.podName === null) metrics.waits.inc({ outcome: 'abandoned' });
      if (released.isSetBack) metrics.podsBlocked.inc({ reason: 'flapping' });
      metrics.releases.inc({
        pool: released.pool,
        status: released.wasDraining ? 'draining' : 'success',
      });
      return isReplicated ? released : { ...released, replicated: false };
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

  async report(podName: string, calls: readonly string[], details: PodReport = {}): Promise<Report> {
    this.assertPrepared();
    const { metrics } = this.#options;
    const report = await this.#report(podName, calls, details);
    const { renewed, adopted, ended, conflicts } = report;
    for (const [outcome, sids] of Object.entries({ renewed, adopted, ended, conflict: conflicts })) {
      if (sids.length > 0) metrics.reportedCalls.inc({ outcome }, sids.length);
    }
    if (ended.length > 0) metrics.zombiesRecovered.inc(ended.length);
    return report;
  }

  /** With POD_SOURCE=registered, the report of an unknown pod, or of one with a new uid, registers it first. */
  async #report(podName: string, calls: readonly string[], details: PodReport): Promise<Report> {
    const { store, announce } = this.#options;
    try {
      return await store.report(podName, calls, details);
    } catch (error) {
      if (!announce || !(error instanceof AppError) || error.code !== 'pod_not_found') throw error;
    }
    await announce({ name: podName, ...details });
    return store.report(podName, calls, details);
  }

  async drain(podName: string, waitMs: number, caller: DrainCaller = {}): Promise<Drained> {
    this.assertPrepared();
    const { store, metrics, replication } = this.#options;
    const master = replication && (await replication.master());
    const drained = await store.drain(podName, waitMs, caller);
    metrics.drains.inc();
    const isReplicated = !master || (await replication?.confirm(master));
    return isReplicated ? drained : { ...drained, replicated: false };
  }

  async undrain(
    podName: string,
    caller: DrainCaller = {},
  ): Promise<{ activeCalls: number; blockedBy: string }> {
    this.assertPrepared();
    return this.#options.store.undrain(podName, this.#options.patienceMs, caller);
  }
}
