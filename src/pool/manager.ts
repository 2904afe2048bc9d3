/**
 * The leader's work: a full sync first, then sweep and periodic sync as supervised loops.
 *
 * A term starts by taking an epoch from the store; every pool write carries it. When the store refuses it,
 * somebody newer leads: this one stops its pool work at once and goes on serving calls.
 */
import { EpochRefused, type PoolStore } from '../calls/store/pool-store.js';
import type { Clock } from '../clock.js';
import type { Logger } from '../observe/log.js';
import { type LoopState, SupervisedLoop } from '../supervised-loop.js';
import type { Reconciler } from './reconciler.js';
import type { Sweeper } from './sweeper.js';

export interface PoolManagerOptions {
  pools: PoolStore;
  reconciler: Reconciler;
  sweeper: Sweeper;
  clock: Clock;
  log: Logger;
  reconcileIntervalMs: number;
  cleanupIntervalMs: number;
  onCrash?: (loop: string) => void;
  onLeader?: (leading: boolean) => void;
}

export class PoolManager {
  readonly #options: PoolManagerOptions;
  readonly #loops: SupervisedLoop[];
  #epoch: string | undefined;
  #taking: Promise<string> | undefined;
  #refused = false;
  #synced = false;

  constructor(options: PoolManagerOptions) {
    this.#options = options;
    const { reconciler, sweeper } = options;
    this.#loops = [
      this.#loop('reconcile', options.reconcileIntervalMs, async (epoch, signal) => {
        const counts = await reconciler.runOnce(epoch, signal);
        this.#synced = true;
        return counts;
      }),
      this.#loop('sweep', options.cleanupIntervalMs, (epoch, signal) =>
        // Nothing is put back before the first sync has said which pods exist.
        this.#synced ? sweeper.runOnce(epoch, signal) : Promise.resolve({}),
      ),
    ];
  }

  get isLeader(): boolean {
    return this.#epoch !== undefined && !this.#refused;
  }

  get loops(): LoopState[] {
    return this.#loops.map((loop) => loop.state);
  }

  /** Resolves when the first sync has been tried: usually the pods are there then. */
  async start(): Promise<void> {
    for (const loop of this.#loops) loop.start();
    await this.#loops[0]?.firstRound;
  }

  /** The store is back, perhaps without its content: look now instead of in a minute. */
  nudge(): void {
    this.#loops[0]?.nudge();
  }

  async stop(): Promise<void> {
    await Promise.all(this.#loops.map((loop) => loop.stop()));
    this.#options.onLeader?.(false);
  }

  #loop(
    name: string,
    intervalMs: number,
    work: (epoch: string, signal: AbortSignal) => Promise<Record<string, number>>,
  ): SupervisedLoop {
    const { clock, log, onCrash } = this.#options;
    return new SupervisedLoop({
      name,
      intervalMs,
      clock,
      log,
      runAtStart: name === 'reconcile',
      ...(onCrash ? { onCrash: () => onCrash(name) } : {}),
      runOnce: async (signal) => {
        if (this.#refused) return {};
        try {
          return await work(await this.#term(), signal);
        } catch (error) {
          if (!(error instanceof EpochRefused)) throw error;
          this.#lose(error);
          return {};
        }
      },
    });
  }

  /** One epoch per term, taken with the first write, whichever loop comes first. */
  #term(): Promise<string> {
    this.#taking ??= this.#take().catch((error: unknown) => {
      this.#taking = undefined;
      throw error;
    });
    return this.#taking;
  }

  async #take(): Promise<string> {
    const epoch = await this.#options.pools.takeEpoch();
    this.#epoch = epoch;
    this.#options.log.info({ epoch }, 'leading: this replica manages the pools');
    this.#options.onLeader?.(true);
    return epoch;
  }

  #lose(error: EpochRefused): void {
    if (this.#refused) return;
    this.#refused = true;
    this.#options.log.warn(
      { err: error },
      'another replica manages the pools now: this one only serves calls',
    );
    this.#options.onLeader?.(false);
  }
}
