/**
 * Makes the store agree with a full list of the cluster: registers what is missing, removes what is gone, moves pods
 * of deleted tiers. Pods that the removal brake would hold are looked up by name first. Everything it does is idempotent, so it may stop anywhere and start over.
 */
import type { Settings } from '../calls/settings.js';
import type { PoolStore } from '../calls/store/pool-store.js';
import type { CallStore } from '../calls/store/store.js';
import type { Clock } from '../clock.js';
import type { PodSource } from '../cluster/pods.js';
import type { Logger } from '../observe/log.js';
import { listsToBelieve, RemovalBrake } from './brake.js';
import { nothingPlaced, type Placed, type Placer } from './placer.js';

/** Of one list: 1,000 lookups, 8 at a time, take about a second; the next list goes on with the rest. */
const mostLookups = 1000;
const lookupsAtOnce = 8;

export interface ReconcileCounts extends Placed {
  pods: number;
  held: number;
}

export interface ReconcilerOptions {
  source: PodSource;
  placer: Placer;
  settings: Settings;
  store: CallStore;
  pools: PoolStore;
  clock: Clock;
  log: Logger;
  /** Two lists closer than this are one for the removal brake. */
  apartMs: number;
}

export class Reconciler {
  readonly #options: ReconcilerOptions;
  readonly #brake = new RemovalBrake();
  #lastCountedMs = Number.NEGATIVE_INFINITY;
  /** The versions went backwards, and no list since then has been made true. */
  #startsOver = false;
  /** How many lists in a row were behind what was known, and when the last of them was counted. */
  #behind = 0;
  #lastBehindMs = 0;

  constructor(options: ReconcilerOptions) {
    this.#options = options;
  }

  /** `onListed` is told the version of the list once it has been made true, and whether versions start over with it. */
  async runOnce(
    epoch: string,
    signal: AbortSignal,
    onListed?: (version: string, startsOver: boolean) => void,
  ): Promise<ReconcileCounts> {
    const { source, settings, placer } = this.#options;
    const counts: ReconcileCounts = { pods: 0, held: 0, ...nothingPlaced() };
    // After a flush the configuration is gone too, and pods need pools to be put into.
    await settings.writeIfMissing();
    await settings.reapply();
    // Before the list: a pod that is registered meanwhile is not missing from it.
    const known = await this.#known();
    const newestBefore = placer.newest;
    const { pods, version } = await source.list(signal);
    if (placer.isBehind(version, newestBefore) && !this.#isRestored(version)) return counts;
    if (placer.startOverIfBehind(version, newestBefore)) this.#startsOver = true;
    this.#behind = 0;
    counts.pods = pods.length;
    const listed = new Set(pods.map(({ name }) => name));
    const missing = known.filter((name) => !listed.has(name));
    await this.#clear(epoch, missing, known.length, version, counts, signal);
    await placer.place(epoch, pods, version, counts, signal);
    if (signal.aborted) return counts;
    placer.forgetBefore(version, listed);
    onListed?.(version, this.#startsOver);
    this.#startsOver = false;
    return counts;
  }

  /**
   * A list that is older than what we know comes from an API server that lags, or from a cluster that was restored from a
   * backup. The first must not take back what newer events said, the second must be followed: three lists in a row,
   * apart as for the removal brake, are a restored cluster.
   */
  #isRestored(version: string): boolean {
    const { clock, log, apartMs } = this.#options;
    const nowMs = clock.monotonic();
    if (this.#behind === 0 || nowMs - this.#lastBehindMs >= apartMs) {
      this.#behind += 1;
      this.#lastBehindMs = nowMs;
    }
    if (this.#behind >= listsToBelieve) return true;
    log.warn({ version }, 'the list is older than what is known already, and is left aside');
    return false;
  }

  async #clear(
    epoch: string,
    missing: readonly string[],
    known: number,
    version: string,
    counts: ReconcileCounts,
    signal: AbortSignal,
  ): Promise<void> {
    const { source, placer, pools, clock, log, apartMs } = this.#options;
    const nowMs = clock.monotonic();
    const counted = nowMs - this.#lastCountedMs >= apartMs;
    if (counted) this.#lastCountedMs = nowMs;
    // What cannot be read may hold any of them.
    const { held, confirmed } =
      missing.length > 0 ? await pools.removals(missing) : { held: [], confirmed: [] };
    // Another STATIC_PODS on the next leader misses pods that are there: with live calls they are held, however few.
    const busy = source.name === 'static' && missing.length > 0 ? await pools.withCalls(missing) : [];
    const verdict = this.#brake.judge(missing, known, new Set(confirmed), {
      held: new Set([...held, ...busy]),
      counts: counted,
    });
    // An empty list confirms nothing: in a wrong namespace every name is unknown too.
    const deleted = counts.pods > 0 ? await this.#deleted(verdict.hold, signal) : new Set<string>();
    if (signal.aborted) return;
    const remove = [...verdict.remove, ...deleted];
    const hold = verdict.hold.filter((name) => !deleted.has(name));
    counts.held = hold.length;
    if (hold.length > 0) {
      log.error(
        { held: hold.length, known, pods: hold.slice(0, 20) },
        `the list misses ${busy.length > 0 ? 'pods with live calls' : 'too many pods to be believed'}: they take no new calls and are removed only after three such lists or \`smart-router removals confirm\`; check ${source.name === 'static' ? 'STATIC_PODS' : 'POD_LABEL_SELECTOR and NAMESPACE'}`,
      );
      await placer.hold(epoch, hold, version, signal);
    }
    await placer.remove(epoch, remove, version, counts, signal);
  }

  /**
   * Which of these pods the source confirms as deleted, whatever their labels: a Deployment that rolled while no leader
   * ran is no wrong selector. Stops at the first lookup that fails; what it did not confirm stays held.
   */
  async #deleted(names: readonly string[], signal: AbortSignal): Promise<Set<string>> {
    const { source, log } = this.#options;
    const deleted = new Set<string>();
    const queue = source.exists ? names.slice(0, mostLookups) : [];
    const lookUp = async () => {
      for (let name = queue.shift(); name !== undefined && !signal.aborted; name = queue.shift()) {
        try {
          if (!(await source.exists?.(name, signal))) deleted.add(name);
        } catch (error) {
          queue.length = 0;
          if (!signal.aborted) log.warn({ err: error, pod: name }, 'lookup of a missing pod failed');
        }
      }
    };
    await Promise.all(Array.from({ length: lookupsAtOnce }, lookUp));
    return deleted;
  }

  async #known(): Promise<string[]> {
    const { store, pools } = this.#options;
    const names = new Set<string>();
    for (const { pool } of (await store.snapshot()).pools) {
      for await (const name of pools.assigned(pool)) names.add(name);
    }
    return [...names];
  }
}
