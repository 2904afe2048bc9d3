/**
 * The counters of this replica since its start, read from its metrics: nothing is counted twice, and allocate costs
 * nothing more.
 */
import type { Metrics } from '../metrics.js';

/** The counters that are plain numbers, with their names in the API. Rows have them in this order: add a new one at the end. */
export const plainCounts = [
  'allocated',
  'released',
  'no_pods',
  'errors',
  'recovered',
  'lost',
  /** Calls rejected for overload, before an allocation. */
  'shed',
  /** Store operations rejected because Redis is out of memory. */
  'full',
  /** Waits for a pod: those that got one, how many of these within 5 s and 20 s, and those that ended without one. */
  'waits_served',
  'waits_within_5s',
  'waits_within_20s',
  'waits_abandoned',
  'waits_expired',
] as const;
type PlainCount = (typeof plainCounts)[number];
/** Rows of version 0.1.0 end here. */
export const firstPlainCounts = 8;
export const recordCounts = ['completed', 'failed', 'recovered'] as const;

export type RecordCounts = Record<(typeof recordCounts)[number], number>;
export type Counts = Record<PlainCount, number> & {
  /** Durations of allocate: calls by upper bound of the bucket in seconds (Infinity for the last). */
  latency: Map<number, number>;
  records: Map<string, RecordCounts>;
};

interface Sample {
  value: number;
  metricName?: string;
  labels: Partial<Record<string, string | number>>;
}

const zeros = Object.fromEntries(plainCounts.map((name) => [name, 0])) as Record<PlainCount, number>;

export const noCounts = (): Counts => ({ ...zeros, latency: new Map(), records: new Map() });

/** Adds `counts` times `factor` to `sum`; `latencyFactor` applies to the buckets. */
export function addCounts(sum: Counts, counts: Counts, factor: number, latencyFactor = factor): void {
  for (const name of plainCounts) sum[name] += counts[name] * factor;
  for (const [bound, count] of counts.latency)
    sum.latency.set(bound, (sum.latency.get(bound) ?? 0) + count * latencyFactor);
  for (const [workflow, of] of counts.records) {
    const total = recordsOf(sum, workflow);
    for (const name of recordCounts) total[name] += of[name] * factor;
  }
}

export function countsSince(now: Counts, before: Counts): Counts {
  const result = noCounts();
  addCounts(result, now, 1);
  addCounts(result, before, -1);
  return result;
}

/** A count is the sum of the samples of a metric, or of those where a label has one of these values. */
const sources: readonly (readonly [
  PlainCount,
  metric: string,
  label?: string,
  ...values: (string | number)[],
])[] = [
  ['allocated', 'smart_router_allocations_total', 'status', 'success'],
  ['no_pods', 'smart_router_allocations_total', 'status', 'no_pods', 'queue_full'],
  ['errors', 'smart_router_allocations_total', 'status', 'error'],
  ['released', 'smart_router_releases_total', 'status', 'success', 'draining', 'caller_gone'],
  ['errors', 'smart_router_releases_total', 'status', 'error'],
  ['recovered', 'smart_router_zombies_recovered_total'],
  ['lost', 'smart_router_calls_lost_total'],
  ['full', 'smart_router_store_full_total'],
  // Other rejected requests are not failed calls.
  ['shed', 'smart_router_requests_shed_total', 'kind', 'call'],
  ['waits_served', 'smart_router_waits_total', 'outcome', 'served'],
  ['waits_abandoned', 'smart_router_waits_total', 'outcome', 'abandoned'],
  ['waits_expired', 'smart_router_waits_total', 'outcome', 'expired'],
  ['waits_within_5s', 'smart_router_wait_duration_seconds', 'le', 5],
  ['waits_within_20s', 'smart_router_wait_duration_seconds', 'le', 20],
];

export async function readCounts({ registry, pools }: Pick<Metrics, 'registry' | 'pools'>): Promise<Counts> {
  const counts = noCounts();
  const each = async (name: string, add: (sample: Sample) => void) => {
    const found = await registry.getSingleMetric(name)?.get();
    for (const sample of (found?.values ?? []) as Sample[]) add(sample);
    // The counts of removed series, of pools that no longer exist, still happened.
    const removed = new Map(Object.entries(pools.removed)).get(name);
    for (const [status, value] of removed ?? []) add({ labels: { status }, value });
  };
  for (const [into, name, label, ...values] of sources) {
    await each(name, ({ labels, value }) => {
      if (label === undefined || values.includes(labels[label] ?? '')) counts[into] += value;
    });
  }
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
    // A held record waits for an operator: it is not recovered.
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

/**
 * As Prometheus computes it: values are spread evenly within a bucket, and values above the last bound count as that
 * bound. In milliseconds; null without values.
 */
export function quantileMs(latency: ReadonlyMap<number, number>, quantile: number): number | null {
  const buckets = [...latency].sort(([a], [b]) => a - b);
  const total = buckets.reduce((sum, [, count]) => sum + count, 0);
  if (total <= 0) return null;
  const roundedMs = (seconds: number) => Math.round(seconds * 100_000) / 100;
  let seen = 0;
  let lower = 0;
  for (const [upper, count] of buckets) {
    if (upper === Number.POSITIVE_INFINITY) break;
    if (count > 0 && seen + count >= quantile * total)
      return roundedMs(lower + (upper - lower) * Math.min(1, (quantile * total - seen) / count));
    seen += count;
    lower = upper;
  }
  return roundedMs(lower);
}
