/** Waiting, limits and explain over HTTP with two routers, on every kind of store: the same requests, the same answers. */
import { afterEach, describe, expect, it } from 'vitest';
import {
  embeddedValkey,
  nativeAvailable,
  nativeRedis,
  redisCluster,
  redisSentinel,
} from '../support/engines.js';
import { startTestRouter, type TestRouter } from '../support/router.js';
import { until } from '../support/until.js';

const env = {
  STATIC_PODS: 'gold-1=gold',
  TIER_CONFIG: JSON.stringify({
    tiers: { gold: { type: 'exclusive', target: 1 } },
    hold: { max_wait: '60s', max_waiting: 3 },
  }),
  VOICE_AGENT_BASE_URL: 'wss://voice.example.com',
  PUBLIC_URL: 'https://calls.example.com',
};

const stores = {
  'embedded Valkey': embeddedValkey,
  'Redis 7': () => nativeRedis(),
  Sentinel: () => redisSentinel(),
  Cluster: () => redisCluster(3),
};

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

describe('calls that wait, on every kind of store', () => {
  for (const [name, startStore] of Object.entries(stores)) {
    it(`${name}: long polls, held callers, limits, order and explain`, async (test) => {
      const native = nativeAvailable();
      if (name !== 'embedded Valkey' && native !== true) return test.skip(native);
      const store = await startStore();
      cleanups.push(store.stop);
      const start = async (POD_NAME: string): Promise<TestRouter> => {
        const REDIS_KEY_PREFIX = name === 'Cluster' ? '{voice}:' : 'voice:';
        const router = await startTestRouter(store.url, { ...env, POD_NAME, REDIS_KEY_PREFIX });
        cleanups.push(router.stop);
        return router;
      };
      const [first, second] = [await start('first'), await start('second')];
      const ask = (router: TestRouter, call_sid: string, wait?: string, merchant_id?: string) =>
        router.post('/allocate', { call_sid, wait, merchant_id });
      const ring = (query: string) => first.form(`/twilio/allocate${query}`, { CallSid: 'CA-held' });

      expect((await ask(first, 'CA-busy')).status).toBe(200);
      const held = await ring('');
      expect(held.text).toContain('<Redirect method="POST">');
      const poll = ask(second, 'CA-poll', '60s');
      await until(
        async () => (await first.get('/calls?waiting=true')).body.waiting.length === 2,
        'the long poll waits',
      );
      expect((await ask(first, 'CA-short', '0s')).body).toMatchObject({ status: 'waiting', position: 3 });
      expect((await ask(second, 'CA-many', '0s')).body.code).toBe('queue_full');
      expect((await first.get('/calls?waiting=true')).body.waiting).toHaveLength(3);
      expect((await second.post('/explain', { call_sid: 'CA-new' })).body.would).toBe('refuse');

      await second.post('/release', { call_sid: 'CA-busy' });
      expect((await second.post('/explain', { call_sid: 'CA-held' })).body).toMatchObject({
        would: 'allocate',
        pod_name: 'gold-1',
      });
      expect((await ring('?hold=1')).text).toContain('<Stream ');
      await first.form('/twilio/status', { CallSid: 'CA-held', CallStatus: 'completed' });
      expect((await poll).body).toMatchObject({ pod_name: 'gold-1', waited_ms: expect.any(Number) });
      expect((await first.post('/release', { call_sid: 'CA-short' })).body).toMatchObject({
        was_waiting: true,
      });
      await first.post('/release', { call_sid: 'CA-poll' });

      expect((await first.put('/merchants/acme', { max_calls: 1, hold: { max_wait: '1s' } })).status).toBe(
        200,
      );
      const limited = await ask(first, 'CA-one', undefined, 'acme');
      expect(limited.body.pod_name).toBe('gold-1');
      expect((await ask(second, 'CA-two', undefined, 'acme')).body.code).toBe('merchant_limit');
      expect((await ask(first, 'CA-two', '60s', 'acme')).body.code).toBe('wait_expired');
      expect((await first.get('/status')).body.waiting_calls).toBe(0);
    }, 120_000);
  }
});
