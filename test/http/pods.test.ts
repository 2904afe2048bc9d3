/** Drain without waiting, undrain, one pod, lists and status: exact bodies over real HTTP. */
import { afterEach, beforeEach, expect, it, onTestFinished } from 'vitest';
import { createClient } from '../../src/client/index.js';
import { describeOneEngine } from '../support/engines.js';
import { startTestRouter, type TestRouter } from '../support/router.js';
import { until } from '../support/until.js';

const iso = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);

describeOneEngine('pods over HTTP', (engine) => {
  let router: TestRouter;
  beforeEach(async () => {
    router = await startTestRouter(engine.url, { AUDIT_INTERVAL: '200ms' });
  });
  afterEach(() => router.stop());

  it('drain of an idle pod and of a busy one answer with the words of the contract', async () => {
    const { body: call } = await router.post('/allocate', { call_sid: 'CA1' });
    const busy = call.pod_name as string;
    const idle = busy === 'gold-1' ? 'gold-2' : 'gold-1';
    expect((await router.post('/drain', { pod_name: idle })).body).toEqual({
      success: true,
      pod_name: idle,
      has_active_call: false,
      active_calls: 0,
      message: `Pod ${idle} is draining with no active calls.`,
      drain_expires_at: iso,
    });
    const drained = await router.post('/drain', { pod_name: busy });
    expect(drained.status).toBe(200);
    expect(drained.body).toEqual({
      success: true,
      pod_name: busy,
      has_active_call: true,
      active_calls: 1,
      message: `Pod ${busy} is draining with active call in progress. Will complete when call ends.`,
      drain_expires_at: iso,
    });
    const { body: again } = await router.post('/drain', { pod_name: busy });
    expect(again).toEqual({ ...drained.body, drain_expires_at: iso });
    expect((await router.get(`/pod/${busy}`)).body.draining_until).toBe(again.drain_expires_at);
  });

  it('undrain answers the same twice, and the pod takes calls again', async () => {
    for (const pod_name of ['gold-1', 'gold-2', 'basic-1']) await router.post('/drain', { pod_name });
    expect((await router.post('/allocate', { call_sid: 'CA1' })).status).toBe(503);
    const expected = {
      success: true,
      pod_name: 'gold-1',
      active_calls: 0,
      message: 'Pod gold-1 takes calls again.',
    };
    expect((await router.post('/undrain', { pod_name: 'gold-1' })).body).toEqual(expected);
    expect((await router.post('/undrain', { pod_name: 'gold-1' })).body).toEqual(expected);
    expect((await router.post('/allocate', { call_sid: 'CA1' })).body.pod_name).toBe('gold-1');
  });

  it('a pod that named its interval and stops reporting is blocked by the leader, and says since when', async () => {
    const report = (pod: string, interval_ms?: unknown) =>
      router.post(`/pod/${pod}/report`, { calls: [], interval_ms });
    for (const wrong of [99, 600_001, 1.5, '1000', null]) {
      expect((await report('gold-1', wrong)).body).toMatchObject({ code: 'invalid_request' });
    }
    const client = createClient({ baseUrl: router.url });
    const reporter = client.startReporting('gold-2', () => [], { intervalMs: 1000 });
    try {
      expect((await report('gold-1', 1000)).status).toBe(200);
      // As if it had reported 16 s ago, and the first report of all were an hour ago.
      const agoMs = Date.now() - 16_000;
      await engine.redis.zadd('voice:reported', agoMs, 'gold-1');
      await engine.redis.zadd('voice:reported:due', agoMs + 15_000, 'gold-1');
      await engine.redis.set('voice:reported:since', agoMs - 3_600_000);
      const blocked = async () => (await router.get('/pod/gold-1')).body.blocked_by === 'awaiting_report';
      await until(blocked, 'the leader has blocked it');
      expect((await router.get('/pod/gold-1')).body.last_report_at).toBe(new Date(agoMs).toISOString());
      expect((await router.post('/allocate', { call_sid: 'CA1' })).body.pod_name).toBe('gold-2');
      expect(await engine.redis.zscore('voice:reported:due', 'gold-2')).not.toBeNull();
      expect((await router.get('/metrics')).text).toContain(
        'smart_router_pods_blocked_total{reason="awaiting_report"} 1',
      );
      await report('gold-1', 1000);
      expect((await router.get('/pod/gold-1')).body.blocked_by).toBeNull();
    } finally {
      reporter.stop();
      client.close();
    }
  });

  it('a pod to which callers cannot connect three times in a row is set back', async () => {
    await router.post('/drain', { pod_name: 'gold-1' });
    const client = createClient({ baseUrl: router.url });
    const fail = async () =>
      (await client.allocate({ callSid: 'CA1' })).release({ reason: 'connect_failed' });
    await fail();
    await fail();
    expect(await router.post('/release', { call_sid: 'CA1', reason: 'busy' })).toMatchObject({ status: 400 });
    const { body } = await router.post('/allocate', { call_sid: 'CA1' });
    await router.post('/undrain', { pod_name: 'gold-1' });
    expect(await router.post('/release', { call_sid: 'CA1', reason: 'connect_failed' })).toMatchObject({
      body: { pod_name: body.pod_name, released_to_pool: null },
    });
    expect((await router.get(`/pod/${body.pod_name}`)).body.blocked_by).toBe('flapping');
    client.close();
  });

  it('calls that end within seconds stop going to the pods of a dead node', async () => {
    const nodes = await startTestRouter(engine.url, {
      REDIS_KEY_PREFIX: 'nodes:',
      STATIC_PODS: ['a-1', 'a-2', 'b-1', 'b-2', 'dead-1', 'dead-2'].map((pod) => `${pod}=gold`).join(','),
    });
    onTestFinished(() => nodes.stop());
    const end = (CallSid: string) => nodes.form('/twilio/status', { CallSid, CallStatus: 'completed' });
    const endAfterAMinute = async (callSid: string) => {
      await engine.redis.hincrby(`nodes:call:${callSid}`, 'fence', -60_000_000);
      await end(callSid);
    };
    // A call has lasted on every pod, so that three failures are enough to see the difference.
    const first = Array.from({ length: 6 }, (_, i) => `CA-first-${i}`);
    for (const CallSid of first) await nodes.form('/twilio/allocate', { CallSid });
    for (const callSid of first) await endAfterAMinute(callSid);
    const failed: string[] = [];
    const live: string[] = [];
    for (let i = 0; i < 60; i++) {
      const CallSid = `CA${i}`;
      const { text } = await nodes.form('/twilio/allocate', { CallSid });
      const pod = /\/ws\/pod\/([^/]+)\//.exec(text)?.[1] ?? '';
      if (pod.startsWith('dead')) {
        failed.push(pod);
        await end(CallSid);
        continue;
      }
      const oldest = live.push(CallSid) > 2 && live.shift();
      if (oldest) await endAfterAMinute(oldest);
    }
    // Without the guard about 30. Three on each of the two, and one more if the loop takes 10 s, 30 s, 70 s.
    expect(failed.length).toBeLessThanOrEqual(10);
    const metrics = (await nodes.get('/metrics')).text;
    expect(metrics).toMatch(/smart_router_pods_blocked_total\{reason="flapping"\} [2-9]/);
  });

  it('GET /pod shows its calls, its lease and why it takes none', async () => {
    await router.post('/drain', { pod_name: 'gold-1' });
    const { body: call } = await router.post('/allocate', { call_sid: 'CA1' });
    expect((await router.get('/pod/gold-2')).body).toEqual({
      pod_name: 'gold-2',
      tier: 'gold',
      is_draining: false,
      draining_until: null,
      blocked_by: null,
      has_active_lease: true,
      lease_call_sid: 'CA1',
      calls: ['CA1'],
      leases: [{ call_sid: 'CA1', lease_expires_at: call.lease_expires_at }],
      last_report_at: null,
      uid: '',
      started_at: null,
    });
    expect((await router.get('/pod/gold-1')).body).toEqual({
      pod_name: 'gold-1',
      tier: 'gold',
      is_draining: true,
      draining_until: iso,
      blocked_by: 'draining',
      has_active_lease: false,
      lease_call_sid: null,
      calls: [],
      leases: [],
      last_report_at: null,
      uid: '',
      started_at: null,
    });
  });

  it('status counts pools, calls and loops, and says who leads', async () => {
    await router.post('/allocate', { call_sid: 'CA1' });
    const body = await until(async () => {
      const { body } = await router.get('/status');
      return body.loops.every(({ rounds }: { rounds: number }) => rounds > 0) && body;
    }, 'every loop has made a round');
    expect(body).toEqual({
      status: 'up',
      version: expect.stringMatching(/^\d+\.\d+\.\d+/),
      pools: {
        gold: { type: 'exclusive', assigned: 2, available: 1, active_calls: 1, capacity: 2 },
        basic: { type: 'shared', assigned: 1, available: 1, active_calls: 0, capacity: 3 },
      },
      active_calls: 1,
      waiting_calls: 0,
      oldest_wait_seconds: null,
      removals_held: 0,
      records: null,
      is_leader: true,
      leader: 'router-under-test',
      election: { lock: 'none: the election is off', last_error: null },
      loops: [
        'reconcile',
        'sweep',
        'silence',
        'audit',
        'alive-stamp',
        'settings',
        'wait-queue',
        'history',
      ].map((name) => ({
        name,
        running: true,
        rounds: expect.any(Number),
        crashes: 0,
        last_round_at: iso,
        last_error: null,
        counts: expect.any(Object),
      })),
      tier_version: 1,
      tier_config_differs: false,
      replicas_differ: [],
      store_error: null,
    });
  });

  it('health, ready and metrics answer with and without the prefix', async () => {
    for (const root of ['', '//']) {
      const health = await router.get(`${root || '/'}health`);
      expect([health.status, health.body]).toEqual([200, { status: 'ok' }]);
      const ready = await router.get(`${root || '/'}ready`);
      expect([ready.status, ready.body]).toEqual([200, { status: 'ready' }]);
      const metrics = await router.get(`${root || '/'}metrics`);
      expect(metrics.headers['content-type']).toBe('text/plain; version=0.0.4; charset=utf-8');
    }
  });

  it('undrain of a pod that is not ready says that it still takes no calls', async () => {
    await router.stop();
    router = await startTestRouter(engine.url, { RECONCILE_INTERVAL: '1h' });
    await engine.redis.set('voice:pod:suspended:gold-1', 'not_ready');
    expect((await router.post('/undrain', { pod_name: 'gold-1' })).body.message).toBe(
      'Pod gold-1 no longer drains, but takes no calls: not_ready.',
    );
  });
});

describeOneEngine('lists over HTTP', (engine) => {
  let router: TestRouter;
  const names = Array.from({ length: 300 }, (_, i) => `pod-${i}`);
  beforeEach(async () => {
    const pods = names.map((name, i) =>
      i % 3 === 0 ? `${name}=basic` : i % 10 === 1 ? `${name}=merchant:vip` : name,
    );
    router = await startTestRouter(engine.url, {
      STATIC_PODS: pods.join(','),
      RECONCILE_INTERVAL: '1h',
      CLEANUP_INTERVAL: '20m',
    });
  });
  afterEach(() => router.stop());

  async function readAll(path: string, list: 'pods' | 'calls'): Promise<Record<string, string>[][]> {
    const pages: Record<string, string>[][] = [];
    let cursor: string | null = '';
    do {
      const separator = path.includes('?') ? '&' : '?';
      const { status, body } = await router.get(path + (cursor ? `${separator}cursor=${cursor}` : ''));
      expect(status).toBe(200);
      expect(Object.keys(body).sort()).toEqual([list, 'cursor'].sort());
      pages.push(body[list]);
      cursor = body.cursor;
    } while (cursor !== null && pages.length < 1000);
    return pages;
  }

  it.each([1, 7, 100, 1000])('300 pods come complete in pages of %i, each once', async (limit) => {
    const pages = await readAll(`/pods?limit=${limit}`, 'pods');
    const found = pages.flat().map(({ pod_name }) => pod_name);
    expect(found.sort()).toEqual([...names].sort());
    expect(Math.max(...pages.map((page) => page.length))).toBeLessThanOrEqual(limit + 128);
    const vip = (await readAll(`/pods?pool=merchant:vip&limit=${limit}`, 'pods')).flat();
    expect(new Set(vip.map(({ tier }) => tier))).toEqual(new Set(['merchant:vip']));
    expect((await readAll('/pods?pool=pool:nowhere', 'pods')).flat()).toEqual([]);
  });

  it('300 calls come complete in pages, each once', async () => {
    const sids = Array.from({ length: 300 }, (_, i) => `call ${i}/ü`);
    const given = await Promise.all(sids.map((call_sid) => router.post('/allocate', { call_sid })));
    expect(given.map(({ status }) => status)).toEqual(sids.map(() => 200));
    for (const limit of [13, 100]) {
      const found = (await readAll(`/calls?limit=${limit}`, 'calls')).flat();
      expect(found.map(({ call_sid }) => call_sid).sort()).toEqual([...sids].sort());
    }
    const gold = (await readAll('/calls?pool=pool:gold', 'calls')).flat();
    expect(new Set(gold.map(({ source_pool }) => source_pool))).toEqual(new Set(['pool:gold']));
  });
});

describeOneEngine('a pod with 10,000 calls', (engine) => {
  it('reports them in one request, by the client too, however long their ids are', async () => {
    const router = await startTestRouter(engine.url, {
      STATIC_PODS: 'pod-1=big',
      TIER_CONFIG: JSON.stringify({ big: { type: 'shared', target: 1, max_concurrent: 10_000 } }),
      AUDIT_INTERVAL: 'off',
      REQUEST_TIMEOUT: '60s',
      REDIS_COMMAND_TIMEOUT: '50s',
    });
    const calls = Array.from({ length: 10_000 }, (_, i) => `CA${String(i).padStart(32, '0')}`);
    const client = createClient({ baseUrl: router.url, timeoutMs: 60_000 });
    try {
      const reporter = client.startReporting('pod-1', () => calls);
      const { adopted } = await reporter.runOnce();
      reporter.stop();
      expect(adopted.length).toBe(10_000);
      expect((await client.report('pod-1', calls)).renewed.length).toBe(10_000);
      expect((await router.get('/pod/pod-1')).body.calls.length).toBe(10_000);
      // The largest body: each id has 256 characters of four bytes. It is one call, and the pod is full.
      const longest = '𝄞'.repeat(256);
      const largest = await router.post('/pod/pod-1/report', { calls: Array(10_000).fill(longest) });
      expect(largest.body.conflicts).toEqual([longest]);
      const many = await router.post('/pod/pod-1/report', { calls: Array(10_001).fill('a') });
      expect([many.status, many.body.error]).toEqual([
        400,
        expect.stringContaining('a list of at most 10,000 call ids'),
      ]);
      const large = await router.post('/pod/pod-1/report', { calls: ['x'.repeat(11 * 1024 * 1024)] });
      expect([large.status, large.body.error]).toEqual([413, 'the body is larger than 11 MiB']);
    } finally {
      client.close();
      await router.stop();
    }
  }, 60_000);
});
