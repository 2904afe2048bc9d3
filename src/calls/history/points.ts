/**
 * Turns the rows of all replicas into points in time. Replicas do not write in step, so each row is spread evenly over
 * the time that it covers: two rows of a replica in one step make no peak, and neither does the row after an outage of
 * the store, which covers all of it. The newest step is left out until every live replica has written a row for it.
 */
import { addCounts, noCounts, plainCounts, quantileMs, type RecordCounts, recordCounts } from './counts.js';
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

/** Rates per second, gauges, and percentiles of the time of an allocate. */
export type Point = { at: string; p50_ms: number | null; p99_ms: number | null } & Record<RateName, number> &
  Record<keyof Gauges, number | null> & { records: Record<string, RecordCounts> };

type RateName = Exclude<(typeof plainCounts)[number], 'full'>;

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
const roundedAll = <Name extends string>(rates: Record<Name, number>, names: readonly Name[]) =>
  Object.fromEntries(names.map((name) => [name, rounded(rates[name])])) as Record<Name, number>;
const rateNames = plainCounts.filter((name) => name !== 'full');

function pointOf(startMs: number, { rates, gauges }: Step): Point {
  const shown = gaugeNames.map((name) => [name, gauges?.[name] ?? null]);
  const records = [...rates.records].map(([workflow, of]) => [workflow, roundedAll(of, recordCounts)]);
  return {
    at: new Date(startMs).toISOString(),
    ...roundedAll(rates, rateNames),
    p50_ms: quantileMs(rates.latency, 0.5),
    p99_ms: quantileMs(rates.latency, 0.99),
    ...(Object.fromEntries(shown) as Record<keyof Gauges, number | null>),
    records: Object.fromEntries(records) as Point['records'],
  };
}
