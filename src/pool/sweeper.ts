/**
 * The zombie sweep, the last layer of recovery. It uses only the store: it ends calls whose lease expired, makes pods
 * available that should be, with their true load, and makes unavailable those that should not be. It works in small
 * batches, so that no other command waits long; a failed batch ends the round, and the next round starts again. A pod or
 * pool with a key of a wrong type is skipped and logged once: it must not delay the others.
 */
import type { SweepPhase } from '../calls/store/pool-store.js';
import type { LeaderOptions } from './leader-options.js';

const phases = ['calls', 'pods', 'available'] as const;

/** No script may block the store for more than about 2 ms: to end a call takes about 35 us, to check a pod 13. */
export function sweepBatchSize(phase: SweepPhase, maxConcurrent: number): number {
  if (phase === 'calls') return 25;
  return phase === 'pods' ? Math.max(5, Math.ceil(100 / Math.max(1, maxConcurrent))) : 200;
}

export class Sweeper {
  /** The pods and pools that the last complete round could not read, with the key of each. */
  #unreadable: ReadonlyMap<string, string> = new Map();

  constructor(private readonly options: Pick<LeaderOptions, 'store' | 'pools' | 'log' | 'onZombies'>) {}

  async runOnce(epoch: string, signal: AbortSignal): Promise<Record<string, number>> {
    const { store, pools, log, onZombies } = this.options;
    const counts = { pods: 0, calls_ended: 0, pods_put_back: 0, pods_taken_out: 0 };
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
            const isLogged = this.#unreadable.get(podName) === key || unreadable.get(podName) === key;
            if (!isLogged) log.error({ pod: podName, key }, wrongType(podName, key));
            unreadable.set(podName, key);
          }
          // Per batch: after a crash the finished batches are counted.
          const zombies = batch.callsEnded + batch.podsPutBack;
          if (zombies > 0) onZombies?.(zombies);
        } while (cursor !== '0');
      }
    }
    this.#unreadable = unreadable;
    const pools_unreadable = [...unreadable.keys()].filter((name) => name.includes(':')).length;
    const pods_unreadable = unreadable.size - pools_unreadable;
    const result = {
      ...counts,
      ...(pools_unreadable > 0 ? { pools_unreadable } : {}),
      ...(pods_unreadable > 0 ? { pods_unreadable } : {}),
    };
    if (counts.calls_ended + counts.pods_put_back + counts.pods_taken_out > 0)
      log.info(result, 'zombies recovered');
    return result;
  }
}

function unreadablePool(pool: string, key: string): string {
  return `pods of ${pool} are not swept: key ${key} has a wrong type; keep a copy (RENAME), and the next reconcile writes it again`;
}

function wrongType(pod: string, key: string): string {
  return `pod ${pod} gets no calls: key ${key} has a wrong type; keep a copy (RENAME), and the sweep frees the pod`;
}
