/** What the points of the history say together: how many calls in which time, and what became of them. */
import type { History, HistoryPoint } from './shapes.js';

type Pick = (point: HistoryPoint) => number | null | undefined;

export interface Traffic {
  /** The time that is known: right after a start that is seconds. */
  seconds: number;
  allocated: number;
  noPods: number;
  /** Refused because a router had more to do than it can. */
  shed: number;
  /** Of the calls that asked, how many got a pod; null while nobody has asked. */
  success: number | null;
}

export function trafficOf({ points, replicas, step_seconds }: History): Traffic {
  // The newest step has begun, and is not over: its rates are of the part that every router has told of.
  const knownUntil = Math.min(...replicas.map(({ seen_at }) => Date.parse(seen_at)));
  const secondsOf = ({ at }: HistoryPoint) =>
    Math.max(0, Math.min(step_seconds, (knownUntil - Date.parse(at)) / 1000));
  const total = (pick: Pick) => points.reduce((sum, point) => sum + (pick(point) ?? 0) * secondsOf(point), 0);
  const [allocated, noPods, shed] = [
    total((p) => p.allocated),
    total((p) => p.no_pods),
    total((p) => p.shed),
  ];
  const asked = allocated + noPods + shed + total((p) => p.errors);
  return {
    seconds: total(() => 1),
    allocated: Math.round(allocated),
    noPods: Math.round(noPods),
    shed: Math.round(shed),
    success: asked === 0 ? null : allocated / asked,
  };
}

/** The same of one point. */
export function successOf({ allocated, no_pods, errors, shed }: HistoryPoint): number | null {
  const failed = (no_pods ?? 0) + (errors ?? 0) + (shed ?? 0);
  const asked = (allocated ?? 0) + failed;
  return asked === 0 ? null : (allocated ?? 0) / asked;
}

/** "in 10 s", "in 3 min", "in the last hour". */
export function spanText(seconds: number): string {
  if (seconds < 120) return `in ${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  return minutes >= 60 ? 'in the last hour' : `in ${minutes} min`;
}
