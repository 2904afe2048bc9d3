/**
 * Pods that announce themselves with their reports, for machines without Kubernetes.
 *
 * The first report of a pod registers it, on any router; no leader is needed. The leader only handles pods that stop
 * reporting: after `REGISTERED_POD_TTL` a pod counts as not ready. Without calls it is removed; with calls it keeps them
 * until their leases expire.
 *
 * Weakness: only its name identifies a pod, unless it reports a UID; two processes that report the same name with
 * different UIDs replace each other.
 */
import type { PoolStore } from '../calls/store/pool-store.js';
import type { Clock } from '../clock.js';
import { isName } from '../config/tiers.js';
import type { ClusterPod, PodSource } from './pods.js';

export function registeredSource(pools: PoolStore, ttlMs: number, clock: Clock): PodSource {
  // A pod cannot report while routers or the store are down: the time counts from the first list.
  let firstListAt: number | undefined;
  return {
    name: 'registered',
    startOver() {
      firstListAt = undefined;
    },
    async list() {
      firstListAt ??= clock.monotonic();
      const maxSilentMs = clock.monotonic() - firstListAt;
      const reported = await pools.reported();
      const pods = reported.map(({ name, silentMs, metadata }) => ({
        ...poolOf(metadata),
        name,
        // Only the report of the pod sets its UID: an outdated list must not restore the previous one.
        uid: '',
        state: Math.min(silentMs, maxSilentMs) > ttlMs ? ('not_ready' as const) : ('ready' as const),
        mustReport: true,
      }));
      return { pods, version: '' };
    },
  };
}

/** Written by a router, but the store may have been edited. */
function poolOf(metadata: string | null): Pick<ClusterPod, 'tier' | 'merchant'> {
  let known: Record<string, unknown> = {};
  try {
    known = (JSON.parse(metadata ?? '{}') ?? {}) as Record<string, unknown>;
  } catch {
    // Then only its name is used.
  }
  const { tier, merchant } = known;
  return { tier: isName(tier) ? tier : undefined, merchant: isName(merchant) ? merchant : undefined };
}
