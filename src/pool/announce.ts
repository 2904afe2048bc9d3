/**
 * A pod that announces itself (POD_SOURCE=registered): registered by whichever router its report reaches, without an
 * epoch, because it is the pod's own word and no leader's. It takes calls with the report that follows, not before:
 * what it serves must be known first.
 */
import type { PodWishes } from '../calls/router.js';
import type { PoolStore } from '../calls/store/pool-store.js';
import type { ClusterPod } from '../cluster/pods.js';
import type { TierConfig } from '../config/tiers.js';
import { assignmentOf } from './assignment.js';
import { registrationOf } from './registration.js';

export async function announce(
  pools: PoolStore,
  tiers: TierConfig,
  { name, uid = '', tier, merchant }: { name: string } & PodWishes,
): Promise<void> {
  const pod: ClusterPod = {
    name,
    uid,
    state: 'ready',
    ...(tier === undefined ? {} : { tier }),
    ...(merchant === undefined ? {} : { merchant }),
    mustReport: true,
  };
  await pools.register('', [registrationOf(pod, tiers, 'registered')], assignmentOf(tiers));
}
