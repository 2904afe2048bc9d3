/**
 * What this replica has counted since it started, read from its own metrics: nothing is counted a second time, so
 * allocate costs what it did before.
 */
import type { Metrics } from './metrics.js';

export interface RecordCounts {
  completed: number;
  failed: number;
  recovered: number;
}

export interface Counts {
  allocated: number;
  released: number;
  noPods: number;
  errors: number;
  recovered: number;
  lost: number;
  /** Calls that were refused because there was too much to do: they never came as far as an allocation. */
  shed: number;
  /** Store operations refused because Redis is out of memory. */
  full: number;
  /** Times of allocate: upper bound in seconds (Infinity for the last) to how many were below it and not below the one before. */
  latency: Map<number, number>;
  records: Map<string, RecordCounts>;
}

/** The fields that are plain numbers. Rows have them in this order: a new one comes last. */
export const plainCounts = [
  'allocated',
  'released',
  'noPods',
  'errors',
  'recovered',
  'lost',
  'shed',
  'full',
] as const;

interface Sample {
  value: number;
  metricName?: string;
  labels: Partial<Record<string, string | number>>;
}

export function noCounts(): Counts {
  return {
    allocated: 0,
    released: 0,
    noPods: 0,
    errors: 0,
    recovered: 0,
    lost: 0,
    shed: 0,
    full: 0,
    latency: new Map(),
    records: new Map(),
  };
}

export async function readCounts({ registry, pools }: Pick<Metrics, 'registry' | 'pools'>): Promise<Counts> {
  const counts = noCounts();
  const each = async (name: string, add: (sample: Sample) => void) => {
    const found = await registry.getSingleMetric(name)?.get();
    for (const sample of (found?.values ?? []) as Sample[]) add(sample);
    // What series of pools that no longer exist had counted has still happened.
    const removed = new Map(Object.entries(pools.removed)).get(name);
    for (const [status, value] of removed ?? []) add({ labels: { status }, value });
  };
  await each('smart_router_allocations_total', ({ labels, value }) => {
    if (labels.status === 'success') counts.allocated += value;
    if (labels.status === 'no_pods') counts.noPods += value;
    if (labels.status === 'error') counts.errors += value;
  });
  await each('smart_router_releases_total', ({ labels, value }) => {
    if (['success', 'draining', 'caller_gone'].includes(String(labels.status))) counts.released += value;
    if (labels.status === 'error') counts.errors += value;
  });
  await each('smart_router_zombies_recovered_total', ({ value }) => {
    counts.recovered += value;
  });
  await each('smart_router_calls_lost_total', ({ value }) => {
    counts.lost += value;
  });
  await each('smart_router_requests_shed_total', ({ labels, value }) => {
    // Whoever else was refused has no call that failed.
    if (labels.kind === 'call') counts.shed += value;
  });
  await each('smart_router_store_full_total', ({ value }) => {
    counts.full += value;
  });
  const below = new Map<number, number>();
  await each('smart_router_allocate_duration_seconds', ({ metricName, labels, value }) => {
    if (!metricName?.endsWith('_bucket') || labels.status === 'error') return;
    const bound = labels.le === '+Inf' ? Number.POSITIVE_INFINITY : Number(labels.le);
    below.set(bound, (below.get(bound) ?? 0) + value);
  });
  let before = 0;
  for (const [bound, count] of [...below].sort(([a], [b]) => a - b)) {
    counts.latency.set(bound, count - before);
    before = count;
  }
  await each('smart_router_records_finished_total', ({ labels, value }) => {
    const of = recordsOf(counts, labels.workflow);
    if (labels.outcome === 'completed') of.completed += value;
    if (labels.outcome === 'failed') of.failed += value;
  });
  await each('smart_router_records_resets_total', ({ labels, value }) => {
    // Those that wait for a person have not come back.
    if (labels.outcome !== 'held') recordsOf(counts, labels.workflow).recovered += value;
  });
  return counts;
}

function recordsOf(counts: Counts, workflow: string | number | undefined): RecordCounts {
  const name = String(workflow);
  const found = counts.records.get(name) ?? { completed: 0, failed: 0, recovered: 0 };
  counts.records.set(name, found);
  return found;
}

/** What has been added since `before`. */
export function countsSince(now: Counts, before: Counts): Counts {
  const result = noCounts();
  for (const name of plainCounts) result[name] = now[name] - before[name];
  for (const [bound, count] of now.latency)
    result.latency.set(bound, count - (before.latency.get(bound) ?? 0));
  for (const [workflow, { completed, failed, recovered }] of now.records) {
    const was = before.records.get(workflow);
    result.records.set(workflow, {
      completed: completed - (was?.completed ?? 0),
      failed: failed - (was?.failed ?? 0),
      recovered: recovered - (was?.recovered ?? 0),
    });
  }
  return result;
}

/**
 * As Prometheus does it: within a bucket times are taken as evenly spread, and what is beyond the last bound counts as
 * the last bound. In milliseconds; null of nothing.
 */
export function quantileMs(latency: ReadonlyMap<number, number>, quantile: number): number | null {
  const buckets = [...latency].sort(([a], [b]) => a - b);
  const total = buckets.reduce((sum, [, count]) => sum + count, 0);
  if (total <= 0) return null;
  let seen = 0;
  let lower = 0;
  for (const [upper, count] of buckets) {
    if (count > 0 && seen + count >= quantile * total) {
      const seconds =
        upper === Number.POSITIVE_INFINITY
          ? lower
          : lower + (upper - lower) * Math.min(1, (quantile * total - seen) / count);
      return Math.round(seconds * 100_000) / 100;
    }
    seen += count;
    if (upper !== Number.POSITIVE_INFINITY) lower = upper;
  }
  return Math.round(lower * 100_000) / 100;
}
