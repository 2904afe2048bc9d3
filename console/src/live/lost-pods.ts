/**
 * Pods that were removed recently. The pool of a merchant has no target, so without this list a crashed pod would
 * disappear from its picture without a trace.
 */
import type { Pod, RouterEvent } from '../types.js';

export interface LostPod {
  pod: string;
  tier: string;
  atMs: number;
}

/** Long enough for a restart, and short after an intended scale-down. */
const rememberedMs = 120_000;

export function rememberLost(
  lost: readonly LostPod[],
  pods: ReadonlyMap<string, Pod>,
  nowMs: number,
): readonly LostPod[] {
  const kept = lost.filter(({ pod, atMs }) => !pods.has(pod) && nowMs - atMs < rememberedMs);
  return kept.length === lost.length ? lost : kept;
}

/** Must run before the event is applied, which deletes the pod with its tier. */
export function lostBy({ type, pod, at }: RouterEvent, pods: ReadonlyMap<string, Pod>): LostPod[] {
  const known = type === 'pod_removed' && pod !== undefined ? pods.get(pod) : undefined;
  return known ? [{ pod: known.pod_name, tier: known.tier, atMs: Date.parse(at) }] : [];
}
