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
import type { PodWishes } from '../calls/router.js';
import type { PoolStore } from '../calls/store/pool-store.js';
import { isName, type TierConfig } from '../calls/tiers.js';
import type { Clock } from '../clock.js';
import { assignmentOf, wantedPool } from '../pool/assignment.js';
import type { ClusterPod, PodSource } from './pods.js';

export async function announce(
  pools: PoolStore,
  tiers: TierConfig,
  pod: { name: string } & PodWishes,
): Promise<void> {
  const { name, uid = '', tier, merchant } = pod;
  const known: ClusterPod = {
    name,
    uid,
    state: 'ready',
    ...(tier === undefined ? {} : { tier }),
    ...(merchant === undefined ? {} : { merchant }),
    // It takes calls with the report that follows, not before: what it serves must be known first.
    mustReport: true,
  };
  await pools.register(
    '',
    [
      {
        ...known,
        pool: wantedPool(tiers, known),
        suspended: '',
        metadata: JSON.stringify({ source: 'registered', uid, tier, merchant }),
      },
    ],
    assignmentOf(tiers),
  );
}

export function registeredSource(pools: PoolStore, ttlMs: number, clock: Clock): PodSource {
  // A pod cannot report to routers that do not run: silence counts from the first list on.
  let firstListAt: number | undefined;
  return {
    name: 'registered',
    async list() {
      firstListAt ??= clock.monotonic();
      const longestMs = clock.monotonic() - firstListAt;
      const reported = await pools.reported();
      const pods = reported.map(({ name, silentMs, metadata }) => ({
        ...wishesOf(metadata),
        name,
        state: Math.min(silentMs, longestMs) > ttlMs ? ('not_ready' as const) : ('ready' as const),
        mustReport: true,
      }));
      return { pods, version: '' };
    },
  };
}

/** Our own words, but from a store that others can write to. */
function wishesOf(metadata: string | null): Pick<ClusterPod, 'uid' | 'tier' | 'merchant'> {
  let known: Record<string, unknown> = {};
  try {
    known = (JSON.parse(metadata ?? '{}') ?? {}) as Record<string, unknown>;
  } catch {
    // Then it is known by its name alone.
  }
  const { uid, tier, merchant } = known;
  return {
    // The store cannot read half a character back.
    uid: typeof uid === 'string' && !/\p{Surrogate}/u.test(uid) ? uid : '',
    ...(isName(tier) ? { tier } : {}),
    ...(isName(merchant) ? { merchant } : {}),
  };
}
