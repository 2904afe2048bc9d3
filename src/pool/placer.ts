/**
 * The leader's one writer of pods (a pod that announces itself is written by announce.ts). The watch and the periodic list both say what pods are like, and either may be behind the
 * other: so writes go one after the other, and what is older than the last word about a pod is not written. (Versions
 * are compared as numbers, which Kubernetes promises; one that is none counts as new.)
 */
import type { Settings } from '../calls/settings.js';
import type { PoolStore, Registered } from '../calls/store/pool-store.js';
import type { ClusterPod } from '../cluster/pods.js';
import type { Logger } from '../observe/log.js';
import { assignmentOf, wantedPool } from './assignment.js';
import { registrationOf } from './registration.js';

/** 50 pods take about 1 ms of the store: nobody notices. Removing one also ends its calls. */
const registerBatch = 50;
const removeBatch = 10;

export interface PlacerOptions {
  sourceName: string;
  settings: Settings;
  pools: PoolStore;
  log: Logger;
  onCallsLost?: (count: number, reason: string) => void;
}

export interface Placed extends Record<string, number> {
  registered: number;
  moved: number;
  removed: number;
  calls_lost: number;
}

export const nothingPlaced = (): Placed => ({ registered: 0, moved: 0, removed: 0, calls_lost: 0 });

export class Placer {
  readonly #options: PlacerOptions;
  /** The version of the last word about each pod, also about pods that are gone until a list has confirmed it. */
  readonly #seen = new Map<string, bigint>();
  #newest = 0n;
  /** The version of the last list that was made true. */
  #listed = 0n;
  #last: Promise<unknown> = Promise.resolve();
  /** Pods that could not be registered because of this key: told once, not with every list. */
  readonly #unreadable = new Map<string, string>();

  constructor(options: PlacerOptions) {
    this.#options = options;
  }

  /**
   * What a list of this version says. A pod is as the list has it at that version, however long ago its object was
   * written: so it is the list's version that may be too old, not the object's.
   */
  async place(
    epoch: string,
    pods: readonly ClusterPod[],
    version: string,
    counts: Placed,
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

  /** What a watch says; one that is behind the last list may still tell of a pod that the list has found gone. */
  async follow(epoch: string, pod: ClusterPod, counts: Placed, signal: AbortSignal): Promise<void> {
    await this.#inTurn(async () => {
      const isBehind = !this.#seen.has(pod.name) && (numberOf(pod.version) ?? this.#listed) < this.#listed;
      if (!signal.aborted && !isBehind && this.#isNews(pod)) await this.#apply(epoch, [pod], counts);
    });
  }

  /** Pods that a list of this version did not have. */
  async remove(
    epoch: string,
    names: readonly string[],
    version: string,
    counts: Placed,
    signal: AbortSignal,
  ): Promise<void> {
    for (const batch of batches(names, removeBatch)) {
      await this.#inTurn(async () => {
        if (signal.aborted) return;
        const missing = batch.filter((name) => this.#isNews({ name, version }));
        await this.#remove(epoch, missing, 'not in the cluster', counts);
      });
    }
  }

  /** The same, for pods that the removal brake holds. */
  async hold(epoch: string, names: readonly string[], version: string, signal: AbortSignal): Promise<void> {
    for (const batch of batches(names, registerBatch)) {
      await this.#inTurn(async () => {
        if (signal.aborted) return;
        const missing = batch.filter((name) => this.#isNews({ name, version }));
        if (missing.length > 0) await this.#options.pools.suspend(epoch, 'unconfirmed', missing);
      });
    }
  }

  /** The newest version seen so far: a list asked for later is not older, unless the cluster was restored. */
  get newest(): bigint {
    return this.#newest;
  }

  isBehind(version: string, newestBefore: bigint): boolean {
    const number = numberOf(version);
    return number !== undefined && number < newestBefore;
  }

  /**
   * Versions have gone backwards: what was seen of the cluster before its restore says nothing about it now. True if
   * they have.
   */
  startOverIfBehind(version: string, newestBefore: bigint): boolean {
    const number = numberOf(version);
    if (number === undefined || number >= newestBefore) return false;
    this.#options.log.warn(
      { version },
      'the versions of the cluster went backwards: starting over with this list',
    );
    this.#seen.clear();
    this.#newest = number;
    this.#listed = 0n;
    return true;
  }

  /** A list of this version has been made true: older words about pods it did not have are of no use any more. */
  forgetBefore(version: string, listed: ReadonlySet<string>): void {
    for (const name of this.#seen.keys()) {
      if (!listed.has(name) && !this.#knowsNewer(name, version)) this.#seen.delete(name);
    }
    for (const name of this.#unreadable.keys()) if (!listed.has(name)) this.#unreadable.delete(name);
    this.#listed = numberOf(version) ?? this.#listed;
  }

  /** Not older than the last word about this pod; then it is the last word from now on. */
  #isNews({ name, version }: Pick<ClusterPod, 'name' | 'version'>): boolean {
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

  async #apply(epoch: string, pods: readonly ClusterPod[], counts: Placed): Promise<void> {
    const { settings, pools, sourceName } = this.#options;
    const gone = pods.filter(({ state }) => state === 'gone').map(({ name }) => name);
    const present = pods.filter(({ state }) => state !== 'gone');
    if (gone.length > 0) await this.#remove(epoch, gone, 'gone from the cluster', counts);
    if (present.length === 0) return;
    const { tiers } = settings;
    const results = await pools.register(
      epoch,
      present.map((pod) => registrationOf(pod, tiers, sourceName)),
      assignmentOf(tiers),
    );
    for (const result of results) this.#count(result, counts);
    for (const [i, pod] of present.entries())
      if (results[i]?.outcome === 'new') this.#mentionOddTier(pod, results[i]?.pool);
  }

  #count({ podName, pool, outcome, lostCalls, wrongKey }: Registered, counts: Placed): void {
    const { log } = this.#options;
    if (wrongKey === undefined) this.#unreadable.delete(podName);
    else this.#mentionUnreadable(podName, wrongKey);
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

  #mentionUnreadable(pod: string, key: string): void {
    if (this.#unreadable.get(pod) === key) return;
    this.#unreadable.set(pod, key);
    const why = `pod ${pod} cannot be registered: key ${key} is of a wrong type; keep a copy (RENAME)`;
    this.#options.log.error({ pod, key }, why);
  }

  /** Said when the pod is placed, not with every list. */
  #mentionOddTier(pod: ClusterPod, pool: string | undefined): void {
    const { settings, log } = this.#options;
    if (pod.merchant !== undefined || pod.tier === undefined || wantedPool(settings.tiers, pod)) return;
    log.warn(
      { pod: pod.name, tier: pod.tier, pool },
      'a pod asks for a tier that does not exist: it went elsewhere',
    );
  }

  async #remove(epoch: string, names: readonly string[], reason: string, counts: Placed): Promise<void> {
    if (names.length === 0) return;
    const { pools, log } = this.#options;
    for (const { podName, wasKnown, lostCalls } of await pools.remove(epoch, names, reason)) {
      if (!wasKnown) continue;
      counts.removed += 1;
      log.info({ pod: podName, lost_calls: lostCalls.length, reason }, 'pod removed');
      this.#countLost(podName, lostCalls, 'removed', counts);
    }
  }

  #countLost(pod: string, calls: readonly string[], reason: string, counts: Placed): void {
    if (calls.length === 0) return;
    const { log, onCallsLost } = this.#options;
    counts.calls_lost += calls.length;
    onCallsLost?.(calls.length, reason);
    log.warn({ pod, calls, reason }, 'calls were lost with their pod');
  }

  /** A write that fails fails for its caller alone. `#last` never does. */
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
