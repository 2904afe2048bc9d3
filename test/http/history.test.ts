/** The history over HTTP: what all replicas counted, told by any of them. */
import { afterEach, describe, expect, it, onTestFinished } from 'vitest';
import { readCounts } from '../../src/calls/history/counts.js';
import type { Point } from '../../src/calls/history/points.js';
import { parseRow, withoutDuplicates } from '../../src/calls/history/rows.js';
import { describeEngines, nativeAvailable, redisCluster } from '../support/engines.js';
import { looked } from '../support/history-round.js';
import { impatient, startTestRouter, type TestRouter } from '../support/router.js';
import { until } from '../support/until.js';

const quiet = { CLEANUP_INTERVAL: '20m', RECONCILE_INTERVAL: '1h', LEADER_ELECTION_ENABLED: 'true' };

describeEngines('the history', (engine) => {
  const routers: TestRouter[] = [];
  afterEach(async () => {
    await engine.resume();
    await Promise.all(routers.splice(0).map((router) => router.stop()));
  });
  const start = async (name: string, env: Record<string, string> = {}) => {
    const router = await startTestRouter(engine.url, { ...quiet, POD_NAME: name, ...env });
    routers.push(router);
    return router;
  };
  const rows = async () => {
    const entries = await engine.redis.xrange('voice:history', '-', '+');
    const parsed = entries.flatMap(([id, flat]) => {
      const pairs = flat.flatMap((name, i) => (i % 2 === 0 ? [[name, flat[i + 1] ?? ''] as const] : []));
      return parseRow(id, new Map(pairs)) ?? [];
    });
    return withoutDuplicates(parsed);
  };
  const total = async (name: 'allocated' | 'released' | 'no_pods' | 'errors') =>
    (await rows()).reduce((sum, { counts }) => sum + counts[name], 0);

  it('sums what two routers on one store did, and lists both', async () => {
    const first = await start('router-a');
    const second = await start('router-b');
    for (const sid of ['CA1', 'CA2', 'CA3']) await first.post('/allocate', { call_sid: sid });
    for (const sid of ['CA4', 'CA5', 'CA6']) await second.post('/allocate', { call_sid: sid });
    await first.post('/release', { call_sid: 'CA5' });
    await looked(first);
    await looked(second);
    expect([await total('allocated'), await total('released'), await total('no_pods')]).toEqual([5, 1, 1]);
    const { status, body } = await second.get('/history');
    expect(status).toBe(200);
    expect(body.step_seconds).toBe(10);
    expect(body.replicas).toEqual([
      expect.objectContaining({ name: 'router-a', is_leader: true, version: expect.any(String) }),
      expect.objectContaining({ name: 'router-b', is_leader: false }),
    ]);
    for (const { started_at, seen_at } of body.replicas) expect(started_at <= seen_at).toBe(true);
    const points = body.points as Point[];
    const most = (name: keyof Point) => Math.max(...points.map((point) => Number(point[name] ?? 0)));
    for (const name of ['allocated', 'released', 'no_pods', 'p50_ms', 'p99_ms'] as const)
      expect(most(name), name).toBeGreaterThan(0);
    expect(points.at(-1)).toMatchObject({ assigned: 3, capacity: 5, errors: 0, lost: 0, records: {} });
    expect(most('active_calls')).toBeLessThanOrEqual(5);
    expect(points.map(({ at }) => at)).toEqual(points.map(({ at }) => at).sort());
    expect((await first.get('/history')).body.replicas).toHaveLength(2);
  });

  it('continues after an outage of the store: nothing is lost or counted twice, no loop crashes', async () => {
    const router = await start('router-a', impatient);
    await until(
      async () => (await router.post('/allocate', { call_sid: 'CA1' })).status === 200,
      'CA1 has a pod',
    );
    await looked(router);
    await engine.pause();
    expect((await router.post('/allocate', { call_sid: 'CA2' })).status).toBe(503);
    await looked(router);
    const [history, alerts] = await Promise.all([router.get('/history'), router.get('/alerts')]);
    expect([history.status, history.body.code]).toEqual([
      503,
      expect.stringMatching(/store_unavailable|timeout/),
    ]);
    expect(alerts.status).toBe(200);
    await engine.resume();
    const counted = await readCounts(router.context.metrics);
    expect(counted.errors).toBeGreaterThan(0);
    // The router connects again first: its first rows may fail.
    await until(async () => {
      await looked(router);
      return (await total('errors')) > 0;
    }, 'it writes rows again');
    expect(await total('errors')).toBe(counted.errors);
    expect(await total('allocated')).toBe(counted.allocated);
    expect(router.context.history.loop.state).toMatchObject({ crashes: 0, last_error: null });
    const points = await until(
      async () => (await router.get('/history?minutes=1')).body.points as Point[] | undefined,
      'the history is read',
    );
    expect(points.some(({ errors }) => errors > 0)).toBe(true);
  });

  it('covers the requested minutes, in steps that give at most 360 points', async () => {
    const router = await start('router-a');
    await looked(router);
    const steps = async (minutes: number) => {
      const { body } = await router.get(`/history?minutes=${minutes}`);
      expect(body.points.length).toBeGreaterThan(0);
      return body.step_seconds;
    };
    expect([await steps(1), await steps(60), await steps(180), await steps(360)]).toEqual([10, 10, 30, 60]);
    for (const wrong of ['0', '361', '-1', '1.5', 'x', '']) {
      const answer = await router.get(`/history?minutes=${wrong}`);
      expect([wrong, answer.status, answer.body.code]).toEqual([wrong, 400, 'invalid_request']);
    }
  });

  it('is read once for equal requests, and for at most four different ones at a time', async () => {
    // Long enough for all of them to arrive before the first is given up.
    const router = await start('router-a', { REQUEST_TIMEOUT: '3s', REDIS_COMMAND_TIMEOUT: '3s' });
    await looked(router);
    await engine.pause();
    const same = Array.from({ length: 20 }, () => router.get('/history?minutes=360'));
    const others = [1, 2, 3, 4, 5, 6].map((minutes) => router.get(`/history?minutes=${minutes}`));
    const refused = (await Promise.all(others)).filter(({ status }) => status === 429);
    expect(refused).toHaveLength(3);
    expect(refused[0]?.body.code).toBe('too_many_requests');
    expect(new Set((await Promise.all(same)).map(({ status }) => status))).toEqual(new Set([503]));
    await engine.resume();
    await until(async () => (await router.get('/history?minutes=1')).status === 200, 'it is read again');
    const later = await Promise.all([1, 2, 3, 4].map((minutes) => router.get(`/history?minutes=${minutes}`)));
    expect(later.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
  });

  it('and the alerts work although another version wrote unreadable rows', async () => {
    const router = await start('router-a');
    await looked(router);
    const [[, fields] = ['', []]] = await engine.redis.xrange('voice:history', '-', '+', 'COUNT', 1);
    const row = Object.fromEntries(fields.flatMap((name, i) => (i % 2 ? [] : [[name, fields[i + 1] ?? '']])));
    const odd = [
      { records: 'null', alerts: '{"a":1}' },
      { records: '{"jobs":null}', alerts: '[null,5,{"name":"x"}]' },
      { records: '[1]', alerts: '"x"', latency: 'x:y,1:z' },
      { started: '9e15' },
      { name: '<b>', version: '\u001b[31m' },
    ];
    for (const [i, fields] of odd.entries())
      await engine.redis.xadd(
        'voice:history',
        '*',
        ...Object.entries({ ...row, name: `odd-${i}`, ...fields }).flat(),
      );
    const { status, body } = await router.get('/history');
    expect([status, body.replicas?.length]).toEqual([200, 5]);
    const alerts = await router.get('/alerts');
    expect([alerts.status, alerts.body]).toEqual([200, { alerts: [] }]);
  });

  it('keeps about six hours of five replicas, with any earlier content of the stream', async () => {
    const router = await start('router-a');
    // In pieces, because the router waits for replies of the same store.
    for (let piece = 0; piece < 40; piece++)
      await engine.redis.eval(
        "for i = 1, 500 do redis.call('XADD', KEYS[1], '*', 'n', i) end",
        1,
        'voice:history',
      );
    await looked(router);
    expect(await engine.redis.xlen('voice:history')).toBeLessThan(11_500);
    // On a busy machine the first request may time out.
    const replicas = async () => (await router.get('/history')).body.replicas?.length;
    await until(async () => (await replicas()) === 1, 'the history is read');
  });
});

describe('on a Cluster', () => {
  it('history, alerts, search and timeline are read from the slot of the prefix', async (test) => {
    const native = nativeAvailable();
    if (native !== true) return test.skip(native);
    const cluster = await redisCluster(3);
    onTestFinished(() => cluster.stop());
    const router = await startTestRouter(cluster.url, { ...quiet, REDIS_KEY_PREFIX: '{voice}:' });
    onTestFinished(() => router.stop());
    await router.post('/allocate', { call_sid: 'CA1' });
    await router.post('/drain', { pod_name: 'basic-1' });
    await looked(router);
    const history = (await router.get('/history')).body;
    expect(history.replicas).toHaveLength(1);
    expect(history.points.length).toBeGreaterThan(0);
    expect((await router.get('/alerts')).body.alerts).toEqual([]);
    const { events } = (await router.get('/events/search?limit=2')).body;
    expect(events.map(({ type }: { type: string }) => type)).toEqual(['pod_draining', 'call_allocated']);
    expect((await router.get('/calls/CA1/timeline')).body).toMatchObject({ is_complete: true });
    expect((await router.get('/recoveries')).status).toBe(200);
  }, 60_000);
});
