/** POD_SOURCE=registered: a pod is there because it says so, and goes when it stops saying so. */
import { afterEach, expect, it } from 'vitest';
import { describeEngines } from '../support/engines.js';
import { startTestRouter, type TestRouter } from '../support/router.js';
import { SkippingClock } from '../support/skipping-clock.js';
import { until } from '../support/until.js';

const env = { POD_SOURCE: 'registered', STATIC_PODS: '' };

describeEngines('pods that announce themselves', (engine) => {
  let router: TestRouter;
  afterEach(() => router.stop());
  const report = (pod: string, body: object = {}) =>
    router.post(`/pod/${pod}/report`, { calls: [], ...body });

  it('take calls with their first report, in the pool they name, and serve what they say they serve', async () => {
    router = await startTestRouter(engine.url, env);
    expect((await router.post('/allocate', { call_sid: 'CA1' })).body.code).toBe('no_pods');
    const first = await report('agent-1', { tier: 'basic', calls: ['running'] });
    expect([first.status, first.body.adopted]).toEqual([200, ['running']]);
    await report('agent-2', { merchant: 'acme' });
    const { body } = await router.post('/allocate', { call_sid: 'CA1' });
    expect([body.pod_name, body.source_pool]).toEqual(['agent-1', 'pool:basic']);
    expect((await router.get('/pod/agent-1')).body.calls.sort()).toEqual(['CA1', 'running']);
    expect((await router.get('/pod/agent-2')).body).toMatchObject({
      tier: 'merchant:acme',
      blocked_by: null,
    });
  });

  it('are removed after REGISTERED_POD_TTL without a report, but keep their calls; a report registers them again', async () => {
    const clock = new SkippingClock();
    router = await startTestRouter(engine.url, { ...env, REGISTERED_POD_TTL: '1m' }, { clock });
    await report('idle', { tier: 'gold' });
    await report('busy', { tier: 'basic', calls: ['running'] });
    for (const pod of ['idle', 'busy']) await engine.redis.zadd('voice:reported', Date.now() - 61_000, pod);
    await until(async () => {
      // Silence counts from the leader's first list.
      clock.skip(61_000);
      return (await router.get('/pod/idle')).status === 404;
    }, 'the idle pod is deleted');
    const busy = await until(async () => {
      const { body } = await router.get('/pod/busy');
      return body.blocked_by === 'awaiting_report' && body;
    }, 'the busy one takes no new calls');
    expect(busy.calls).toEqual(['running']);
    expect((await report('idle', { tier: 'gold' })).status).toBe(200);
    expect((await router.get('/pod/idle')).body.blocked_by).toBeNull();
  });

  it('keep their call when a late report of a predecessor with the same name arrives', async () => {
    router = await startTestRouter(engine.url, { ...env, TIER_CONFIG: '{"gold":2}' });
    const report = (uid: string, calls: string[] = []) => router.post('/pod/agent-0/report', { uid, calls });
    await report('first');
    await report('second');
    await report('third');
    expect((await router.post('/allocate', { call_sid: 'CA1' })).body.pod_name).toBe('agent-0');
    for (const late of ['second', 'first']) {
      expect((await report(late)).body.code).toBe('pod_not_found');
    }
    expect((await router.post('/allocate', { call_sid: 'CA2' })).body.code).toBe('no_pods');
    expect((await report('third', ['CA1'])).body.renewed).toEqual(['CA1']);
  });

  it('may return with an earlier uid when the pod that replaced them has stopped reporting', async () => {
    router = await startTestRouter(engine.url, env);
    await report('agent-0', { uid: 'first' });
    await report('agent-0', { uid: 'second' });
    expect((await report('agent-0', { uid: 'first' })).status).toBe(404);
    await engine.redis.zadd('voice:reported', Date.now() - 61_000, 'agent-0');
    expect((await report('agent-0', { uid: 'first' })).status).toBe(200);
  });
});
