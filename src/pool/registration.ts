/** A pod of the cluster in the store's words. */
import type { PodRegistration } from '../calls/store/pool-store.js';
import type { TierConfig } from '../calls/tiers.js';
import type { ClusterPod } from '../cluster/pods.js';
import { wantedPool } from './assignment.js';

export function registrationOf(pod: ClusterPod, tiers: TierConfig, source: string): PodRegistration {
  const { name, uid, state, restarts, startedAt, mustReport, tier, merchant } = pod;
  return {
    name,
    uid,
    pool: wantedPool(tiers, pod),
    suspended: state === 'not_ready' || state === 'terminating' ? state : '',
    idleGoes: state === 'not_ready',
    restarts,
    startedAt,
    mustReport,
    metadata: JSON.stringify({ source, uid, tier, merchant }),
  };
}
