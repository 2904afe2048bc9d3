/** Tier assignment: the pool a pod asks for, and the order in which the store fills pools for the others. */
import type { Assignment } from '../calls/store/pool-store.js';
import type { ClusterPod } from '../cluster/pods.js';
import { type PoolId, poolOfTier, poolsOf, type TierConfig } from '../config/tiers.js';

/** Merchant pools under their target first, then the chain's tiers, and the chain's last for the rest. */
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

/** What the pod's label or configuration asks for; an unknown tier is no wish. */
export function wantedPool(config: TierConfig, pod: ClusterPod): PoolId | undefined {
  if (pod.merchant !== undefined) return `merchant:${pod.merchant}`;
  return pod.tier === undefined ? undefined : poolOfTier(config, pod.tier);
}
