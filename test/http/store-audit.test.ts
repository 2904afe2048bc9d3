/** The audit over HTTP, on request of an operator and by the leader. */
import { afterEach, expect, it } from 'vitest';
import { describeEngines } from '../support/engines.js';
import { impatient, startTestRouter, type TestRouter } from '../support/router.js';
import { until } from '../support/until.js';

// No loop repairs what a test has broken.
const quiet = { CLEANUP_INTERVAL: '20m', RECONCILE_INTERVAL: '1h', AUDIT_INTERVAL: 'off' };

describeEngines('the audit', (engine) => {
  let router: TestRouter;
  afterEach(async () => {
    await engine.resume();
    await router.stop();
  });
  const gauge = async () =>
    /^smart_router_invariant_violations (\S+)$/m.exec((await router.get('/metrics')).text)?.[1];

  it('of a healthy router finds nothing, and says what it has looked at', async () => {
    router = await startTestRouter(engine.url, quiet);
    await router.post('/allocate', { call_sid: 'CA1' });
    const { status, body } = await router.get('/audit');
    expect([status, body]).toEqual([
      200,
      {
        complete: true,
        took_ms: expect.any(Number),
        looked_at: { pools: 2, pods: 3, calls: 1, keys: expect.any(Number) },
        violation_count: 0,
        violations: [],
        pending_count: 0,
        pending: [],
      },
    ]);
    expect(await gauge()).toBeUndefined();
  });

  it('names the pod and the call, what contradicts what, and who repairs it', async () => {
    router = await startTestRouter(engine.url, quiet);
    const { body: call } = await router.post('/allocate', { call_sid: 'CA1' });
    await engine.redis.sadd('voice:pool:gold:available', call.pod_name);
    await engine.redis.del('voice:call:CA1');
    const { body } = await router.get('/audit');
    expect(body).toMatchObject({
      violation_count: 1,
      violations: [
        {
          kind: 'available_busy',
          pod_name: call.pod_name,
          call_sid: null,
          pool: 'pool:gold',
          message: expect.stringContaining('the sweep repairs it within CLEANUP_INTERVAL'),
        },
      ],
      pending_count: 1,
      pending: [{ kind: 'no_record', pod_name: call.pod_name, call_sid: 'CA1', pool: null }],
    });
  });

  it('lists a hundred of each and counts them all', async () => {
    router = await startTestRouter(engine.url, quiet);
    const ghosts = Array.from({ length: 140 }, (_, i) => `ghost-${i}`);
    await engine.redis.sadd('voice:pool:gold:assigned', ...ghosts);
    const { body } = await router.get('/audit');
    expect([body.violation_count, body.violations.length]).toEqual([140, 100]);
  });

  it('runs once for several requests', async () => {
    router = await startTestRouter(engine.url, quiet);
    const answers = await Promise.all([1, 2, 3, 4, 5].map(() => router.get('/audit')));
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200, 200]);
  });

  it('without the store is 503, not a result without violations', async () => {
    router = await startTestRouter(engine.url, { ...quiet, ...impatient });
    await engine.pause();
    const { status, body } = await router.get('/audit');
    expect([status, body.code]).toEqual([503, 'store_unavailable']);
  });

  it('of the leader is in the metrics and in the log, and 0 again when all is well', async () => {
    router = await startTestRouter(engine.url, { ...quiet, AUDIT_INTERVAL: '100ms' });
    await until(async () => (await gauge()) === '0', 'the first audit is over');
    await engine.redis.sadd('voice:pool:gold:assigned', 'ghost');
    await until(async () => (await gauge()) === '1', 'the ghost is found');
    expect(router.logText()).toContain(
      'invariant violated: pool:gold has the unregistered pod ghost assigned',
    );
    const { body } = await router.get('/status');
    expect(body.loops.find(({ name }: { name: string }) => name === 'audit')).toMatchObject({
      running: true,
      crashes: 0,
      counts: { pods: expect.any(Number), violations: 1 },
    });
    await engine.redis.srem('voice:pool:gold:assigned', 'ghost');
    await until(async () => (await gauge()) === '0', 'it is repaired');
  });
});
