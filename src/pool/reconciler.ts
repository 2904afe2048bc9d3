/**
 * Makes the store agree with the cluster: registers what is missing, removes what is gone, moves pods of
 * deleted tiers. Everything it does is idempotent, so it may stop anywhere and start over.
 */
import type { Settings } from '../calls/settings.js';
import type { PoolStore, Registered } from '../calls/store/pool-store.js';
import type { CallStore } from '../calls/store/store.js';
import type { ClusterPod, PodSource } from '../cluster/pods.js';
import type { Logger } from '../observe/log.js';
import { assignmentOf, wantedPool } from './assignment.js';

/** 50 pods take about 1 ms of the store: nobody notices. Removing one also ends its calls. */
const registerBatch = 50;
const removeBatch = 10;

export interface ReconcileCounts extends Record<string, number> {
  pods: number;
  registered: number;
  moved: number;
  removed: number;
  calls_lost: number;
}

export interface ReconcilerOptions {
  source: PodSource;
  settings: Settings;
  store: CallStore;
  pools: PoolStore;
  log: Logger;
  onCallsLost?: (count: number, reason: string) => void;
}

export class Reconciler {
  readonly #options: ReconcilerOptions;

  constructor(options: ReconcilerOptions) {
    this.#options = options;
  }

  async runOnce(epoch: string, signal: AbortSignal): Promise<ReconcileCounts> {
    const { source, settings } = this.#options;
    const counts: ReconcileCounts = { pods: 0, registered: 0, moved: 0, removed: 0, calls_lost: 0 };
    // After a flush the configuration is gone too, and pods need pools to be put into.
    await settings.writeIfMissing();
    await settings.reapply();
    const wanted = await source.list(signal);
    counts.pods = wanted.length;
    const ghosts = await this.#ghosts(new Set(wanted.map(({ name }) => name)));
    for (const batch of batches(ghosts, removeBatch)) {
      if (signal.aborted) return counts;
      await this.#remove(epoch, batch, counts);
    }
    for (const batch of batches(wanted, registerBatch)) {
      if (signal.aborted) return counts;
      await this.#register(epoch, batch, counts);
    }
    return counts;
  }

  async #ghosts(wanted: ReadonlySet<string>): Promise<string[]> {
    const { store, pools } = this.#options;
    const ghosts = new Set<string>();
    for (const { pool } of (await store.snapshot()).pools) {
      for await (const name of pools.assigned(pool)) if (!wanted.has(name)) ghosts.add(name);
    }
    return [...ghosts];
  }

  async #register(epoch: string, pods: readonly ClusterPod[], counts: ReconcileCounts): Promise<void> {
    const { pools, settings, source, log } = this.#options;
    const { tiers } = settings;
    const results = await pools.register(
      epoch,
      pods.map((pod) => ({
        name: pod.name,
        uid: pod.uid,
        pool: wantedPool(tiers, pod),
        suspended: pod.state === 'ready' ? '' : pod.state,
        mustReport: pod.mustReport,
        metadata: JSON.stringify({
          source: source.name,
          uid: pod.uid,
          tier: pod.tier,
          merchant: pod.merchant,
        }),
      })),
      assignmentOf(tiers),
    );
    for (const result of results) this.#count(result, counts);
    const placed = results.filter(({ outcome }) => outcome === 'new' || outcome === 'moved');
    for (const { podName, pool, outcome } of placed)
      log.info({ pod: podName, pool, outcome }, 'pod registered');
  }

  #count({ outcome, lostCalls }: Registered, counts: ReconcileCounts): void {
    if (outcome === 'new') counts.registered += 1;
    if (outcome === 'moved') counts.moved += 1;
    counts.calls_lost += lostCalls.length;
    if (lostCalls.length > 0) this.#options.onCallsLost?.(lostCalls.length, 'replaced');
  }

  async #remove(epoch: string, names: readonly string[], counts: ReconcileCounts): Promise<void> {
    const { pools, log, onCallsLost } = this.#options;
    for (const { podName, lostCalls } of await pools.remove(epoch, names, 'not in the cluster')) {
      counts.removed += 1;
      counts.calls_lost += lostCalls.length;
      if (lostCalls.length > 0) onCallsLost?.(lostCalls.length, 'removed');
      log.info({ pod: podName, lost_calls: lostCalls.length }, 'pod removed');
    }
  }
}

function* batches<T>(items: readonly T[], size: number): Generator<T[]> {
  for (let i = 0; i < items.length; i += size) yield items.slice(i, i + size);
}
