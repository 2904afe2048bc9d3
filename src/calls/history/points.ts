/**
 * Turns the rows of all replicas into points in time. Replicas do not write in step, so each row is spread evenly over
 * the time that it covers: two rows of a replica in one step make no peak, and neither does the row after an outage of
 * the store, which covers all of it. The newest step is left out until every live replica has written a row for it.
 */
import { addCounts, noCounts, quantileMs, type RecordCounts } from './counts.js';
import { type Gauges, gaugeNames, type WrittenRow } from './rows.js';

/** A replica without a row for so long is not listed. */
export const liveMs = 30_000;

export interface Replica {
  name: string;
  version: string;
  is_leader: boolean;
  started_at: string;
  seen_at: string;
}

export interface Point {
  at: string;
  allocated: number;
  released: number;
  no_pods: number;
  errors: number;
  shed: number;
  p50_ms: number | null;
  p99_ms: number | null;
  active_calls: number | null;
  available: number | null;
  assigned: number | null;
  capacity: number | null;
  waiting: number | null;
  recovered: number;
  lost: number;
  /** Waits per second: those that got a pod, how many of these within 5 s and 20 s, and those that ended without one. */
  waits_served: number;
  waits_within_5s: number;
  waits_within_20s: number;
  waits_abandoned: number;
  waits_expired: number;
  records: Record<string, RecordCounts>;
}

/** The last row of each live replica, by name. */
export function liveRows(rows: readonly WrittenRow[], nowMs: number): Map<string, WrittenRow> {
  return new Map(rows.filter(({ atMs }) => nowMs - atMs <= liveMs).map((row) => [row.name, row]));
}

export function replicasOf(live: ReadonlyMap<string, WrittenRow>): Replica[] {
  return [...live.values()]
    .sort((a, b) => (a.name < b.name ? -1 : 1))
    .map(({ name, version, isLeader, startedAtMs, atMs }) => ({
      name,
      version,
      is_leader: isLeader,
      started_at: new Date(startedAtMs).toISOString(),
      seen_at: new Date(atMs).toISOString(),
    }));
}

interface Step {
  rates: ReturnType<typeof noCounts>;
  gauges: Gauges | undefined;
}

/** `rows` oldest first, without duplicates. */
export function pointsOf(
  rows: readonly WrittenRow[],
  live: ReadonlyMap<string, WrittenRow>,
  sinceMs: number,
  stepMs: number,
): Point[] {
  const steps = new Map<number, Step>();
  const stepAt = (startMs: number): Step => {
    const found = steps.get(startMs) ?? { rates: noCounts(), gauges: undefined };
    steps.set(startMs, found);
    return found;
  };
  const startOf = (ms: number) => Math.floor(ms / stepMs) * stepMs;
  for (const row of rows) {
    const fromMs = row.atMs - row.ms;
    const coveredUntilMs = live.get(row.name)?.atMs ?? Number.POSITIVE_INFINITY;
    for (let start = startOf(Math.max(fromMs, sinceMs)); start < row.atMs; start += stepMs) {
      const share = (Math.min(row.atMs, start + stepMs) - Math.max(fromMs, start)) / row.ms;
      // Rates refer to the part of the step that the replica has covered.
      const seconds = (Math.min(start + stepMs, coveredUntilMs) - start) / 1000;
      if (share > 0 && seconds > 0) addCounts(stepAt(start).rates, row.counts, share / seconds, share);
    }
    const step = stepAt(startOf(row.atMs - 1));
    step.gauges = highest(step.gauges, row.gauges);
  }
  fillGauges(rows, steps, stepMs);
  const untilMs = Math.min(...[...live.values()].map(({ atMs }) => atMs));
  return [...steps]
    .filter(([start]) => start >= startOf(sinceMs) && start < untilMs)
    .sort(([a], [b]) => a - b)
    .map(([start, step]) => pointOf(start, step));
}

/** A step between two rows takes the gauges of the later row, unless that row is late. */
function fillGauges(rows: readonly WrittenRow[], steps: ReadonlyMap<number, Step>, stepMs: number): void {
  for (const { atMs, ms, gauges } of rows) {
    if (ms > 1.5 * stepMs) continue;
    const before = steps.get(Math.floor((atMs - 1) / stepMs) * stepMs - stepMs);
    if (before) before.gauges ??= gauges;
  }
}

function highest(a: Gauges | undefined, b: Gauges): Gauges {
  if (!a) return b;
  return Object.fromEntries(gaugeNames.map((name) => [name, Math.max(a[name], b[name])])) as Gauges;
}

const rounded = (rate: number) => Math.round(rate * 1000) / 1000;

function pointOf(startMs: number, { rates, gauges }: Step): Point {
  const records = [...rates.records].map(([workflow, { completed, failed, recovered }]) => [
    workflow,
    { completed: rounded(completed), failed: rounded(failed), recovered: rounded(recovered) },
  ]);
  return {
    at: new Date(startMs).toISOString(),
    allocated: rounded(rates.allocated),
    released: rounded(rates.released),
    no_pods: rounded(rates.noPods),
    errors: rounded(rates.errors),
    shed: rounded(rates.shed),
    p50_ms: quantileMs(rates.latency, 0.5),
    p99_ms: quantileMs(rates.latency, 0.99),
    active_calls: gauges?.activeCalls ?? null,
    available: gauges?.available ?? null,
    assigned: gauges?.assigned ?? null,
    capacity: gauges?.capacity ?? null,
    waiting: gauges?.waiting ?? null,
    recovered: rounded(rates.recovered),
    lost: rounded(rates.lost),
    waits_served: rounded(rates.waitsServed),
    waits_within_5s: rounded(rates.waitsWithin5s),
    waits_within_20s: rounded(rates.waitsWithin20s),
    waits_abandoned: rounded(rates.waitsAbandoned),
    waits_expired: rounded(rates.waitsExpired),
    records: Object.fromEntries(records) as Point['records'],
  };
}
