/**
 * The loops of the leader in one term: a full sync first, then watch, sweep, silence check, periodic sync and audit.
 *
 * Every write carries the epoch of the term. When the store refuses it, another replica took a newer one. A replica that
 * still holds the lock takes a newer epoch in turn (the lock decides); a replica that does not ends its term.
 */
import { abortWith } from '../abort.js';
import type { Auditor } from '../calls/audit/auditor.js';
import type { Settings } from '../calls/settings.js';
import { EpochRefused, type PoolStore, type SilentPod } from '../calls/store/pool-store.js';
import type { CallStore } from '../calls/store/store.js';
import type { Clock } from '../clock.js';
import type { PodSource } from '../cluster/pods.js';
import { type LoopState, SupervisedLoop } from '../loop.js';
import type { Logger } from '../observe/log.js';
import { AuditReporter } from './audit-reporter.js';
import { Placer } from './placer.js';
import { Reconciler } from './reconciler.js';
import { SilenceCheck, silenceIntervalMs } from './silence.js';
import { Sweeper } from './sweeper.js';
import { Watcher } from './watcher.js';

export interface LeaderLoopsOptions {
  /** The name of this replica, for logs and the event. */
  identity: string;
  source: PodSource;
  settings: Settings;
  store: CallStore;
  pools: PoolStore;
  clock: Clock;
  log: Logger;
  reconcileIntervalMs: number;
  cleanupIntervalMs: number;
  /** Undefined: no periodic audit. */
  audit?: { auditor: Auditor; intervalMs: number } | undefined;
  onCrash?: (loop: string) => void;
  onReconnect?: (reason: string) => void;
  onCallsLost?: (count: number, reason: string) => void;
  onZombies?: (count: number) => void;
  onSilent?: (pods: readonly SilentPod[]) => void;
  onAudited?: (violations: number) => void;
}

type Work = (
  epoch: string,
  signal: AbortSignal,
  alive: (counts: Record<string, number>) => void,
) => Promise<Record<string, number>>;

export class LeaderLoops {
  readonly #options: LeaderLoopsOptions;
  readonly #stillHeld: () => Promise<boolean>;
  readonly #reconcile: SupervisedLoop;
  readonly #loops: SupervisedLoop[];
  readonly #ended = new AbortController();
  #epoch: Promise<string> | undefined;
  #asking: Promise<boolean> | undefined;

  constructor(options: LeaderLoopsOptions, stillHeld: () => Promise<boolean>) {
    this.#options = options;
    this.#stillHeld = stillHeld;
    const { source, settings, store, pools, clock, log, audit, reconcileIntervalMs } = options;
    const placer = new Placer({
      sourceName: source.name,
      settings,
      pools,
      log,
      onCallsLost: (count, reason) => options.onCallsLost?.(count, reason),
    });
    source.startOver?.();
    const reconciler = new Reconciler({
      source,
      placer,
      settings,
      store,
      pools,
      clock,
      log,
      apartMs: reconcileIntervalMs / 2,
    });
    const sweeper = new Sweeper({ store, pools, log, onZombies: (count) => options.onZombies?.(count) });
    const silence = new SilenceCheck({ pools, log, onBlocked: (pods) => options.onSilent?.(pods) });
    const watcher =
      source.watch &&
      new Watcher({
        watch: source.watch.bind(source),
        read: source.read?.bind(source),
        placer,
        clock,
        log,
        relist: () => this.#reconcile.nudge(),
        onReconnect: (reason) => options.onReconnect?.(reason),
      });
    this.#reconcile = this.#loop('reconcile', reconcileIntervalMs, true, (epoch, signal) =>
      reconciler.runOnce(epoch, signal, (...listed) => watcher?.listed(...listed)),
    );
    this.#loops = [
      this.#reconcile,
      this.#loop('sweep', options.cleanupIntervalMs, false, (epoch, signal) =>
        sweeper.runOnce(epoch, signal),
      ),
      this.#loop('silence', silenceIntervalMs, true, (epoch, signal) => silence.runOnce(epoch, signal)),
    ];
    if (audit) {
      const reporter = new AuditReporter({
        auditor: audit.auditor,
        log,
        onAudited: (violations) => options.onAudited?.(violations),
      });
      // Soon after the start of a term, but not before the first sync has repaired what it can.
      const work: Work = async (_, signal) => {
        await this.firstSync;
        return reporter.runOnce(signal);
      };
      this.#loops.push(this.#loop('audit', audit.intervalMs, true, work));
    }
    if (watcher) this.#loops.push(this.#loop('watch', 0, true, (...args) => watcher.runOnce(...args)));
  }

  get states(): LoopState[] {
    return this.#loops.map((loop) => loop.state);
  }

  /** Resolves when the first sync has been tried. */
  get firstSync(): Promise<void> {
    return this.#reconcile.firstRound;
  }

  /** Syncs now instead of at the end of the interval. */
  nudge(): void {
    this.#options.source.startOver?.();
    this.#reconcile.nudge();
  }

  /** Runs until `signal` aborts or the store has a newer leader; resolves when all loops have ended. */
  async run(signal: AbortSignal): Promise<void> {
    const over = new AbortController();
    for (const end of [signal, this.#ended.signal]) abortWith(over, end);
    if (over.signal.aborted) return;
    for (const loop of this.#loops) loop.start();
    await new Promise<void>((resolve) => {
      over.signal.addEventListener('abort', () => resolve(), { once: true });
    });
    await Promise.all(this.#loops.map((loop) => loop.stop()));
  }

  #loop(name: string, intervalMs: number, runAtStart: boolean, work: Work): SupervisedLoop {
    const { clock, log, onCrash } = this.#options;
    return new SupervisedLoop({
      name,
      intervalMs,
      clock,
      log,
      runAtStart,
      onCrash: () => onCrash?.(name),
      runOnce: async (signal, alive) => {
        const taken = this.#takeEpoch();
        const epoch = await taken;
        try {
          return signal.aborted ? {} : await work(epoch, signal, alive);
        } catch (error) {
          if (!(error instanceof EpochRefused)) throw error;
          await this.#epochRefused(error, taken);
          return {};
        }
      },
    });
  }

  /** One epoch per term, taken by the first loop that writes. */
  #takeEpoch(): Promise<string> {
    const { pools, identity, log } = this.#options;
    this.#epoch ??= pools.takeEpoch(identity).then(
      (epoch) => {
        log.info({ epoch, leader: identity }, 'leader: managing the pools');
        return epoch;
      },
      (error: unknown) => {
        this.#epoch = undefined;
        throw error;
      },
    );
    return this.#epoch;
  }

  /** Keeps the refused epoch until the lock has been read: without a read no new epoch is taken. */
  async #epochRefused(error: EpochRefused, refused: Promise<string>): Promise<void> {
    // Another loop was refused too and has handled it.
    const isHandled = () => this.#epoch !== refused || this.#ended.signal.aborted;
    if (isHandled()) return;
    this.#asking ??= this.#stillHeld().finally(() => {
      this.#asking = undefined;
    });
    const isHeld = await this.#asking;
    if (isHandled()) return;
    const { log } = this.#options;
    if (isHeld) {
      log.warn({ err: error }, 'epoch refused but lock still held; taking a new epoch');
      this.#epoch = undefined;
      this.nudge();
      return;
    }
    log.warn({ err: error }, 'epoch refused: another replica is the leader; ending this term');
    this.#ended.abort();
  }
}
