/**
 * Brings the store in line with a full list of the cluster: registers new pods, removes deleted ones, moves pods of deleted
 * tiers. Pods that the removal brake would hold are looked up by name first. Every step is idempotent, so a round may
 * stop anywhere and start again.
 */
import type { LeaderOptions } from './leader-options.js';
import { noWrites, type PodWriter, type WriteCounts } from './pod-writer.js';
import { listsToConfirm, RemovalBrake } from './removal-brake.js';

/** Per list: 1,000 lookups, 8 at a time, take about a second; the next list continues with the rest. */
const maxLookups = 1000;
const concurrentLookups = 8;

type ReconcileCounts = WriteCounts & { pods: number; held: number };

type ReconcilerOptions = Pick<
  LeaderOptions,
  'source' | 'settings' | 'store' | 'pools' | 'clock' | 'log' | 'reconcileIntervalMs'
>;

export class Reconciler {
  readonly #options: ReconcilerOptions;
  readonly #writer: PodWriter;
  /** Two lists closer than this count as one for the removal brake. */
  readonly #apartMs: number;
  readonly #brake = new RemovalBrake();
  #lastCountedMs = Number.NEGATIVE_INFINITY;
  /** Versions went backwards, and no list has been applied since. */
  #startsOver = false;
  /** How many lists in a row were older than known versions, and when the last of them was counted. */
  #behind = 0;
  #lastBehindMs = 0;

  constructor(options: ReconcilerOptions, writer: PodWriter) {
    this.#options = options;
    this.#writer = writer;
    this.#apartMs = options.reconcileIntervalMs / 2;
  }

  /** `onListed` gets the version of the list once it is applied, and whether versions start over with it. */
  async runOnce(
    epoch: string,
    signal: AbortSignal,
    onListed?: (version: string, startsOver: boolean) => void,
  ): Promise<ReconcileCounts> {
    const { source, settings } = this.#options;
    const writer = this.#writer;
    const counts: ReconcileCounts = { pods: 0, held: 0, ...noWrites() };
    // After a flush the tier configuration is missing too, and pods need pools.
    await settings.writeIfMissing();
    await settings.reapply();
    // Before the list: a pod registered during the list is not missing from it.
    const known = await this.#known();
    const newestBefore = writer.newest;
    const { pods, version } = await source.list(signal);
    if (writer.isBehind(version, newestBefore) && !this.#isRestored(version)) return counts;
    if (writer.startOverIfBehind(version, newestBefore)) this.#startsOver = true;
    this.#behind = 0;
    counts.pods = pods.length;
    const listed = new Set(pods.map(({ name }) => name));
    const missing = known.filter((name) => !listed.has(name));
    await this.#removeMissing(epoch, missing, known.length, version, counts, signal);
    await writer.writeList(epoch, pods, version, counts, signal);
    if (signal.aborted) return counts;
    writer.forgetBefore(version, listed);
    onListed?.(version, this.#startsOver);
    this.#startsOver = false;
    return counts;
  }

  /**
   * A list older than known versions comes from an API server that lags, or from a cluster restored from a backup. The
   * first must not undo newer events, the second must be followed: three such lists in a row, spaced as for the removal
   * brake, mean a restored cluster.
   */
  #isRestored(version: string): boolean {
    const { clock, log } = this.#options;
    const nowMs = clock.monotonic();
    if (this.#behind === 0 || nowMs - this.#lastBehindMs >= this.#apartMs) {
      this.#behind += 1;
      this.#lastBehindMs = nowMs;
    }
    if (this.#behind >= listsToConfirm) return true;
    log.warn({ version }, 'list older than known versions; ignored');
    return false;
  }

  async #removeMissing(
    epoch: string,
    missing: readonly string[],
    known: number,
    version: string,
    counts: ReconcileCounts,
    signal: AbortSignal,
  ): Promise<void> {
    const { source, pools, clock, log } = this.#options;
    const nowMs = clock.monotonic();
    const counted = nowMs - this.#lastCountedMs >= this.#apartMs;
    if (counted) this.#lastCountedMs = nowMs;
    const { held, confirmed } =
      missing.length > 0 ? await pools.removals(missing) : { held: [], confirmed: [] };
    // A new leader with another STATIC_PODS misses pods that exist: those with live calls are held, however few.
    const busy = source.name === 'static' && missing.length > 0 ? await pools.withCalls(missing) : [];
    const decision = this.#brake.decide(missing, known, new Set(confirmed), {
      held: new Set([...held, ...busy]),
      counts: counted,
    });
    // With an empty list no lookup counts: in a wrong namespace every name is unknown.
    const deleted = counts.pods > 0 ? await this.#deleted(decision.hold, signal) : new Set<string>();
    if (signal.aborted) return;
    const remove = [...decision.remove, ...deleted];
    const hold = decision.hold.filter((name) => !deleted.has(name));
    counts.held = hold.length;
    if (hold.length > 0) {
      log.error(
        { held: hold.length, known, pods: hold.slice(0, 20) },
        `removal brake: the list misses ${busy.length > 0 ? 'pods with live calls' : 'more than half of the pods'}; they get no new calls and are removed after three such lists or \`smart-router removals confirm\`; check ${source.name === 'static' ? 'STATIC_PODS' : 'POD_LABEL_SELECTOR and NAMESPACE'}`,
      );
      await this.#writer.hold(epoch, hold, version, signal);
    }
    await this.#writer.remove(epoch, remove, version, counts, signal);
  }

  /**
   * The pods that do not exist in the source, with any labels: a Deployment that was rolled out while there was no
   * leader is not a wrong selector. Stops at the first failed lookup; unconfirmed pods stay held.
   */
  async #deleted(names: readonly string[], signal: AbortSignal): Promise<Set<string>> {
    const { source, log } = this.#options;
    const deleted = new Set<string>();
    const queue = source.exists ? names.slice(0, maxLookups) : [];
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
    await Promise.all(Array.from({ length: concurrentLookups }, lookUp));
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
