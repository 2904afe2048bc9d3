/**
 * Blocks pods that stopped reporting. A node that lost power attracts calls until Kubernetes notices, because every failed
 * call frees its pod for the next one. The store decides in one step per batch which pods are silent and how many of a
 * pool may be blocked (block_silent.lua); their next report unblocks them (report.lua). A round that fails has blocked
 * some of them, and the next round continues. The same round ends the time of pods that are set back (lib/flapping.lua).
 *
 * Weakness: a pod that never names its report interval is never silent.
 */
import type { LeaderOptions } from './leader-options.js';

export const silenceIntervalMs = 5000;
/** A pod takes the store about 20 us. */
const batchSize = 100;

export async function blockSilentPods(
  { pools, log, onSilent }: Pick<LeaderOptions, 'pools' | 'log' | 'onSilent'>,
  epoch: string,
  signal: AbortSignal,
): Promise<Record<string, number>> {
  const counts = { silent_pods: 0, pods_blocked: 0, pods_cooled_off: 0 };
  let isDone = false;
  for (let offset = 0; !isDone && !signal.aborted; ) {
    const { lookedAt, left, blocked } = await pools.blockSilent(epoch, offset, batchSize);
    isDone = lookedAt < batchSize;
    offset += left;
    counts.silent_pods += lookedAt;
    counts.pods_blocked += blocked.length;
    if (blocked.length > 0) {
      log.warn({ pods: blocked }, 'pods blocked: no report for three of their intervals');
      onSilent?.(blocked);
    }
  }
  for (let ended = batchSize; ended === batchSize && !signal.aborted; ) {
    ended = await pools.endFlapping(epoch, batchSize);
    counts.pods_cooled_off += ended;
  }
  return counts;
}
