/**
 * From rows of all replicas to points in time. Rows do not come in step: each is spread evenly over the time that it is
 * about, so a point is no higher because two rows of a replica happened to fall into it, and an outage of the store,
 * after which one row covers all of it, is no spike. A point that a living replica has not told of yet is not shown, or
 * the newest would always be too low.
 */
import { noCounts, plainCounts, quantileMs, type RecordCounts } from './history-counts.js';
import type { Gauges, WrittenRow } from './history-rows.js';

/** A replica that wrote nothing for so long is gone. */
export const seenWithinMs = 30_000;

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
  recovered: number;
  lost: number;
  records: Record<string, RecordCounts>;
}

/** The last row of each, by name. */
export function livingOf(rows: readonly WrittenRow[], nowMs: number): Map<string, WrittenRow> {
  const living = new Map<string, WrittenRow>();
  for (const row of rows) if (nowMs - row.atMs <= seenWithinMs) living.set(row.name, row);
  return living;
}

export function replicasOf(living: ReadonlyMap<string, WrittenRow>): Replica[] {
  return [...living.values()]
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

/** `rows` oldest first, without doubles. */
export function pointsOf(
  rows: readonly WrittenRow[],
  living: ReadonlyMap<string, WrittenRow>,
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
    const knownUntilMs = living.get(row.name)?.atMs ?? Number.POSITIVE_INFINITY;
    for (let start = startOf(Math.max(fromMs, sinceMs)); start < row.atMs; start += stepMs) {
      const share = (Math.min(row.atMs, start + stepMs) - Math.max(fromMs, start)) / row.ms;
      const seconds = (Math.min(start + stepMs, knownUntilMs) - start) / 1000;
      if (share > 0 && seconds > 0) add(stepAt(start).rates, row, share, seconds);
    }
    const step = stepAt(startOf(row.atMs - 1));
    step.gauges = highest(step.gauges, row.gauges);
  }
  fillGauges(rows, steps, stepMs);
  const untilMs = Math.min(...[...living.values()].map(({ atMs }) => atMs));
  return [...steps]
    .filter(([start]) => start >= startOf(sinceMs) && start < untilMs)
    .sort(([a], [b]) => a - b)
    .map(([start, step]) => show(start, step));
}

/** The part of a row that falls into a step, as rates over the part of the step that its replica has told of. */
function add(rates: Step['rates'], { counts }: WrittenRow, share: number, seconds: number): void {
  const factor = share / seconds;
  for (const name of plainCounts) rates[name] += counts[name] * factor;
  for (const [bound, count] of counts.latency)
    rates.latency.set(bound, (rates.latency.get(bound) ?? 0) + count * share);
  for (const [workflow, { completed, failed, recovered }] of counts.records) {
    const sum = rates.records.get(workflow) ?? { completed: 0, failed: 0, recovered: 0 };
    sum.completed += completed * factor;
    sum.failed += failed * factor;
    sum.recovered += recovered * factor;
    rates.records.set(workflow, sum);
  }
}

/** Two rows may stand just before and just after a step: what the later one saw holds for it too, unless it comes late. */
function fillGauges(rows: readonly WrittenRow[], steps: ReadonlyMap<number, Step>, stepMs: number): void {
  for (const { atMs, ms, gauges } of rows) {
    if (ms > 1.5 * stepMs) continue;
    const before = steps.get(Math.floor((atMs - 1) / stepMs) * stepMs - stepMs);
    if (before) before.gauges ??= gauges;
  }
}

function highest(a: Gauges | undefined, b: Gauges): Gauges {
  if (!a) return b;
  return {
    activeCalls: Math.max(a.activeCalls, b.activeCalls),
    available: Math.max(a.available, b.available),
    assigned: Math.max(a.assigned, b.assigned),
    capacity: Math.max(a.capacity, b.capacity),
  };
}

const rounded = (rate: number) => Math.round(rate * 1000) / 1000;

function show(startMs: number, { rates, gauges }: Step): Point {
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
    recovered: rounded(rates.recovered),
    lost: rounded(rates.lost),
    records: Object.fromEntries(records) as Point['records'],
  };
}
