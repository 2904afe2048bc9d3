/** Sums the points of the history: the time they cover, and the outcomes of calls. */
import type { History, HistoryPoint } from './types.js';

export interface Traffic {
  /** The covered time: only seconds right after a start. */
  seconds: number;
  allocated: number;
  noPods: number;
  /** Rejected because a router was overloaded. */
  shed: number;
  /** The share of requests that got a pod; null without requests. */
  success: number | null;
  waits: Waits;
}

export interface Waits {
  served: number;
  /** Abandoned or expired. */
  unserved: number;
  /** The shares of all calls that got a pod within 5 s and 20 s; null without calls. */
  within5s: number | null;
  within20s: number | null;
  /** The share of the waits that ended without a pod; null without waits. */
  unservedShare: number | null;
}

export function trafficOf({ points, replicas, step_seconds }: History): Traffic {
  // The newest step is not complete: its rates cover the part that every router has reported.
  const knownUntil = Math.min(...replicas.map(({ seen_at }) => Date.parse(seen_at)));
  const secondsOf = ({ at }: HistoryPoint) =>
    Math.max(0, Math.min(step_seconds, (knownUntil - Date.parse(at)) / 1000));
  const total = (rate: (point: HistoryPoint) => number) =>
    points.reduce((sum, point) => sum + rate(point) * secondsOf(point), 0);
  const [allocated, noPods, shed] = [
    total((p) => p.allocated),
    total((p) => p.no_pods),
    total((p) => p.shed),
  ];
  const requested = allocated + noPods + shed + total((p) => p.errors);
  const served = total((p) => p.waits_served);
  const unserved = total(unservedOf);
  const offered = allocated + noPods + unserved;
  const waits = served + unserved;
  const level = (within: number) => (offered === 0 ? null : (allocated - served + within) / offered);
  return {
    seconds: total(() => 1),
    allocated: Math.round(allocated),
    noPods: Math.round(noPods),
    shed: Math.round(shed),
    success: requested === 0 ? null : allocated / requested,
    waits: {
      served: Math.round(served),
      unserved: Math.round(unserved),
      within5s: level(total((p) => p.waits_within_5s)),
      within20s: level(total((p) => p.waits_within_20s)),
      unservedShare: waits === 0 ? null : unserved / waits,
    },
  };
}

/** Waits without a pod; an older router has none. */
export const unservedOf = ({ waits_abandoned = 0, waits_expired = 0 }: Partial<HistoryPoint>): number =>
  waits_abandoned + waits_expired;

/** The share of the calls of one point that got a pod within 20 s. */
export function levelOf(point: HistoryPoint): number | null {
  const { allocated, no_pods, waits_served, waits_within_20s } = point;
  const offered = allocated + no_pods + unservedOf(point);
  return offered === 0 ? null : (allocated - waits_served + waits_within_20s) / offered;
}

/** The success rate of one point. */
export function successOf({ allocated, no_pods, errors, shed }: HistoryPoint): number | null {
  const requested = allocated + no_pods + errors + shed;
  return requested === 0 ? null : allocated / requested;
}

/** "in 10 s", "in 3 min", "in the last hour". */
export function spanText(seconds: number): string {
  if (seconds < 120) return `in ${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  return minutes >= 60 ? 'in the last hour' : `in ${minutes} min`;
}
