/** Pods that have no call and cannot get one are told by the metric, however busy the others are. */
import { afterEach, expect, it } from 'vitest';
import { describeEngines } from '../support/engines.js';
import { startTestRouter, type TestRouter } from '../support/router.js';
import { until } from '../support/until.js';

describeEngines('a shared pool', (engine) => {
  let router: TestRouter;
  afterEach(() => router.stop());

  const stranded = async () => {
    const { text } = await router.get('/metrics');
    return Number(/^smart_router_pool_stranded_pods\{tier="basic"\} (\d+)$/m.exec(text)?.[1]);
  };

  it('with two leaked pods and six calls on the other three has two stranded pods, until the sweep puts them back', async () => {
    const pods = ['a', 'b', 'c', 'd', 'e'];
    const env = {
      STATIC_PODS: pods.map((pod) => `${pod}=basic`).join(),
      TIER_CONFIG: JSON.stringify({
        tiers: { basic: { type: 'shared', target: 5, max_concurrent: 3 } },
        default_chain: ['basic'],
      }),
      POD_NAME: 'first',
    };
    // Its first sweep is twenty minutes away.
    router = await startTestRouter(engine.url, { ...env, CLEANUP_INTERVAL: '20m', RECONCILE_INTERVAL: '1h' });
    expect(await stranded()).toBe(0);
    expect(await engine.redis.zrem('voice:pool:basic:available', 'a', 'b')).toBe(2);
    for (let i = 1; i <= 6; i += 1)
      expect((await router.post('/allocate', { call_sid: `CA${i}` })).status).toBe(200);
    expect(await stranded()).toBe(2);
    // A drained pod with calls is not one of them.
    const busy = (await router.get('/calls/CA1')).body.pod_name as string;
    await router.post('/drain', { pod_name: busy });
    expect(await stranded()).toBe(2);
    await router.stop();

    router = await startTestRouter(engine.url, { ...env, POD_NAME: 'second' });
    await until(async () => (await stranded()) === 0, 'the sweep has put them back');
  });
});
