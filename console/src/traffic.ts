/** Sums the points of the history: the time they cover, and the outcomes of calls. */
import type { History, HistoryPoint } from './types.js';

const counted = [
  'allocated',
  'no_pods',
  'errors',
  'shed',
  'waits_served',
  'waits_within_5s',
  'waits_within_20s',
  'waits_abandoned',
  'waits_expired',
] as const;
type Rates = Pick<HistoryPoint, (typeof counted)[number]>;

export function trafficOf({ points, replicas, step_seconds }: History) {
  // The newest step is not complete: its rates cover the part that every router has reported.
  const knownUntil = Math.min(...replicas.map(({ seen_at }) => Date.parse(seen_at)));
  const secondsOf = ({ at }: HistoryPoint) =>
    Math.max(0, Math.min(step_seconds, (knownUntil - Date.parse(at)) / 1000));
  const total = (rate: (point: HistoryPoint) => number) =>
    points.reduce((sum, point) => sum + rate(point) * secondsOf(point), 0);
  const sums = Object.fromEntries(counted.map((name) => [name, total((point) => point[name] ?? 0)])) as Rates;
  const unserved = unservedOf(sums);
  const waits = sums.waits_served + unserved;
  const seconds = total(() => 1);
  return {
    /** The covered time: only seconds right after a start. */
    seconds,
    allocated: Math.round(sums.allocated),
    /** The average of the covered time. */
    allocatedPerSecond: sums.allocated / seconds,
    noPods: Math.round(sums.no_pods),
    /** Rejected because a router was overloaded. */
    shed: Math.round(sums.shed),
    success: successOf(sums),
    waits: {
      served: Math.round(sums.waits_served),
      unserved: Math.round(unserved),
      /** The shares of all calls that got a pod within 5 s and 20 s; null without calls. */
      within5s: shareWithin(sums, sums.waits_within_5s),
      within20s: levelOf(sums),
      /** The share of the waits that ended without a pod; null without waits. */
      unservedShare: waits === 0 ? null : unserved / waits,
    },
  };
}

/** Waits without a pod; release 0.1.0 has none. */
export const unservedOf = ({ waits_abandoned = 0, waits_expired = 0 }: Partial<Rates>): number =>
  waits_abandoned + waits_expired;

/** The share of the calls that got a pod at once or after one of the waits in `within`. */
function shareWithin(rates: Rates, within: number): number | null {
  const { allocated, no_pods, waits_served } = rates;
  const offered = allocated + no_pods + unservedOf(rates);
  return offered === 0 ? null : (allocated - waits_served + within) / offered;
}

/** The share of the calls that got a pod within 20 s. */
export const levelOf = (rates: Rates) => shareWithin(rates, rates.waits_within_20s);

/** The share of the requests that got a pod. */
export function successOf({ allocated, no_pods, errors, shed }: Rates): number | null {
  const requested = allocated + no_pods + errors + shed;
  return requested === 0 ? null : allocated / requested;
}

/** "in 10 s", "in 3 min", "in the last hour". */
export function spanText(seconds: number): string {
  if (seconds < 120) return `in ${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  return minutes >= 60 ? 'in the last hour' : `in ${minutes} min`;
}
