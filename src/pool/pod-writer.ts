/**
 * The leader's only writer of pods (registration.ts writes pods that announce themselves). Both the watch and the periodic
 * list report pods, and either may be behind the other. So writes run in sequence, and a report older than the last one
 * of its pod is dropped. Versions are compared as numbers, which Kubernetes guarantees; others count as new.
 */
import type { Registered } from '../calls/store/pool-store.js';
import type { ClusterPod } from '../cluster/pods.js';
import type { LeaderOptions } from './leader-options.js';
import { assignmentOf, registrationOf, wantedPool } from './registration.js';

/** 50 pods take the store about 1 ms. Removing a pod also ends its calls. */
const registerBatch = 50;
const removeBatch = 10;

export interface WriteCounts extends Record<string, number> {
  registered: number;
  moved: number;
  removed: number;
  calls_lost: number;
}

export const noWrites = (): WriteCounts => ({ registered: 0, moved: 0, removed: 0, calls_lost: 0 });

export class PodWriter {
  /** The last version of each pod; of a deleted pod until a list confirms the deletion. */
  readonly #seen = new Map<string, bigint>();
  #newest = 0n;
  /** The version of the last applied list. */
  #listed = 0n;
  #last: Promise<unknown> = Promise.resolve();
  /** Pods that could not be registered, by key: logged once, not with every list. */
  readonly #unreadable = new Map<string, string>();

  constructor(
    private readonly options: Pick<LeaderOptions, 'source' | 'settings' | 'pools' | 'log' | 'onCallsLost'>,
  ) {}

  /**
   * Writes the pods of a list. The list shows each pod as of the version of the list, however old its object is: so the
   * version of the list may be outdated, not that of the object.
   */
  async writeList(
    epoch: string,
    pods: readonly ClusterPod[],
    version: string,
    counts: WriteCounts,
    signal: AbortSignal,
  ): Promise<void> {
    for (const batch of batches(pods, registerBatch)) {
      await this.#inTurn(async () => {
        if (!signal.aborted)
          await this.#apply(
            epoch,
            batch.filter((pod) => !this.#knowsNewer(pod.name, version) && this.#note(pod)),
            counts,
          );
      });
    }
  }

  /** Writes a change of the watch. A watch behind the last list may still report a pod that the list did not have. */
  async writeChange(epoch: string, pod: ClusterPod, counts: WriteCounts, signal: AbortSignal): Promise<void> {
    await this.#inTurn(async () => {
      const isBehind = !this.#seen.has(pod.name) && (numberOf(pod.version) ?? this.#listed) < this.#listed;
      if (!signal.aborted && !isBehind && this.#isCurrent(pod)) await this.#apply(epoch, [pod], counts);
    });
  }

  /** Removes pods that a list of this version did not have. */
  async remove(
    epoch: string,
    names: readonly string[],
    version: string,
    counts: WriteCounts,
    signal: AbortSignal,
  ): Promise<void> {
    for (const batch of batches(names, removeBatch)) {
      await this.#inTurn(async () => {
        if (signal.aborted) return;
        const missing = batch.filter((name) => this.#isCurrent({ name, version }));
        await this.#remove(epoch, missing, 'not in the cluster', counts);
      });
    }
  }

  /** Suspends pods that the removal brake holds. */
  async hold(epoch: string, names: readonly string[], version: string, signal: AbortSignal): Promise<void> {
    for (const batch of batches(names, registerBatch)) {
      await this.#inTurn(async () => {
        if (signal.aborted) return;
        const missing = batch.filter((name) => this.#isCurrent({ name, version }));
        if (missing.length > 0) await this.options.pools.suspend(epoch, 'unconfirmed', missing);
      });
    }
  }

  /** The newest version of a pod, a list or a bookmark: a later list is not older, unless the cluster was restored. */
  get newest(): bigint {
    return this.#newest;
  }

  /** Notes the version of a list or a bookmark. */
  sawVersion(version: string): void {
    const number = numberOf(version) ?? 0n;
    if (number > this.#newest) this.#newest = number;
  }

  isBehind(version: string, newestBefore: bigint): boolean {
    const number = numberOf(version);
    return number !== undefined && number < newestBefore;
  }

  /**
   * Drops all known versions if the versions went backwards: they are from before a restore of the cluster. Returns
   * whether they did.
   */
  startOverIfBehind(version: string, newestBefore: bigint): boolean {
    const number = numberOf(version);
    if (number === undefined || number >= newestBefore) return false;
    this.options.log.warn({ version }, 'cluster versions went backwards; starting over with this list');
    this.#seen.clear();
    this.#newest = number;
    this.#listed = 0n;
    return true;
  }

  /** A list of this version was applied: drops the older versions of pods that it did not have. */
  forgetBefore(version: string, listed: ReadonlySet<string>): void {
    for (const name of this.#seen.keys()) {
      if (!listed.has(name) && !this.#knowsNewer(name, version)) this.#seen.delete(name);
    }
    for (const name of this.#unreadable.keys()) if (!listed.has(name)) this.#unreadable.delete(name);
    this.#listed = numberOf(version) ?? this.#listed;
    this.sawVersion(version);
  }

  /** Whether this report is not outdated; if so, it becomes the last one. */
  #isCurrent({ name, version }: Pick<ClusterPod, 'name' | 'version'>): boolean {
    return !this.#knowsNewer(name, version) && this.#note({ name, version });
  }

  #note({ name, version }: { name: string; version?: string | undefined }): true {
    const number = numberOf(version);
    if (number !== undefined) {
      this.#seen.set(name, number);
      if (number > this.#newest) this.#newest = number;
    }
    return true;
  }

  #knowsNewer(name: string, version: string | undefined): boolean {
    const seen = this.#seen.get(name);
    const number = numberOf(version);
    return seen !== undefined && number !== undefined && seen > number;
  }

  async #apply(epoch: string, pods: readonly ClusterPod[], counts: WriteCounts): Promise<void> {
    const { settings, pools, source } = this.options;
    const deleted = pods.filter(({ state }) => state === 'gone').map(({ name }) => name);
    const present = pods.filter(({ state }) => state !== 'gone');
    if (deleted.length > 0) await this.#remove(epoch, deleted, 'gone from the cluster', counts);
    if (present.length === 0) return;
    const { tiers } = settings;
    const results = await pools.register(
      epoch,
      present.map((pod) => registrationOf(pod, tiers, source.name)),
      assignmentOf(tiers),
    );
    for (const result of results) this.#count(result, counts);
    for (const [i, pod] of present.entries())
      if (results[i]?.outcome === 'new') this.#logUnknownTier(pod, results[i]?.pool);
  }

  #count({ podName, pool, outcome, lostCalls, wrongKey }: Registered, counts: WriteCounts): void {
    const { log } = this.options;
    if (wrongKey === undefined) this.#unreadable.delete(podName);
    else this.#logUnreadable(podName, wrongKey);
    if (outcome === 'new') counts.registered += 1;
    if (outcome === 'moved') counts.moved += 1;
    if (outcome === 'removed') counts.removed += 1;
    if (outcome === 'new' || outcome === 'moved') log.info({ pod: podName, pool, outcome }, 'pod registered');
    if (outcome === 'removed')
      log.info({ pod: podName, pool, lost_calls: lostCalls.length }, 'pod removed: not ready');
    const isReplaced = ['new', 'skipped', 'replaced'].includes(outcome);
    if (outcome === 'replaced') log.info({ pod: podName, pool }, 'pod replaced by one of the same name');
    this.#countLost(podName, lostCalls, isReplaced ? 'replaced' : 'restarted', counts);
  }

  #logUnreadable(pod: string, key: string): void {
    if (this.#unreadable.get(pod) === key) return;
    this.#unreadable.set(pod, key);
    const why = `pod ${pod} cannot be registered: key ${key} has a wrong type; keep a copy (RENAME)`;
    this.options.log.error({ pod, key }, why);
  }

  /** Logged when the pod is registered, not with every list. */
  #logUnknownTier(pod: ClusterPod, pool: string | undefined): void {
    const { settings, log } = this.options;
    if (pod.merchant !== undefined || pod.tier === undefined || wantedPool(settings.tiers, pod)) return;
    log.warn({ pod: pod.name, tier: pod.tier, pool }, 'unknown tier label; default pool used');
  }

  async #remove(epoch: string, names: readonly string[], reason: string, counts: WriteCounts): Promise<void> {
    if (names.length === 0) return;
    const { pools, log } = this.options;
    for (const { podName, wasKnown, lostCalls } of await pools.remove(epoch, names, reason)) {
      if (!wasKnown) continue;
      counts.removed += 1;
      log.info({ pod: podName, lost_calls: lostCalls.length, reason }, 'pod removed');
      this.#countLost(podName, lostCalls, 'removed', counts);
    }
  }

  #countLost(pod: string, calls: readonly string[], reason: string, counts: WriteCounts): void {
    if (calls.length === 0) return;
    const { log, onCallsLost } = this.options;
    counts.calls_lost += calls.length;
    onCallsLost?.(calls.length, reason);
    log.warn({ pod, calls, reason }, 'calls lost with their pod');
  }

  /** A failed write rejects for its caller only; `#last` never rejects. */
  #inTurn<T>(write: () => Promise<T>): Promise<T> {
    const result = this.#last.then(write);
    this.#last = result.catch(() => {});
    return result;
  }
}

function numberOf(version: string | undefined): bigint | undefined {
  return version !== undefined && /^\d+$/.test(version) ? BigInt(version) : undefined;
}

function* batches<T>(items: readonly T[], size: number): Generator<T[]> {
  for (let i = 0; i < items.length; i += size) yield items.slice(i, i + size);
}
