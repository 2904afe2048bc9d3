/**
 * One term of a leader: a full sync first, then watch, sweep, silence check, periodic sync and audit, each a supervised
 * loop.
 *
 * Every write carries the term's epoch. When the store refuses it, somebody took a newer one: whoever still holds the
 * lock takes a newer one in turn (its lock is the truth, the other was mistaken); whoever does not ends its term.
 */
import type { Auditor } from '../calls/audit/auditor.js';
import type { Settings } from '../calls/settings.js';
import { EpochRefused, type PoolStore, type SilentPod } from '../calls/store/pool-store.js';
import type { CallStore } from '../calls/store/store.js';
import type { Clock } from '../clock.js';
import type { PodSource } from '../cluster/pods.js';
import { type LoopState, SupervisedLoop } from '../loop.js';
import type { Logger } from '../observe/log.js';
import { Auditing } from './auditing.js';
import { Placer } from './placer.js';
import { Reconciler } from './reconciler.js';
import { SilenceCheck, silenceIntervalMs } from './silence.js';
import { Sweeper } from './sweeper.js';
import { Watcher } from './watcher.js';

export interface TermOptions {
  /** Who leads, for logs and the event. */
  identity: string;
  source: PodSource;
  settings: Settings;
  store: CallStore;
  pools: PoolStore;
  clock: Clock;
  log: Logger;
  reconcileIntervalMs: number;
  cleanupIntervalMs: number;
  /** Undefined: nobody looks for contradictions unasked. */
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

export class Term {
  readonly #options: TermOptions;
  readonly #stillHeld: () => Promise<boolean>;
  readonly #reconcile: SupervisedLoop;
  readonly #loops: SupervisedLoop[];
  readonly #over = new AbortController();
  #epoch: Promise<string> | undefined;
  #asking: Promise<boolean> | undefined;

  constructor(options: TermOptions, stillHeld: () => Promise<boolean>) {
    this.#options = options;
    this.#stillHeld = stillHeld;
    const { source, settings, store, pools, clock, log, onCallsLost, onZombies, onSilent } = options;
    const placer = new Placer({
      sourceName: source.name,
      settings,
      pools,
      log,
      ...(onCallsLost ? { onCallsLost } : {}),
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
      apartMs: options.reconcileIntervalMs / 2,
    });
    const sweeper = new Sweeper({ store, pools, log, ...(onZombies ? { onZombies } : {}) });
    const watcher =
      source.watch &&
      new Watcher({
        watch: source.watch.bind(source),
        read: source.read?.bind(source),
        placer,
        clock,
        log,
        relist: () => this.#reconcile.nudge(),
        onReconnect: options.onReconnect,
      });
    this.#reconcile = this.#loop('reconcile', options.reconcileIntervalMs, true, (epoch, signal) =>
      reconciler.runOnce(epoch, signal, (...listed) => watcher?.listed(...listed)),
    );
    const sweep = this.#loop('sweep', options.cleanupIntervalMs, false, (epoch, signal) =>
      sweeper.runOnce(epoch, signal),
    );
    const silenceCheck = new SilenceCheck({ pools, log, ...(onSilent ? { onBlocked: onSilent } : {}) });
    const silence = this.#loop('silence', silenceIntervalMs, true, (epoch, signal) =>
      silenceCheck.runOnce(epoch, signal),
    );
    this.#loops = [this.#reconcile, sweep, silence];
    if (options.audit) {
      const { auditor, intervalMs } = options.audit;
      const { onAudited } = options;
      const auditing = new Auditing({ auditor, log, ...(onAudited ? { onAudited } : {}) });
      // What an earlier leader, or somebody at night, has left behind is told at once; but not what the first sync repairs.
      const work: Work = async (_, signal) => {
        await this.firstSync;
        return auditing.runOnce(signal);
      };
      this.#loops.push(this.#loop('audit', intervalMs, true, work));
    }
    if (watcher) {
      const work: Work = (epoch, signal, alive) => watcher.runOnce(epoch, signal, alive);
      this.#loops.push(this.#loop('watch', 0, true, work));
    }
  }

  get loops(): LoopState[] {
    return this.#loops.map((loop) => loop.state);
  }

  /** Resolves when the first sync has been tried. */
  get firstSync(): Promise<void> {
    return this.#reconcile.firstRound;
  }

  /** Syncs now instead of at its time. */
  nudge(): void {
    this.#options.source.startOver?.();
    this.#reconcile.nudge();
  }

  /** Leads until `signal` aborts or the store knows a newer leader; resolves when all work has ended. */
  async run(signal: AbortSignal): Promise<void> {
    const over = AbortSignal.any([signal, this.#over.signal]);
    if (over.aborted) return;
    for (const loop of this.#loops) loop.start();
    await new Promise<void>((resolve) => {
      over.addEventListener('abort', () => resolve(), { once: true });
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
      ...(onCrash ? { onCrash: () => onCrash(name) } : {}),
      runOnce: async (signal, alive) => {
        const taken = this.#takeEpoch();
        const epoch = await taken;
        try {
          return signal.aborted ? {} : await work(epoch, signal, alive);
        } catch (error) {
          if (!(error instanceof EpochRefused)) throw error;
          await this.#refused(error, taken);
          return {};
        }
      },
    });
  }

  /** One epoch per term, taken with the first write, whichever loop comes first. */
  #takeEpoch(): Promise<string> {
    const { pools, identity, log } = this.#options;
    this.#epoch ??= pools.takeEpoch(identity).then(
      (epoch) => {
        log.info({ epoch, leader: identity }, 'leading: this replica manages the pools');
        return epoch;
      },
      (error: unknown) => {
        this.#epoch = undefined;
        throw error;
      },
    );
    return this.#epoch;
  }

  /** Until the lock has answered, the refused epoch stays: without an answer nobody takes a new one. */
  async #refused(error: EpochRefused, refused: Promise<string>): Promise<void> {
    // Another loop was refused too and has dealt with it.
    const isDealtWith = () => this.#epoch !== refused || this.#over.signal.aborted;
    if (isDealtWith()) return;
    this.#asking ??= this.#stillHeld().finally(() => {
      this.#asking = undefined;
    });
    const isHeld = await this.#asking;
    if (isDealtWith()) return;
    const { log } = this.#options;
    if (isHeld) {
      log.warn({ err: error }, 'another replica wrote as leader, but the lock is ours: taking a new epoch');
      this.#epoch = undefined;
      this.nudge();
      return;
    }
    log.warn({ err: error }, 'another replica manages the pools now: this term is over');
    this.#over.abort();
  }
}
