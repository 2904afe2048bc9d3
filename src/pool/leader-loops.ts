/**
 * The loops of the leader in one term: a full reconcile first, then watch, sweep, silence check, periodic reconcile and audit.
 *
 * Every write carries the epoch of the term. When the store refuses it, another replica took a newer one. A replica that
 * still holds the lock takes a newer epoch in turn (the lock decides); a replica that does not ends its term.
 */
import { once } from 'node:events';
import { EpochRefused } from '../calls/store/pool-store.js';
import { abortWith } from '../clock.js';
import { type LoopState, SupervisedLoop } from '../loop.js';
import { reportAudit } from './audit-reporter.js';
import type { LeaderOptions } from './leader-options.js';
import { PodWriter } from './pod-writer.js';
import { Reconciler } from './reconciler.js';
import { blockSilentPods, silenceIntervalMs } from './silence.js';
import { Sweeper } from './sweeper.js';
import { Watcher } from './watcher.js';

type Work = (
  epoch: string,
  signal: AbortSignal,
  alive: (counts: Record<string, number>) => void,
) => Promise<Record<string, number>>;

export class LeaderLoops {
  readonly #options: LeaderOptions;
  readonly #stillHeld: () => Promise<boolean>;
  readonly #reconcile: SupervisedLoop;
  readonly #loops: SupervisedLoop[];
  readonly #ended = new AbortController();
  #epoch: Promise<string> | undefined;
  #asking: Promise<boolean> | undefined;

  constructor(options: LeaderOptions, stillHeld: () => Promise<boolean>) {
    this.#options = options;
    this.#stillHeld = stillHeld;
    const { source, auditor, auditIntervalMs } = options;
    source.startOver?.();
    const writer = new PodWriter(options);
    const reconciler = new Reconciler(options, writer);
    const sweeper = new Sweeper(options);
    const watcher = source.watch && new Watcher(options, writer, () => this.#reconcile.nudge());
    this.#reconcile = this.#loop('reconcile', options.reconcileIntervalMs, true, (epoch, signal) =>
      reconciler.runOnce(epoch, signal, (...listed) => watcher?.listed(...listed)),
    );
    this.#loops = [
      this.#reconcile,
      this.#loop('sweep', options.cleanupIntervalMs, false, (epoch, signal) =>
        sweeper.runOnce(epoch, signal),
      ),
      this.#loop('silence', silenceIntervalMs, true, (epoch, signal) =>
        blockSilentPods(options, epoch, signal),
      ),
    ];
    if (auditor && auditIntervalMs !== undefined) {
      // Soon after the start of a term, but not before the first reconcile has repaired what it can.
      const work: Work = async (_, signal) => {
        await this.firstReconcile;
        return reportAudit(auditor, options, signal);
      };
      this.#loops.push(this.#loop('audit', auditIntervalMs, true, work));
    }
    if (watcher) this.#loops.push(this.#loop('watch', 0, true, (...args) => watcher.runOnce(...args)));
  }

  get states(): LoopState[] {
    return this.#loops.map((loop) => loop.state);
  }

  /** Resolves when the first reconcile has been tried. */
  get firstReconcile(): Promise<void> {
    return this.#reconcile.firstRound;
  }

  /** Syncs now instead of at the end of the interval. */
  nudge(): void {
    this.#options.source.startOver?.();
    this.#reconcile.nudge();
  }

  /** Runs until `signal` aborts or the store has a newer leader; resolves when all loops have ended. */
  async run(signal: AbortSignal): Promise<void> {
    abortWith(this.#ended, signal);
    if (this.#ended.signal.aborted) return;
    for (const loop of this.#loops) loop.start();
    await once(this.#ended.signal, 'abort');
    await Promise.all(this.#loops.map((loop) => loop.stop()));
  }

  #loop(name: string, intervalMs: number, runAtStart: boolean, work: Work): SupervisedLoop {
    return new SupervisedLoop({
      ...this.#options,
      name,
      intervalMs,
      runAtStart,
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
