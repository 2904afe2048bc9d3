/** A pod of the cluster as the store registers it: its pool, and why it is suspended. */
import type { PodReport } from '../calls/router.js';
import type { Assignment, PodRegistration, PoolStore } from '../calls/store/pool-store.js';
import type { ClusterPod } from '../cluster/pods.js';
import { type PoolId, poolOfTier, poolsOf, type TierConfig } from '../config/tiers.js';

/** The order in which the store fills pools: merchant pools under their target, then the tiers of the default chain. */
export function assignmentOf(config: TierConfig): Assignment {
  const pools = poolsOf(config);
  const merchants = pools.filter(({ id }) => id.startsWith('merchant:'));
  const chain = config.defaultChain.flatMap((tier) =>
    pools.filter((pool) => pool.id === poolOfTier(config, tier)),
  );
  const last = chain.at(-1);
  if (!last) throw new Error('a tier configuration has at least one tier in its chain');
  return {
    candidates: [...merchants, ...chain].map(({ id, target }) => ({ pool: id, target })),
    last: last.id,
  };
}

/** The pool that the label or the configuration of a pod names; undefined for an unknown tier. */
export function wantedPool(config: TierConfig, pod: ClusterPod): PoolId | undefined {
  if (pod.merchant !== undefined) return `merchant:${pod.merchant}`;
  return pod.tier === undefined ? undefined : poolOfTier(config, pod.tier);
}

/** A registered pod is ready with its next report to any router, not with the next list. */
function suspensionOf(state: ClusterPod['state'], source: string): PodRegistration['suspended'] {
  if (state === 'not_ready' && source === 'registered') return 'awaiting_report';
  return state === 'not_ready' || state === 'terminating' ? state : '';
}

export function registrationOf(pod: ClusterPod, tiers: TierConfig, source: string): PodRegistration {
  const { name, uid, state, restarts, startedAt, endedAt, mustReport, tier, merchant } = pod;
  return {
    name,
    uid,
    pool: wantedPool(tiers, pod),
    suspended: suspensionOf(state, source),
    idleGoes: state === 'not_ready',
    // A removed pod would have to report again although it lost nothing. A registered pod has its reports.
    idleStays: mustReport && source !== 'registered',
    restarts,
    startedAt: endedAt ?? startedAt,
    ended: endedAt !== undefined,
    mustReport,
    metadata: JSON.stringify({ source, uid, tier, merchant, started_at: startedAt }),
  };
}

/**
 * Registers a pod that announces itself (POD_SOURCE=registered), on any router that gets its report, without an epoch.
 * The pod gets calls with its next report: which calls it serves must be known first.
 */
export async function announce(
  pools: PoolStore,
  tiers: TierConfig,
  { name, uid = '', tier, merchant }: { name: string } & PodReport,
): Promise<void> {
  const pod: ClusterPod = { name, uid, state: 'ready', tier, merchant, mustReport: true };
  await pools.register('', [registrationOf(pod, tiers, 'registered')], assignmentOf(tiers));
}
