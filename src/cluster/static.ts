/** The pods of `STATIC_PODS`, always ready: for a laptop, a test, or machines without Kubernetes. */
import type { StaticPod } from '../config/config.js';
import type { ClusterPod, PodSource } from './pods.js';

export function staticSource(pods: readonly StaticPod[]): PodSource {
  const listed: ClusterPod[] = pods.map(({ name, tier, merchant }) => ({
    name,
    uid: '',
    state: 'ready',
    mustReport: false,
    ...(tier === undefined ? {} : { tier }),
    ...(merchant === undefined ? {} : { merchant }),
  }));
  return { name: 'static', list: async () => ({ pods: listed, version: '' }) };
}
