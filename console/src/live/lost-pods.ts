/**
 * Pods that left a moment ago. A pool of a merchant has no target that would say that one is missing: without this a
 * pod that crashed would leave no trace in its picture.
 */
import type { Pod, RouterEvent } from '../types.js';

export interface LostPod {
  pod: string;
  tier: string;
  atMs: number;
}

/** A container that starts again is back by then; whoever scaled down on purpose is not reminded of it for long. */
const rememberedMs = 120_000;

export function rememberLost(
  lost: readonly LostPod[],
  pods: ReadonlyMap<string, Pod>,
  nowMs: number,
): readonly LostPod[] {
  const kept = lost.filter(({ pod, atMs }) => !pods.has(pod) && nowMs - atMs < rememberedMs);
  return kept.length === lost.length ? lost : kept;
}

/** To be asked before the event is applied: afterwards nobody knows where the pod was. */
export function lostBy({ type, pod, at }: RouterEvent, pods: ReadonlyMap<string, Pod>): LostPod[] {
  const known = type === 'pod_removed' && pod !== undefined ? pods.get(pod) : undefined;
  return known ? [{ pod: known.pod_name, tier: known.tier, atMs: Date.parse(at) }] : [];
}
