/** Calls that wait for a pod, over HTTP: long polls on several replicas, answers, limits, settings. */
import { afterEach, expect, it } from 'vitest';
import { readCounts } from '../../src/calls/history/counts.js';
import { describeOneEngine } from '../support/engines.js';
import { postBytes, rawConnection } from '../support/raw-http.js';
import { startTestRouter, type TestRouter } from '../support/router.js';
import { until } from '../support/until.js';

const gold = { tiers: { gold: { type: 'exclusive', target: 1 } }, default_chain: ['gold'] };
const hold = { max_wait: '1m', max_waiting: 500 };
const env = { STATIC_PODS: 'gold-1=gold', TIER_CONFIG: JSON.stringify({ ...gold, hold }) };

describeOneEngine('calls that wait for a pod', (engine) => {
  const routers: TestRouter[] = [];
  afterEach(async () => {
    for (const router of routers.splice(0)) await router.stop();
  });
  const start = async (extra: Record<string, string> = {}) => {
    const router = await startTestRouter(engine.url, { ...env, ...extra });
    routers.push(router);
    return router;
  };
  /** A router whose only pod has the call `busy`. */
  const startBusy = async (extra: Record<string, string> = {}) => {
    const router = await start(extra);
    expect((await router.post('/allocate', { call_sid: 'busy' })).status).toBe(200);
    return router;
  };
  const ask = (router: TestRouter, call_sid: string, wait = '0s', merchant_id?: string) =>
    router.post('/allocate', { call_sid, wait, ...(merchant_id ? { merchant_id } : {}) });
  const open = async (router: TestRouter, count: number) => {
    await until(() => router.context.queue.openRequests === count, `${count} requests wait`);
    // A request counts as open before the store has its call. The store replies to this one after theirs.
    await router.get('/status');
  };
  const metric = async (router: TestRouter, line: string) =>
    (await router.get('/metrics')).text.includes(`\nsmart_router_${line}\n`);
  /** As after `max_wait`. */
  const expire = async (callSid: string) => {
    await engine.redis.hset(`voice:call:${callSid}`, 'wait_until', '1');
    await engine.redis.zadd('voice:waiting:due', 1, callSid);
  };

  it('holds twelve long polls of one connection without a warning of Node', async () => {
    const router = await startBusy();
    const warnings: Error[] = [];
    const keep = (warning: Error) => warnings.push(warning);
    process.on('warning', keep);
    const { socket } = await rawConnection(router.port);
    for (let i = 0; i < 12; i++) socket.write(postBytes('/allocate', { call_sid: `CA${i}`, wait: '60s' }));
    await open(router, 12);
    // Node emits a warning in the next turn.
    await new Promise((resolve) => setImmediate(resolve));
    process.off('warning', keep);
    expect(warnings).toEqual([]);
    socket.destroy();
    await open(router, 0);
  });

  it('answers a long poll when another replica releases a call', async () => {
    const [first, second] = [await startBusy(), await start({ POD_NAME: 'second' })];
    const polls = [ask(first, 'CA1', '60s'), ask(second, 'CA1', '60s')];
    await Promise.all([open(first, 1), open(second, 1)]);
    expect((await second.post('/release', { call_sid: 'busy' })).body.released_to_pool).toBe('pool:gold');
    const answers = await Promise.all(polls);
    for (const { status, body } of answers) {
      expect(status).toBe(200);
      expect(body).toMatchObject({ success: true, pod_name: 'gold-1', waited_ms: expect.any(Number) });
    }
    // One of them picked the call up; for the other it is an existing call.
    expect(answers.map(({ body }) => body.was_existing).sort()).toEqual([false, true]);
    expect(new Set(answers.map(({ body }) => body.fence)).size).toBe(1);
    const counts = await Promise.all(
      routers.map((router) => metric(router, 'waits_total{outcome="served"} 1')),
    );
    expect(counts.filter((isCounted) => isCounted)).toHaveLength(1);
    const written = await Promise.all(routers.map(({ context }) => readCounts(context.metrics)));
    const sum = (name: 'waits_served' | 'waits_within_20s') =>
      written.reduce((total, one) => total + one[name], 0);
    expect([sum('waits_served'), sum('waits_within_20s')]).toEqual([1, 1]);
  });

  it('answers 202 when `wait` ends; the same SID keeps its place', async () => {
    const router = await startBusy();
    const first = await ask(router, 'CA1', '10ms');
    expect(first.status).toBe(202);
    expect(first.body).toEqual({
      success: true,
      status: 'waiting',
      position: 1,
      waiting_since: expect.stringMatching(/Z$/),
      wait_expires_at: expect.stringMatching(/Z$/),
      retry_after_ms: 5000,
    });
    const { waiting_since, wait_expires_at } = first.body;
    expect(Date.parse(wait_expires_at) - Date.parse(waiting_since)).toBe(60_000);
    expect((await ask(router, 'CA2')).body.position).toBe(2);
    expect((await ask(router, 'CA1')).body).toEqual(first.body);
    expect((await ask(router, 'CA2')).body.position).toBe(2);
    await router.post('/release', { call_sid: 'busy' });
    expect((await ask(router, 'CA1')).body.pod_name).toBe('gold-1');
    expect((await ask(router, 'CA2')).body.position).toBe(1);
  });

  it('rejects a `wait` that is not a duration from 0s to 60s', async () => {
    const router = await start();
    const waits = ['-1s', 'inf', '61s', '1h', '', '5', 'x'.repeat(65), 5, null, true, ['1s'], { s: 1 }];
    for (const wait of waits) {
      const answer = await router.post('/allocate', { call_sid: 'CA1', wait });
      expect([wait, answer.status, answer.body.code]).toEqual([wait, 400, 'invalid_request']);
      expect(answer.body.error).toMatch(/^wait must be /);
    }
    expect((await router.get('/status')).body.active_calls).toBe(0);
  });

  it('without hold, and without `wait`, a call that finds no pod is refused at once', async () => {
    const router = await startBusy({ TIER_CONFIG: JSON.stringify(gold) });
    const refused = await router.post('/allocate', { call_sid: 'CA1' });
    expect([refused.status, refused.body.code, refused.headers['retry-after']]).toEqual([
      503,
      'no_pods',
      '1',
    ]);
    const asked = await ask(router, 'CA1', '60s');
    expect([asked.status, asked.body]).toEqual([503, refused.body]);
    expect((await router.put('/tiers', { ...gold, hold })).body.hold).toEqual(hold);
    expect((await router.post('/allocate', { call_sid: 'CA1' })).body).toEqual(refused.body);
    expect((await ask(router, 'CA1')).status).toBe(202);
    expect((await router.put('/tiers', gold)).body.hold).toBeUndefined();
    expect((await ask(router, 'CA2')).body).toEqual(refused.body);
  });

  it('refuses calls over max_calls and over max_waiting', async () => {
    const router = await start({ TIER_CONFIG: JSON.stringify(gold), STATIC_PODS: 'gold-1=gold,gold-2=gold' });
    await router.put('/merchants/acme', { max_calls: 1 });
    expect((await ask(router, 'CA1', '1s', 'acme')).status).toBe(200);
    const limited = await ask(router, 'CA2', '1s', 'acme');
    expect([limited.status, limited.body.code, limited.headers['retry-after']]).toEqual([
      429,
      'merchant_limit',
      '1',
    ]);
    await router.put('/merchants/acme', { max_calls: 1, hold: { max_wait: '20s', max_waiting: 1 } });
    expect((await ask(router, 'CA2', '0s', 'acme')).body).toMatchObject({ status: 'waiting', position: 1 });
    const full = await ask(router, 'CA3', '0s', 'acme');
    expect([full.status, full.body.code, full.headers['retry-after']]).toEqual([503, 'queue_full', '1']);
    expect((await router.post('/allocate', { call_sid: 'CA4' })).status).toBe(200);
    expect(await metric(router, 'waits_total{outcome="queue_full"} 1')).toBe(true);
    // A higher limit serves it, in the same step.
    await router.put('/merchants/acme', { max_calls: 2, hold: { max_wait: '20s' } });
    expect((await ask(router, 'CA2', '0s', 'acme')).body.status).toBe('waiting');
    await router.post('/release', { call_sid: 'CA4' });
    expect((await ask(router, 'CA2', '0s', 'acme')).body.pod_name).toMatch(/^gold-/);
  });

  it('an expired wait is 503 wait_expired, also for a long poll, and counts once', async () => {
    const router = await startBusy();
    const poll = ask(router, 'CA1', '60s');
    await open(router, 1);
    await expire('CA1');
    const expired = await poll;
    expect([expired.status, expired.body.code]).toEqual([503, 'wait_expired']);
    expect(await metric(router, 'waits_total{outcome="expired"} 1')).toBe(true);
    // A new request of the API enters the queue again.
    expect((await ask(router, 'CA1')).status).toBe(202);
  });

  it('release of a waiting call removes it and ends its long poll', async () => {
    const router = await startBusy();
    const poll = ask(router, 'CA1', '60s');
    await open(router, 1);
    const released = await router.post('/release', { call_sid: 'CA1' });
    expect([released.status, released.body]).toEqual([
      200,
      { success: true, pod_name: null, released_to_pool: null, was_draining: false, was_waiting: true },
    ]);
    expect((await router.post('/release', { call_sid: 'CA1' })).status).toBe(404);
    expect([(await poll).status, (await poll).body.code]).toEqual([503, 'wait_expired']);
    expect((await router.get('/status')).body.waiting_calls).toBe(0);
    expect(await metric(router, 'waits_total{outcome="abandoned"} 1')).toBe(true);
  });

  it('waiting long polls hold no slot: other calls are not rejected', async () => {
    const router = await startBusy({ MAX_REQUESTS_IN_FLIGHT: '2' });
    const polls: Promise<unknown>[] = [];
    for (let i = 1; i <= 30; i += 1) {
      polls.push(ask(router, `CA${i}`, '60s'));
      await until(
        () => router.context.admission.inFlight === 0 && router.context.queue.openRequests === i,
        'slot',
      );
    }
    expect((await router.post('/renew', { call_sid: 'busy' })).status).toBe(200);
    expect((await router.post('/allocate', { call_sid: 'busy' })).status).toBe(200);
    expect((await ask(router, 'CA31')).body.position).toBe(31);
    expect((await router.form('/twilio/allocate', { CallSid: 'busy' })).text).toContain('<Stream');
    await router.stop();
    await Promise.all(polls);
  });

  it('a router that stops answers its waiting polls with 202; another replica keeps their places', async () => {
    const [first, second] = [
      await startBusy({ SHUTDOWN_TIMEOUT: '1h' }),
      await start({ POD_NAME: 'second' }),
    ];
    const polls = ['CA1', 'CA2'].map((callSid) => ask(first, callSid, '60s'));
    await open(first, 2);
    await first.stop();
    for (const { status, body } of await Promise.all(polls)) {
      expect([status, body.status]).toEqual([202, 'waiting']);
      expect([1, 2]).toContain(body.position);
    }
    expect((await ask(second, 'CA3')).body.position).toBe(3);
  });

  it('a disconnected caller stays in the queue until its call counts as abandoned', async () => {
    const router = await startBusy();
    const { socket, closed } = await rawConnection(router.port);
    socket.write(postBytes('/allocate', { call_sid: 'CA1', wait: '60s' }));
    await open(router, 1);
    socket.destroy();
    await closed;
    await open(router, 0);
    expect((await ask(router, 'CA2')).body.position).toBe(2);
    // As after three intervals without a request.
    await engine.redis.zadd('voice:waiting:due', 1, 'CA1');
    await until(async () => (await ask(router, 'CA2')).body.position === 1, 'CA1 is abandoned');
    expect(await metric(router, 'waits_total{outcome="abandoned"} 1')).toBe(true);
    await router.post('/release', { call_sid: 'busy' });
    expect((await ask(router, 'CA2')).body.pod_name).toBe('gold-1');
  });

  it('gives the pod back if the caller disconnected while it was handed over', async () => {
    const router = await startBusy();
    const { socket, closed } = await rawConnection(router.port);
    socket.write(postBytes('/allocate', { call_sid: 'CA1', wait: '60s' }));
    await open(router, 1);
    socket.destroy();
    await closed;
    await router.post('/release', { call_sid: 'busy' });
    // Assigned to CA1, whose caller does not pick it up: free when the claim expires.
    await engine.redis.zadd('voice:pod:calls:gold-1', 1, 'CA1');
    await engine.redis.zadd('voice:pool:gold:calls', 1, 'CA1');
    await until(async () => (await ask(router, 'CA2')).body.pod_name === 'gold-1', 'CA2 gets the pod');
  });

  it('lists waiting calls page by page, with position and reason', async () => {
    const router = await startBusy({ STATIC_PODS: 'gold-1=gold' });
    await router.put('/merchants/acme', { max_calls: 1 });
    for (const callSid of ['CA1', 'CA2']) await ask(router, callSid);
    await ask(router, 'A1', '0s', 'acme');
    const page = (await router.get('/calls?waiting=true')).body;
    expect([page.calls, page.cursor, page.waiting.length]).toEqual([[], null, 3]);
    const waiting = page.waiting.sort((a: { call_sid: string }, b: { call_sid: string }) =>
      a.call_sid < b.call_sid ? -1 : 1,
    );
    expect(waiting[0]).toEqual({
      call_sid: 'A1',
      merchant_id: 'acme',
      provider: 'twilio',
      flow: 'v2',
      template: 'order-confirmation',
      position: 1,
      waiting_since: expect.stringMatching(/Z$/),
      wait_expires_at: expect.stringMatching(/Z$/),
      reason: 'no_pods',
      saw: expect.stringContaining('gold'),
    });
    expect(waiting.slice(1)).toMatchObject([{ position: 1 }, { position: 2 }]);
    expect((await router.get('/status')).body).toMatchObject({ waiting_calls: 3, active_calls: 1 });
    await until(
      async () => (await router.get('/status')).body.oldest_wait_seconds > 0,
      'the age of the oldest',
    );
    await router.post('/release', { call_sid: 'busy' });
    await router.post('/release', { call_sid: 'CA1' });
    await router.post('/release', { call_sid: 'CA2' });
    expect((await ask(router, 'A1', '0s', 'acme')).body.pod_name).toBe('gold-1');
    await ask(router, 'A2', '0s', 'acme');
    const limited = (await router.get('/calls?waiting=true&limit=1')).body.waiting;
    expect(limited).toMatchObject([{ call_sid: 'A2', reason: 'merchant_limit', saw: 'max_calls 1' }]);
    for (const wrong of ['waiting=1', 'waiting=true&pool=pool:gold', 'waiting=true&cursor=elsewhere,0'])
      expect((await router.get(`/calls?${wrong}`)).body.code).toBe('invalid_request');
    expect((await router.get('/calls/A2/timeline')).body).toMatchObject({ live: null, is_complete: true });
  });

  it('tiers and merchants carry the rules for waiting, and show them', async () => {
    const router = await start();
    expect((await router.get('/tiers')).body).toEqual({ ...gold, hold, version: 1 });
    const put = await router.put('/tiers', { ...gold, hold: { max_wait: '30s' } });
    const stored = { max_wait: '30s', max_waiting: 1000 };
    expect(put.body).toEqual({ ...gold, hold: stored, version: 2 });
    expect((await router.get('/tiers')).body.hold).toEqual(stored);
    expect((await router.get('/status')).body.tier_config_differs).toBe(true);
    await router.put('/tiers', { ...gold, hold });
    expect((await router.get('/status')).body.tier_config_differs).toBe(false);
    const acme = {
      tier: 'gold',
      hold: { max_wait: '20s', max_waiting: 20 },
      priority: 5,
      weight: 2,
      max_calls: 40,
      fallback_number: '+14155550100',
    };
    const shown = { merchant_id: 'acme', ...acme, chain: ['pool:gold'], skipped: [] };
    expect((await router.put('/merchants/acme', acme)).body).toEqual(shown);
    expect((await router.get('/merchants/acme')).body).toEqual(shown);
    expect((await router.get('/merchants')).body.merchants).toEqual([shown]);
    // A version without `hold` writes the tiers: the rules for waiting stay.
    const older = JSON.stringify({ ...gold, tiers: { gold: { type: 'exclusive', target: 3 } } });
    await engine.redis.set('voice:tier:config', older);
    expect((await router.get('/tiers')).body).toMatchObject({ tiers: { gold: { target: 3 } }, hold });
  });

  it('rejects wrong rules for waiting, and names each', async () => {
    const router = await start();
    const rejected = async (path: string, body: unknown, problem: RegExp) => {
      const answer = await router.put(path, body);
      expect([body, answer.status, answer.body.code]).toEqual([body, 400, 'invalid_request']);
      expect(answer.body.problems.join()).toMatch(problem);
    };
    const holds: [unknown, RegExp][] = [
      [null, /hold must be an object/],
      ['60s', /hold must be an object/],
      [{}, /hold.max_wait must be a duration from 1s to 1h/],
      [{ max_wait: 60 }, /hold.max_wait must be a duration/],
      [{ max_wait: '0s' }, /hold.max_wait must be a duration/],
      [{ max_wait: '2h' }, /hold.max_wait must be a duration/],
      [{ max_wait: '1s', max_waiting: 0 }, /hold.max_waiting must be a whole number from 1 to 100000/],
      [{ max_wait: '1s', max_waiting: 1.5 }, /hold.max_waiting must be/],
      [{ max_wait: '1s', most: 1 }, /hold has unknown keys: "most"/],
    ];
    for (const [wrong, problem] of holds) {
      await rejected('/tiers', { ...gold, hold: wrong }, problem);
      await rejected('/merchants/acme', { hold: wrong }, problem);
    }
    for (const [field, values] of Object.entries({
      priority: [-1, 10, '5', 0.5, null],
      weight: [0, -1, 101, '1'],
      max_calls: [0, -1, 1.5, '40'],
      fallback_number: ['', '12', 'sip:a@b', 14155550100, '+1 415 555'],
    })) {
      for (const value of values)
        await rejected('/merchants/acme', { [field]: value }, new RegExp(`${field} must be`));
    }
    await rejected('/merchants/acme', { prioritaet: 1 }, /unknown/);
    await rejected('/tiers', { ...gold, holds: hold }, /unknown keys/);
    expect((await router.get('/merchants')).body.merchants).toEqual([]);
    expect((await router.get('/tiers')).body.version).toBe(1);
  });

  it('calls wait on when their merchant is deleted, or their tier', async () => {
    const router = await start({ STATIC_PODS: 'gold-1=gold,vip-1=vip' });
    const tiers = { ...gold.tiers, vip: { type: 'exclusive', target: 1 } };
    await router.put('/tiers', { tiers, default_chain: ['gold', 'vip'], hold });
    const merchant = { fallback: ['vip'], hold: { max_wait: '20s' } };
    await router.put('/merchants/acme', merchant);
    await until(async () => (await router.get('/status')).body.pools.vip?.available === 1, 'the pod of vip');
    expect((await ask(router, 'A1', '0s', 'acme')).body.pod_name).toBe('vip-1');
    expect((await ask(router, 'A2', '0s', 'acme')).body.status).toBe('waiting');
    // The chain of the merchant is the default chain now, where a pod is free.
    const poll = ask(router, 'A2', '60s', 'acme');
    await open(router, 1);
    expect((await router.del('/merchants/acme')).status).toBe(200);
    expect((await poll).body.pod_name).toBe('gold-1');
    await router.put('/merchants/acme', merchant);
    expect((await ask(router, 'A3', '0s', 'acme')).body.status).toBe('waiting');
    await router.put('/tiers', { ...gold, hold });
    await router.post('/release', { call_sid: 'A2' });
    await until(
      async () => (await ask(router, 'A3', '0s', 'acme')).body.pod_name === 'gold-1',
      'a pod of gold',
    );
  });

  it('applies a limit that was written by hand', async () => {
    const router = await startBusy({ STATIC_PODS: 'gold-1=gold,gold-2=gold,gold-3=gold' });
    expect((await ask(router, 'CA1', '0s', 'acme')).status).toBe(200);
    await engine.redis.hset('voice:merchant:config', 'acme', JSON.stringify({ max_calls: 1 }));
    await until(
      async () => (await engine.redis.hget('voice:limits', 'acme')) === '1',
      'the limit is applied',
    );
    expect((await ask(router, 'CA2', '0s', 'acme')).body.status).toBe('waiting');
    await engine.redis.hset('voice:merchant:config', 'acme', '{}');
    await until(async () => (await ask(router, 'CA2', '0s', 'acme')).body.pod_name, 'CA2 gets a pod');
  });
});
