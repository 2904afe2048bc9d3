/** A router whose Redis is at `maxmemory`: live calls continue, new ones are rejected, and it does not count as an outage. */
import { afterEach, expect, it } from 'vitest';
import { describeOneEngine } from '../support/engines.js';
import { startTestRouter, type TestRouter } from '../support/router.js';
import { until } from '../support/until.js';

const env = {
  STATIC_PODS: 'gold-1=gold',
  TIER_CONFIG: '{"gold":1}',
  LEASE_TTL: '1s',
  // Without a sweep only an allocate could end the call, however late a renewal comes on a busy machine.
  CLEANUP_INTERVAL: '20m',
  REDIS_COMMAND_TIMEOUT: '10s',
  REQUEST_TIMEOUT: '10s',
  LEADER_ELECTION_ENABLED: 'true',
  LEADER_ELECTION_RETRY_PERIOD: '100ms',
};

describeOneEngine('a full Redis', (engine) => {
  const routers: TestRouter[] = [];
  const start = async (name: string) => {
    const router = await startTestRouter(engine.url, { ...env, POD_NAME: name });
    routers.push(router);
    return router;
  };
  const limit = (bytes: number) => engine.redis.config('SET', 'maxmemory', String(bytes));
  const codeOf = ({ status, body }: Awaited<ReturnType<TestRouter['get']>>) => [status, body.code];
  const full = [503, 'store_full'];
  afterEach(async () => {
    await limit(0);
    for (const router of routers.splice(0)) await router.stop();
  });

  it('keeps a call that renews past its first lease, and refuses the call that would take its pod', async () => {
    const router = await start('first');
    const { body: call } = await router.post('/allocate', { call_sid: 'CA1' });
    await limit(1);
    const leader = await engine.redis.hget('voice:leader', 'version');
    // A router that starts now takes over nothing, and is ready.
    const second = await start('second');
    const seen = new Set<string>();
    await until(async () => {
      const renewed = await second.post('/renew', { call_sid: 'CA1', fence: call.fence });
      const refused = await router.post('/allocate', { call_sid: 'CA2' });
      seen.add(`${renewed.status} ${codeOf(refused).join(' ')} ${refused.headers['retry-after']}`);
      const { body } = await router.get('/status');
      seen.add(`${body.status} ${body.store_error} ${body.is_leader}`);
      return Date.now() > Date.parse(call.lease_expires_at) + 200;
    }, 'the first lease has run out');
    expect([...seen]).toEqual(['200 503 store_full 1', 'up null true']);
    expect(await router.post('/allocate', { call_sid: 'CA1' })).toMatchObject({
      status: 200,
      body: { pod_name: 'gold-1', fence: call.fence, was_existing: true },
    });
    const renewals = async () => (await engine.redis.hget('voice:leader', 'version')) !== leader;
    await until(renewals, 'the leader has renewed its lock');
    for (const one of [router, second]) expect((await one.get('/ready')).status).toBe(200);

    const { status } = await router.post('/pod/gold-1/report', { calls: ['CA1'] });
    const drained = await router.post('/drain', { pod_name: 'gold-1' });
    const undrained = await router.post('/undrain', { pod_name: 'gold-1' });
    expect([status, drained.status, undrained.status]).toEqual([200, 200, 200]);
    expect(codeOf(await router.put('/tiers', { gold: 2 }))).toEqual(full);
    expect(codeOf(await router.put('/merchants/acme', {}))).toEqual(full);

    // The row of the history is rejected, too, and counted: the next check reports it.
    for (let i = 0; i < 2; i++) await router.context.history.runOnce();
    const { body } = await router.get('/alerts');
    expect(body.alerts.map(({ name }: { name: string }) => name)).toEqual(['calls.store_full']);
    const { text } = await router.get('/metrics');
    expect(text).toMatch(/^smart_router_store_full_total [1-9]/m);
    expect(text).toContain('smart_router_store_errors_total{operation="allocate"} 0');
    expect(router.logText() + second.logText()).not.toMatch(/did not answer|lost the connection|unreachable/);
    const logged = [router, second].flatMap((one) => one.logs());
    const warnings = logged.filter(
      ({ level, msg }) => msg !== 'request' && (level === 'warn' || level === 'error'),
    );
    expect(warnings.filter(({ condition }) => condition !== 'calls.store_full')).toEqual([]);

    expect((await router.post('/release', { call_sid: 'CA1' })).body.released_to_pool).toBe('pool:gold');
    await limit(0);
    expect((await router.post('/allocate', { call_sid: 'CA2' })).body.pod_name).toBe('gold-1');
  });
});
