/** Unusual input: keys written by hand, numbers beyond 64 bits, unexpected methods. */
import { Redis } from 'ioredis';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { describeEngines } from '../support/engines.js';
import { startTestRouter, type TestRouter } from '../support/router.js';

describeEngines('rare requests', (engine) => {
  let router: TestRouter;
  let redis: Redis;
  let prefix: string;
  beforeEach(async () => {
    router = await startTestRouter(engine.url);
    redis = new Redis(engine.url);
    prefix = router.context.store.connection.keyPrefix;
  });
  afterEach(async () => {
    redis.disconnect();
    await router.stop();
  });

  it('a fallback that names only an unknown merchant pool still gives the call a pod', async () => {
    const { body } = await router.put('/merchants/ghost', { fallback: ['merchant:nosuchpool'] });
    expect(body.skipped).toEqual([{ step: 'merchant:nosuchpool', reason: 'no such merchant pool' }]);
    expect((await router.post('/allocate', { call_sid: 'G1', merchant_id: 'ghost' })).status).toBe(200);
  });

  it.each(['/events?since=1-99999999999999999999', '/pods?cursor=pool:gold,99999999999999999999'])(
    '%s is 400',
    async (path) => expect((await router.get(path)).status).toBe(400),
  );

  it.each(['1', 'yes', 'inf', 'nan', '0x7fffffffffffffff', '1794735618643573000'])(
    'a draining mark %s by hand is shown, blocks, and can be drained',
    async (mark) => {
      await redis.set(`${prefix}pod:draining:gold-1`, mark);
      const { status, body } = await router.get('/pod/gold-1');
      expect([status, body.is_draining, body.draining_until]).toEqual([200, true, null]);
      expect((await router.get('/pods')).status).toBe(200);
      expect((await router.post('/drain', { pod_name: 'gold-1' })).status).toBe(200);
    },
  );

  it.each(['a\u2028b', '__proto__'])('the report of a call %j has its fence', async (sid) => {
    const { body } = await router.post('/allocate', { call_sid: sid });
    const report = await router.post(`/pod/${body.pod_name}/report`, { calls: [sid] });
    expect(Object.entries(report.body.fences)).toEqual([[sid, body.fence]]);
  });

  it('HEAD takes no pod', async () => {
    const answer = await router.ask('/exotel/allocate?CallSid=H1', { method: 'HEAD' });
    expect(answer.status).toBe(405);
    expect((await router.get('/calls/H1')).status).toBe(404);
  });
});
