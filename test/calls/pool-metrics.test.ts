/** Series of pools: bounded, and removed with their pools. */
import { expect, it } from 'vitest';
import { countsSince, readCounts } from '../../src/calls/history/counts.js';
import { collectProcessMetrics, Metrics } from '../../src/calls/metrics.js';
import { maxSeries } from '../../src/calls/pool-metrics.js';
import type { PoolCounts, Snapshot } from '../../src/calls/store/replies.js';

const merchants = (count: number, from = 0) =>
  Array.from({ length: count }, (_, i) => `merchant:m${String(from + i).padStart(5, '0')}`);

function snapshotOf(pools: readonly string[]): Snapshot {
  const counts = { assigned: 2, available: 1, activeCalls: 1, stranded: 0, capacity: 2, unreadableKey: '' };
  const rows = pools.map((pool) => ({ pool, kind: 'exclusive', maxConcurrent: 1, ...counts }) as PoolCounts);
  return {
    nowMs: 0,
    tierVersion: 1,
    epoch: '1',
    removalsHeld: 0,
    waitingCalls: 0,
    setBack: [],
    pools: rows,
    activeCalls: 0,
  };
}

/** A call that its merchant's pool could not take, and one that it did. */
function callsOf(metrics: Metrics, pool: string): void {
  metrics.allocations.inc({ pool, status: 'success' });
  metrics.releases.inc({ pool, status: 'success' });
  metrics.noPods.inc({ chain: `${pool} pool:gold` });
  metrics.unmetDemand.inc({ tier: pool });
}

async function render(metrics: Metrics, snapshot: Snapshot | undefined): Promise<string> {
  await metrics.update(snapshot, []);
  return metrics.registry.metrics();
}

const seriesOf = (text: string, pattern: RegExp) => text.split('\n').filter((line) => pattern.test(line));

it('5,000 merchant pools have the series of 200, and the others are summed', async () => {
  const metrics = new Metrics();
  const pools = merchants(5_000);
  for (const pool of pools) callsOf(metrics, pool);
  const text = await render(metrics, snapshotOf(['pool:gold', ...pools]));
  for (const name of ['allocations_total', 'releases_total', 'pool_unmet_demand_total', 'no_pods_total']) {
    const own = seriesOf(text, new RegExp(`^smart_router_${name}\\{.*merchant:m`));
    expect([name, own.length]).toEqual([name, maxSeries]);
  }
  expect(text).toContain('smart_router_allocations_total{pool="merchant:*",status="success"} 4800');
  expect(text).toContain('smart_router_pool_assigned_pods{tier="merchant:*"} 9600');
  expect(text).toContain('smart_router_pool_assigned_pods{tier="merchant:m00000"} 2');
  expect(text).toContain('smart_router_pool_assigned_pods{tier="gold"} 2');
  expect(text.length).toBeLessThan(250_000);
});

it('series of deleted pools are removed after 60 scrapes without a change, and what they counted is kept', async () => {
  const metrics = new Metrics();
  const scrape = (pools: readonly string[]) => render(metrics, snapshotOf(['pool:gold', ...pools]));
  for (let from = 0; from < 1_000; from += 100) {
    const pools = merchants(100, from);
    for (const pool of pools) callsOf(metrics, pool);
    await scrape(pools);
  }
  const before = await readCounts(metrics);
  // One that is gone and still counts is not removed before Prometheus has seen it.
  callsOf(metrics, 'merchant:m00000');
  expect(seriesOf(await scrape([]), /allocations_total.*m00000/)).toEqual([
    'smart_router_allocations_total{pool="merchant:m00000",status="success"} 2',
  ]);
  let text = '';
  for (let i = 0; i < 61; i++) text = await scrape([]);
  expect(seriesOf(text, /merchant:m/)).toEqual([]);
  const since = countsSince(await readCounts(metrics), before);
  expect([since.allocated, since.released]).toEqual([1, 1]);
  // There is room again for pools of now.
  callsOf(metrics, 'merchant:new');
  expect(await scrape(['merchant:new'])).toContain('total{pool="merchant:new",status="success"} 1');
});

it('while the store does not answer, no counter is removed', async () => {
  const metrics = new Metrics();
  callsOf(metrics, 'merchant:acme');
  let text = '';
  for (let i = 0; i < 70; i++) text = await render(metrics, undefined);
  expect(seriesOf(text, /allocations_total.*merchant:acme/)).toHaveLength(1);
  expect(seriesOf(text, /pool_assigned_pods\{/)).toEqual([]);
});

it('every gauge says what it is for a group of workers; the default is the sum', async () => {
  const { registry } = new Metrics();
  collectProcessMetrics(registry);
  const gauges = (await registry.getMetricsAsJSON()).filter(({ type }) => String(type) === 'gauge');
  const of = (aggregator: string) =>
    gauges
      .filter((gauge) => gauge.aggregator === aggregator)
      .map(({ name }) => name.replace('smart_router_', ''));
  expect(of('sum').filter((name) => !/^(process|nodejs)_/.test(name))).toEqual([
    'requests_in_flight',
    'requests_limit',
    // Two leaders in one group must be visible, as between replicas.
    'leader_status',
  ]);
  // From the store: the same for all.
  expect(of('first').filter((name) => name !== 'nodejs_version_info')).toEqual([
    'active_calls',
    'waiting_calls',
    'removals_held',
    'pod_set_back',
    'pools_unreadable',
    'pool_available_pods',
    'pool_assigned_pods',
    'pool_capacity_calls',
    'pool_active_calls',
    'pool_stranded_pods',
  ]);
  expect(of('min')).toEqual(expect.arrayContaining(['store_up', 'loop_last_round_timestamp_seconds']));
  expect(of('max')).toEqual(
    expect.arrayContaining([
      'oldest_wait_seconds',
      'invariant_violations',
      'nodejs_eventloop_lag_p99_seconds',
    ]),
  );
  expect(of('average')).toEqual([]);
  expect(of('omit')).toEqual([]);
});
