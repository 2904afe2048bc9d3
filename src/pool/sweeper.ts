/**
 * The zombie clean-up: the last layer of recovery. It looks only at the store: calls past their lease end, pods
 * that should be available are put back with their true load, pods that should not be are taken out. It works
 * in small batches, so that no other command waits long; a batch that fails ends the round, and the next round
 * starts over. A pod or a pool with a key that was written as another type is left out and logged once: it must not
 * delay the others.
 */
import type { PoolStore, SweepPhase } from '../calls/store/pool-store.js';
import type { CallStore } from '../calls/store/store.js';
import type { Logger } from '../observe/log.js';

const phases = ['calls', 'pods', 'available'] as const;

/** So that no script holds the store for more than about 2 ms: ending a call takes about 35 us, a look at a pod 13. */
export function sweepBatchSize(phase: SweepPhase, maxConcurrent: number): number {
  if (phase === 'calls') return 25;
  return phase === 'pods' ? Math.max(5, Math.ceil(100 / Math.max(1, maxConcurrent))) : 200;
}

export interface SweepCounts extends Record<string, number> {
  pods: number;
  calls_ended: number;
  pods_put_back: number;
  pods_taken_out: number;
}

export class Sweeper {
  /** The pods and pools that the last whole round could not read, and the key of each. */
  #unreadable: ReadonlyMap<string, string> = new Map();

  constructor(
    readonly options: {
      store: CallStore;
      pools: PoolStore;
      log: Logger;
      onZombies?: (count: number) => void;
    },
  ) {}

  async runOnce(epoch: string, signal: AbortSignal): Promise<SweepCounts> {
    const { store, pools, log, onZombies } = this.options;
    const counts: SweepCounts = { pods: 0, calls_ended: 0, pods_put_back: 0, pods_taken_out: 0 };
    const unreadable = new Map<string, string>();
    for (const { pool, maxConcurrent, unreadableKey } of (await store.snapshot()).pools) {
      if (unreadableKey !== '') {
        if (this.#unreadable.get(pool) !== unreadableKey)
          log.error({ pool, key: unreadableKey }, unreadablePool(pool, unreadableKey));
        unreadable.set(pool, unreadableKey);
      }
      for (const phase of phases) {
        let cursor = '0';
        do {
          if (signal.aborted) return counts;
          const batch = await pools.sweep(epoch, pool, phase, cursor, sweepBatchSize(phase, maxConcurrent));
          cursor = batch.cursor;
          if (phase === 'pods') counts.pods += batch.lookedAt;
          counts.calls_ended += batch.callsEnded;
          counts.pods_put_back += batch.podsPutBack;
          counts.pods_taken_out += batch.podsTakenOut;
          for (const { podName, key } of batch.unreadable) {
            // Pages may repeat a pod.
            const isTold = this.#unreadable.get(podName) === key || unreadable.get(podName) === key;
            if (!isTold) log.error({ pod: podName, key }, wrongType(podName, key));
            unreadable.set(podName, key);
          }
          // Counted batch by batch: what a crash interrupts has still happened.
          const zombies = batch.callsEnded + batch.podsPutBack;
          if (zombies > 0) onZombies?.(zombies);
        } while (cursor !== '0');
      }
    }
    this.#unreadable = unreadable;
    const pools_unreadable = [...unreadable.keys()].filter((name) => name.includes(':')).length;
    if (pools_unreadable > 0) counts.pools_unreadable = pools_unreadable;
    if (unreadable.size > pools_unreadable) counts.pods_unreadable = unreadable.size - pools_unreadable;
    if (counts.calls_ended + counts.pods_put_back + counts.pods_taken_out > 0) {
      log.info(counts, 'zombies recovered');
    }
    return counts;
  }
}

function unreadablePool(pool: string, key: string): string {
  return `pods of ${pool} are not swept: key ${key} is of a wrong type; keep a copy (RENAME), and the next reconcile writes it again`;
}

function wrongType(pod: string, key: string): string {
  return `pod ${pod} takes no calls: key ${key} is of a wrong type; keep a copy (RENAME), and the sweep puts the pod back`;
}
