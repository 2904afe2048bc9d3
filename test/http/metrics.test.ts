/** What Prometheus sees: every metric by name, counters that move as they should, gauges that never lie. */
import { execFileSync } from 'node:child_process';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { describeOneEngine, findOnPath } from '../support/engines.js';
import { startTestRouter, type TestRouter } from '../support/router.js';
import { until } from '../support/until.js';

const fromTheSeeds = {
  http_request_duration_seconds: ['method', 'endpoint', 'status'],
  http_requests_total: ['method', 'endpoint', 'status'],
  smart_router_allocations_total: ['pool', 'status'],
  smart_router_releases_total: ['pool', 'status'],
  smart_router_active_calls: [],
  smart_router_pool_available_pods: ['tier'],
  smart_router_pool_assigned_pods: ['tier'],
  smart_router_leader_status: [],
  smart_router_panics_recovered_total: [],
  smart_router_drains_total: [],
  smart_router_zombies_recovered_total: [],
};
const ours = {
  smart_router_requests_in_flight: [],
  smart_router_requests_limit: [],
  smart_router_requests_shed_total: ['kind'],
  smart_router_connections_closed_total: ['reason'],
  smart_router_allocate_duration_seconds: ['status'],
  smart_router_waiting_calls: [],
  smart_router_oldest_wait_seconds: [],
  smart_router_waits_total: ['outcome'],
  smart_router_wait_duration_seconds: [],
  smart_router_no_pods_total: ['chain'],
  smart_router_pool_unmet_demand_total: ['tier'],
  smart_router_pool_capacity_calls: ['tier'],
  smart_router_pool_active_calls: ['tier'],
  smart_router_pool_stranded_pods: ['tier'],
  smart_router_removals_held: [],
  smart_router_invariant_violations: [],
  smart_router_calls_lost_total: ['reason'],
  smart_router_pods_blocked_total: ['reason'],
  smart_router_reported_calls_total: ['outcome'],
  smart_router_store_duration_seconds: ['operation'],
  smart_router_store_errors_total: ['operation'],
  smart_router_store_full_total: [],
  smart_router_replication_confirmations_total: ['outcome'],
  smart_router_generations_total: [],
  smart_router_pod_set_back: ['pod_name'],
  smart_router_pools_unreadable: [],
  smart_router_store_up: [],
  smart_router_loop_restarts_total: ['loop'],
  smart_router_watch_reconnects_total: ['reason'],
  smart_router_loop_last_round_timestamp_seconds: ['loop'],
  smart_router_settings_refresh_errors_total: [],
  smart_router_webhook_refusals_total: ['provider'],
  smart_router_records_claimed_total: ['workflow'],
  smart_router_records_finished_total: ['workflow', 'outcome'],
  smart_router_records_processing_seconds: ['workflow'],
  smart_router_records_late_finishes_total: ['workflow'],
  smart_router_records_given_back_total: ['workflow'],
  smart_router_records_retried_total: ['workflow'],
  smart_router_records_keys_at_limit: ['workflow'],
  smart_router_records_next_retry_seconds: ['workflow'],
  smart_router_records_waiting_for_retry: ['workflow'],
  smart_router_records_stuck: ['workflow'],
  smart_router_records_oldest_stuck_seconds: ['workflow'],
  smart_router_records_resets_total: ['workflow', 'reason', 'outcome'],
  smart_router_records_session_attempts_total: [],
  smart_router_records_session_failures_total: [],
  smart_router_records_zombie_alerts_total: ['workflow'],
  smart_router_records_spooled_total: ['workflow'],
  smart_router_records_replayed_total: ['workflow'],
  smart_router_records_database_up: [],
  smart_router_records_breaker_open: [],
  smart_router_records_brake_holding: [],
};

describeOneEngine('metrics', (engine) => {
  let router: TestRouter;
  afterEach(async () => {
    await engine.resume();
    await router.stop();
  });
  const scrape = async (from = router) => (await from.get('/metrics')).text;
  /** The value of one series, or undefined when it is absent. */
  const value = (text: string, series: string) => {
    const line = text.split('\n').find((each) => each.startsWith(`${series} `));
    return line === undefined ? undefined : Number(line.slice(series.length + 1));
  };
  const stateOf = (text: string) =>
    text
      .split('\n')
      .filter((line) => /^smart_router_(active_calls|removals_held|pool_(?!unmet)\w+)[ {]/.test(line));

  it('has every metric of the contract and every one of ours, with its labels', async () => {
    router = await startTestRouter(engine.url);
    const { metrics } = router.context;
    const known = (await metrics.registry.getMetricsAsJSON()).map(({ name }) => name);
    for (const [name, labels] of Object.entries({ ...fromTheSeeds, ...ours })) {
      expect(known).toContain(name);
      const metric = metrics.registry.getSingleMetric(name) as unknown as { labelNames: string[] };
      expect([name, metric.labelNames]).toEqual([name, labels]);
    }
    const listed = new Set(Object.keys({ ...fromTheSeeds, ...ours }));
    expect(known.filter((name) => /^(http|smart_router)_/.test(name) && !listed.has(name))).toEqual([]);
  });

  it('counts each outcome of a call where it belongs', async () => {
    router = await startTestRouter(engine.url, { STATIC_PODS: 'gold-1=gold,basic-1=basic' });
    const { body: call } = await router.post('/allocate', { call_sid: 'CA1' });
    await router.post('/allocate', { call_sid: 'CA1' });
    for (const call_sid of ['CA2', 'CA3', 'CA4', 'CA5']) await router.post('/allocate', { call_sid });
    await router.post('/release', { call_sid: 'CA1', fence: call.fence + 1 });
    await router.post('/release', { call_sid: 'CA2' });
    await router.post('/release', { call_sid: 'CA2' });
    await router.post('/drain', { pod_name: 'gold-1' });
    await router.post('/release', { call_sid: 'CA1' });
    await router.post('/pod/basic-1/report', { calls: ['CA3', 'CA1', 'new'] });
    const text = await scrape();
    const expected = {
      'smart_router_allocations_total{pool="pool:gold",status="success"}': 1,
      'smart_router_allocations_total{pool="pool:gold",status="existing"}': 1,
      'smart_router_allocations_total{pool="pool:basic",status="success"}': 3,
      'smart_router_allocations_total{pool="",status="no_pods"}': 1,
      'smart_router_no_pods_total{chain="pool:gold pool:basic"}': 1,
      'smart_router_pool_unmet_demand_total{tier="gold"}': 4,
      'smart_router_pool_unmet_demand_total{tier="basic"}': 1,
      'smart_router_allocate_duration_seconds_count{status="success"}': 4,
      'smart_router_releases_total{pool="",status="stale_fence"}': 1,
      'smart_router_releases_total{pool="pool:basic",status="success"}': 1,
      'smart_router_releases_total{pool="",status="not_found"}': 1,
      'smart_router_releases_total{pool="pool:gold",status="draining"}': 1,
      smart_router_drains_total: 1,
      'smart_router_reported_calls_total{outcome="renewed"}': 1,
      'smart_router_reported_calls_total{outcome="conflict"}': 1,
      'smart_router_reported_calls_total{outcome="adopted"}': 1,
      'http_requests_total{method="POST",endpoint="/api/v1/allocate",status="200"}': 5,
      'http_requests_total{method="POST",endpoint="/api/v1/allocate",status="503"}': 1,
      'http_request_duration_seconds_count{method="POST",endpoint="/api/v1/drain",status="200"}': 1,
      smart_router_active_calls: 3,
      'smart_router_pool_active_calls{tier="basic"}': 3,
      'smart_router_pool_capacity_calls{tier="basic"}': 3,
      'smart_router_pool_available_pods{tier="basic"}': 0,
      'smart_router_pool_available_pods{tier="gold"}': 0,
      'smart_router_pool_assigned_pods{tier="gold"}': 1,
      smart_router_leader_status: 1,
      smart_router_store_up: 1,
    };
    expect(Object.fromEntries(Object.keys(expected).map((series) => [series, value(text, series)]))).toEqual(
      expected,
    );
  });

  it('counts calls that the sweep has ended, unknown paths as one, and handlers that crashed', async () => {
    router = await startTestRouter(engine.url, { LEASE_TTL: '300ms' });
    await router.post('/allocate', { call_sid: 'CA1' });
    await until(
      async () => value(await scrape(), 'smart_router_zombies_recovered_total') === 1,
      'the call has ended',
    );
    await router.get('/nowhere/1');
    await router.get('/nowhere/2');
    for (const method of ['PROPFIND', 'MKCOL']) await router.ask('/nowhere/3', { method });
    await engine.redis.set('voice:call:broken', 'not a hash');
    const crash = await router.post('/release', { call_sid: 'broken' });
    expect([crash.status, crash.body]).toEqual([
      500,
      { success: false, error: 'internal error: see the log of the router', code: 'internal' },
    ]);
    const text = await scrape();
    expect(value(text, 'http_requests_total{method="GET",endpoint="unmatched",status="404"}')).toBe(2);
    expect(value(text, 'http_requests_total{method="other",endpoint="unmatched",status="404"}')).toBe(2);
    expect(text).not.toMatch(/PROPFIND|MKCOL/);
    expect(value(text, 'smart_router_panics_recovered_total')).toBe(1);
    expect(value(text, 'smart_router_releases_total{pool="",status="error"}')).toBe(1);
    expect(router.logText()).toContain('request failed with an unexpected error');
  });

  it('shows the same state on the leader and on a follower', async () => {
    router = await startTestRouter(engine.url);
    const other = await startTestRouter(engine.url, { POD_NAME: 'second' });
    try {
      await router.post('/allocate', { call_sid: 'CA1' });
      await other.post('/allocate', { call_sid: 'CA2' });
      await other.post('/allocate', { call_sid: 'CA3' });
      const [first, second] = [stateOf(await scrape()), stateOf(await scrape(other))];
      expect(first).toEqual(second);
      expect(first).toContain('smart_router_active_calls 3');
      expect(first.length).toBe(2 + 5 * 2);
    } finally {
      await other.stop();
    }
  });

  it('shows no gauges of state while the store is unreachable, and counts the errors', async () => {
    // Requests that must succeed have this limit too.
    router = await startTestRouter(engine.url, { REQUEST_TIMEOUT: '3s', REDIS_COMMAND_TIMEOUT: '3s' });
    await router.post('/allocate', { call_sid: 'CA1' });
    expect(stateOf(await scrape())).toContain('smart_router_active_calls 1');
    await engine.pause();
    await router.post('/allocate', { call_sid: 'CA2' });
    const gone = await scrape();
    expect(stateOf(gone)).toEqual([]);
    expect(value(gone, 'smart_router_allocations_total{pool="",status="error"}')).toBe(1);
    expect(value(gone, 'smart_router_store_errors_total{operation="allocate"}')).toBe(1);
    await engine.resume();
    await until(async () => stateOf(await scrape()).includes('smart_router_active_calls 1'), 'it is back');
  });

  it('is also on the second port, which has nothing else', async () => {
    router = await startTestRouter(engine.url, { METRICS_PORT: '0' });
    const { metrics } = router.logs().find(({ msg }) => msg === 'smart-router is listening') as {
      metrics: string;
    };
    const answer = await fetch(metrics);
    expect(answer.headers.get('content-type')).toBe('text/plain; version=0.0.4; charset=utf-8');
    expect(await answer.text()).toContain('smart_router_active_calls 0');
    expect((await fetch(metrics.replace('/metrics', '/api/v1/status'))).status).toBe(404);
    expect((await fetch(metrics, { method: 'POST' })).status).toBe(404);
  });

  it('is rendered at most once a second for all scrapes of both ports, and never older than the request', async () => {
    router = await startTestRouter(engine.url, { METRICS_PORT: '0' });
    const { metrics: url } = router.logs().find(({ msg }) => msg === 'smart-router is listening') as {
      metrics: string;
    };
    const update = vi.spyOn(router.context.metrics, 'update');
    const others = Array.from({ length: 20 }, () => [scrape(), fetch(url).then((answer) => answer.text())]);
    const texts = await Promise.all(others.flat());
    expect(texts.every((text) => text.includes('smart_router_active_calls 0'))).toBe(true);
    expect(update.mock.calls.length).toBeGreaterThan(0);
    expect(update.mock.calls.length).toBeLessThan(10);
    await router.post('/allocate', { call_sid: 'CA1' });
    expect(value(await scrape(), 'smart_router_active_calls')).toBe(1);
  });

  it('many who ask whether it is ready share one ping of the store', async () => {
    router = await startTestRouter(engine.url, { REQUEST_TIMEOUT: '400ms', REDIS_COMMAND_TIMEOUT: '400ms' });
    const ping = vi.spyOn(router.context.store, 'ping');
    await engine.pause();
    const answers = await Promise.all(Array.from({ length: 40 }, () => router.get('/ready')));
    expect(answers.every(({ status }) => status === 503)).toBe(true);
    expect(ping.mock.calls.length).toBeLessThan(10);
    await engine.resume();
    await until(async () => (await router.get('/ready')).status === 200, 'it is ready again');
  });

  describe('text', () => {
    const promtool = findOnPath('promtool');
    it.skipIf(promtool === undefined)(
      `passes promtool check metrics${promtool === undefined ? ' [promtool is not on PATH]' : ''}`,
      async () => {
        router = await startTestRouter(engine.url);
        await router.post('/allocate', { call_sid: 'CA1' });
        execFileSync(promtool as string, ['check', 'metrics'], { input: await scrape() });
      },
    );

    it('has a help, a type and no double series', async () => {
      router = await startTestRouter(engine.url);
      await router.post('/allocate', { call_sid: 'CA1' });
      const lines = (await scrape()).split('\n').filter((line) => line !== '');
      const series = lines.filter((line) => !line.startsWith('#')).map((line) => line.replace(/ [^ ]+$/, ''));
      expect(new Set(series).size).toBe(series.length);
      const typed = new Set(
        lines.flatMap((line) => /^# TYPE (\w+) (?:counter|gauge|histogram|summary)$/.exec(line)?.[1] ?? []),
      );
      for (const one of series) {
        const name = one.split('{')[0] as string;
        expect(typed.has(name) || typed.has(name.replace(/_(bucket|sum|count)$/, ''))).toBe(true);
      }
    });
  });
});
