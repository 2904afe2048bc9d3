/** A pod of the cluster in the store's words. */
import type { PodRegistration } from '../calls/store/pool-store.js';
import type { ClusterPod } from '../cluster/pods.js';
import type { TierConfig } from '../config/tiers.js';
import { wantedPool } from './assignment.js';

/** A pod that announces itself is ready as soon as it reports again, whichever router hears it; not with the next list. */
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
    // Removed, it would have to report again although it has lost nothing. One that announces itself is known by its reports.
    idleStays: mustReport && source !== 'registered',
    restarts,
    startedAt: endedAt ?? startedAt,
    ended: endedAt !== undefined,
    mustReport,
    metadata: JSON.stringify({ source, uid, tier, merchant, started_at: startedAt }),
  };
}
