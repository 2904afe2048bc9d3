/** REDIS_WAIT_REPLICAS over HTTP: a real master, and a replica that stops. */
import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { type Engine, nativeAvailable, nativeRedis, redisReplica } from '../support/engines.js';
import { startTestRouter, type TestRouter } from '../support/router.js';
import { until } from '../support/until.js';

const tierConfig = {
  tiers: { gold: { type: 'exclusive', target: 1 } },
  default_chain: ['gold'],
  hold: { max_wait: '60s' },
};

describe.skipIf(nativeAvailable() !== true)('REDIS_WAIT_REPLICAS', () => {
  let master: Engine;
  let replica: Engine;
  let redis: Redis;

  beforeAll(async () => {
    master = await nativeRedis();
    replica = await redisReplica(master);
    redis = new Redis(master.port, '127.0.0.1');
    await until(async () => /state=online/.test(await redis.info('replication')), 'the replica is online');
  });
  afterAll(async () => {
    redis?.disconnect();
    await Promise.all([master?.stop(), replica?.stop()]);
  });

  async function start(env: Record<string, string>): Promise<TestRouter> {
    await redis.flushall();
    const router = await startTestRouter(master.url, {
      ...{ STATIC_PODS: 'gold-1=gold', TIER_CONFIG: JSON.stringify(tierConfig) },
      ...{ REQUEST_TIMEOUT: '20s', REDIS_WAIT_TIMEOUT: '100ms' },
      ...env,
    });
    onTestFinished(() => router.stop());
    return router;
  }
  const paused = async <T>(work: () => Promise<T>): Promise<T> => {
    await replica.pause();
    try {
      return await work();
    } finally {
      await replica.resume();
    }
  };
  /** Allocates until the answer is confirmed, so that a slow machine does not matter. */
  const allocateConfirmed = (router: TestRouter, callSid: string) =>
    until(async () => {
      const { status, body } = await router.post('/allocate', { call_sid: callSid });
      return status === 200 && !('replicated' in body);
    }, 'an allocate is confirmed');

  it('marks an allocate, a release and a drain that no replica has', async () => {
    const router = await start({ REDIS_WAIT_REPLICAS: '1' });
    await allocateConfirmed(router, 'CA0');
    await router.post('/release', { call_sid: 'CA0' });
    await paused(async () => {
      const allocated = await router.post('/allocate', { call_sid: 'CA1' });
      expect([allocated.status, allocated.body.pod_name, allocated.body.replicated]).toEqual([
        200,
        'gold-1',
        false,
      ]);
      const released = await router.post('/release', { call_sid: 'CA1' });
      expect([released.status, released.body.replicated]).toEqual([200, false]);
      expect((await router.post('/release', { call_sid: 'CA1' })).body.code).toBe('call_not_found');
      const drained = await router.post('/drain', { pod_name: 'gold-1' });
      expect([drained.status, drained.body.replicated]).toEqual([200, false]);
    });
    const { text } = await router.get('//metrics');
    expect(text).toMatch(/replication_confirmations_total\{outcome="timeout"\} [1-9]/);
    expect(text).toMatch(/replication_confirmations_total\{outcome="confirmed"\} [1-9]/);
    expect(router.logText()).toContain('writes not confirmed by enough replicas');
  });

  it('confirms the answer of a long poll that gets a released pod', async () => {
    const router = await start({ REDIS_WAIT_REPLICAS: '1' });
    await allocateConfirmed(router, 'CA0');
    const longPoll = router.post('/allocate', { call_sid: 'CA1', wait: '60s' });
    await until(() => router.context.queue.openRequests === 1, 'the long poll waits');
    await paused(async () => {
      await router.post('/release', { call_sid: 'CA0' });
      const { status, body } = await longPoll;
      expect([status, body.pod_name, body.replicated]).toEqual([200, 'gold-1', false]);
    });
  });

  it('refuses and releases a new call that no replica has, and refuses an existing one without a release', async () => {
    const router = await start({ REDIS_WAIT_REPLICAS: '1', REDIS_WAIT_POLICY: 'refuse' });
    await paused(async () => {
      const refused = await router.post('/allocate', { call_sid: 'CA1' });
      expect([refused.status, refused.body.code]).toEqual([503, 'not_replicated']);
      expect(refused.headers['retry-after']).toBe('1');
      const webhook = await router.form('/twilio/allocate', { CallSid: 'CA2' });
      expect(webhook.status).toBe(503);
    });
    expect(await redis.exists('voice:call:CA1', 'voice:call:CA2')).toBe(0);
    await allocateConfirmed(router, 'CA3');
    await paused(async () => {
      expect((await router.post('/allocate', { call_sid: 'CA3' })).body.code).toBe('not_replicated');
    });
    expect((await router.get('/pod/gold-1')).body.calls).toEqual(['CA3']);
    await paused(async () => {
      const released = await router.post('/release', { call_sid: 'CA3' });
      expect([released.status, released.body.replicated]).toEqual([200, false]);
    });
    expect((await router.get('/pod/gold-1')).body.calls).toEqual([]);
  });

  it('keeps the pod of a waiting call whose pick-up was refused', async () => {
    const router = await start({ REDIS_WAIT_REPLICAS: '1', REDIS_WAIT_POLICY: 'refuse' });
    await allocateConfirmed(router, 'CA0');
    const longPoll = router.post('/allocate', { call_sid: 'CA1', wait: '60s' });
    await until(() => router.context.queue.openRequests === 1, 'the long poll waits');
    await paused(async () => {
      await router.post('/release', { call_sid: 'CA0' });
      expect((await longPoll).body.code).toBe('not_replicated');
    });
    await allocateConfirmed(router, 'CA1');
  });

  it('opens no connection and sends no WAIT when it is 0', async () => {
    await redis.config('RESETSTAT');
    const router = await start({});
    await router.post('/allocate', { call_sid: 'CA1' });
    const { body } = await paused(() => router.post('/release', { call_sid: 'CA1' }));
    expect(body).toEqual({
      success: true,
      pod_name: 'gold-1',
      released_to_pool: 'pool:gold',
      was_draining: false,
    });
    expect(await redis.info('commandstats')).not.toContain('cmdstat_wait');
    expect(await redis.exists('voice:replication')).toBe(0);
  });
});
