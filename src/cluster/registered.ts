/**
 * Pods that announce themselves by their reports, for machines without Kubernetes.
 *
 * The report that finds its pod unknown registers it, whichever router it reaches: the pod's own word needs no
 * leader. The leader only judges silence: a pod that has not reported for `REGISTERED_POD_TTL` counts as not ready, so
 * without calls it goes, and with calls it keeps them until their leases run out.
 *
 * Weakness: a name is all there is to know a pod by, unless it reports a UID; two processes that report the same name
 * with different UIDs take it from each other.
 */
import type { PoolStore } from '../calls/store/pool-store.js';
import type { Clock } from '../clock.js';
import { isName } from '../config/tiers.js';
import type { ClusterPod, PodSource } from './pods.js';

export function registeredSource(pools: PoolStore, ttlMs: number, clock: Clock): PodSource {
  // A pod cannot report to routers that do not run, nor to a store that is away: silence counts from the first list.
  let firstListAt: number | undefined;
  return {
    name: 'registered',
    startOver() {
      firstListAt = undefined;
    },
    async list() {
      firstListAt ??= clock.monotonic();
      const longestMs = clock.monotonic() - firstListAt;
      const reported = await pools.reported();
      const pods = reported.map(({ name, silentMs, metadata }) => ({
        ...wishesOf(metadata),
        name,
        // Whose UID it is only the pod says, in its report: a list that is a moment old must not bring back the one before.
        uid: '',
        state: Math.min(silentMs, longestMs) > ttlMs ? ('not_ready' as const) : ('ready' as const),
        mustReport: true,
      }));
      return { pods, version: '' };
    },
  };
}

/** Our own words, but from a store that others can write to. */
function wishesOf(metadata: string | null): Pick<ClusterPod, 'tier' | 'merchant'> {
  let known: Record<string, unknown> = {};
  try {
    known = (JSON.parse(metadata ?? '{}') ?? {}) as Record<string, unknown>;
  } catch {
    // Then it is known by its name alone.
  }
  const { tier, merchant } = known;
  return {
    ...(isName(tier) ? { tier } : {}),
    ...(isName(merchant) ? { merchant } : {}),
  };
}
