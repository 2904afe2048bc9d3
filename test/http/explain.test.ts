/** Explain over HTTP: what an allocate would do, why, and what would free a place. */
import { afterEach, beforeEach, expect, it } from 'vitest';
import { describeOneEngine } from '../support/engines.js';
import { dump, startTestRouter, type TestRouter } from '../support/router.js';

const quiet = { CLEANUP_INTERVAL: '20m', RECONCILE_INTERVAL: '1h' };

describeOneEngine('explain over HTTP', (engine) => {
  let router: TestRouter;
  beforeEach(async () => {
    router = await startTestRouter(engine.url, quiet);
  });
  afterEach(() => router.stop());

  const fill = async (merchant_id?: string) => {
    for (let i = 0; i < 5; i += 1) await router.post('/allocate', { call_sid: `CA${i}`, merchant_id });
  };
  const steps = (body: { steps: object[] }, ...fields: string[]) =>
    body.steps.map((step) => fields.map((field) => (step as Record<string, unknown>)[field]));

  it('names the pool that the call would get, and changes nothing', async () => {
    const before = await dump(engine.redis);
    const { status, body } = await router.post('/explain', { call_sid: 'CA1' });
    expect(status).toBe(200);
    expect(body).toMatchObject({
      would: 'allocate',
      code: null,
      pod_name: expect.stringMatching(/^gold-[12]$/),
      source_pool: 'pool:gold',
      was_existing: false,
      max_calls: null,
      live_calls: null,
      queue: null,
      next: [],
    });
    expect(body.summary).toBe(`call CA1 would get a pod of pool:gold, for example ${body.pod_name}`);
    expect(steps(body, 'pool', 'type', 'pods', 'free', 'counted', 'result', 'reason')).toEqual([
      ['pool:gold', 'exclusive', 2, 2, true, 'taken', 'a free pod'],
      ['pool:basic', 'shared', 1, 1, true, 'not_tried', 'pool:gold has a pod'],
    ]);
    expect(await dump(engine.redis)).toEqual(before);
    const { body: call } = await router.post('/allocate', { call_sid: 'CA1' });
    const again = await router.post('/explain', { call_sid: 'CA1' });
    expect(again.body).toMatchObject({ would: 'allocate', pod_name: call.pod_name, was_existing: true });
    expect(again.body.summary).toBe(`call CA1 has pod ${call.pod_name} of pool:gold`);
  });

  it('says why a call would be refused, and what would free a place', async () => {
    await router.post('/drain', { pod_name: 'gold-2' });
    await fill();
    const { body } = await router.post('/explain', { merchant_id: 'acme' });
    expect(body).toMatchObject({ would: 'refuse', code: 'no_pods', pod_name: null, source_pool: null });
    expect(body.summary).toBe('a new call of acme would be refused (no_pods): no pod of its chain is free');
    expect(steps(body, 'pool', 'free', 'busy', 'draining', 'result', 'reason')).toEqual([
      ['pool:gold', 0, 1, 1, 'passed_over', 'no pod can take a call: 1 busy, 1 draining'],
      ['pool:basic', 0, 1, 0, 'passed_over', 'no pod can take a call: 1 busy'],
    ]);
    const texts = body.next.map(({ text }: { text: string }) => text.replace(/in \d+ (s|min)/, 'in N'));
    expect(texts).toEqual([
      'drain of gold-2 ends in N',
      'lease of CA0 on gold-1 expires in N, unless it is renewed',
      'lease of CA1 on basic-1 expires in N, unless it is renewed',
      'a call on pool:gold ends',
      'a call on pool:basic ends',
    ]);
    const times = body.next.map(({ at }: { at: string | null }) => at);
    expect(times.slice(0, 3)).toEqual([...times.slice(0, 3)].sort());
    expect(times.slice(3)).toEqual([null, null]);
  });

  it('says that a merchant is at its limit, with and without a queue', async () => {
    await router.put('/merchants/acme', { max_calls: 1 });
    await router.post('/allocate', { call_sid: 'CA1', merchant_id: 'acme' });
    const { body } = await router.post('/explain', { merchant_id: 'acme', wait: '5s' });
    expect(body).toMatchObject({ would: 'refuse', code: 'merchant_limit', max_calls: 1, live_calls: 1 });
    expect(body.summary).toMatch(/\(merchant_limit\): acme has 1 live call, and its max_calls is 1$/);
    expect(steps(body, 'free', 'result')).toEqual([
      [1, 'not_tried'],
      [1, 'not_tried'],
    ]);
    expect(body.next[0].text).toMatch(/^lease of CA1 on gold-[12] expires in 15 min, unless it is renewed$/);
    await router.put('/merchants/acme', { max_calls: 1, hold: { max_wait: '60s', max_waiting: 1 } });
    const wanted = { merchant_id: 'acme', wait: '0s' };
    const held = await router.post('/explain', wanted);
    expect(held.body).toMatchObject({ would: 'wait', code: null });
    expect(held.body.queue).toEqual({
      position: 1,
      waiting: 0,
      max_waiting: 1,
      waiting_all: 0,
      max_waiting_all: 1000,
      higher_priority: 0,
    });
    await router.post('/allocate', { ...wanted, call_sid: 'CA2' });
    const full = await router.post('/explain', wanted);
    expect(full.body).toMatchObject({ would: 'refuse', code: 'queue_full', queue: { position: null } });
  });

  it('names steps of a merchant that are not pools', async () => {
    await router.put('/merchants/acme', { fallback: ['merchant:own', 'nowhere', 'gold'] });
    const { body } = await router.post('/explain', { merchant_id: 'acme' });
    expect(body.skipped).toEqual([{ step: 'nowhere', reason: 'no such tier' }]);
    expect(steps(body, 'pool', 'type', 'reason')).toEqual([
      ['merchant:own', null, 'the pool does not exist'],
      ['pool:gold', 'exclusive', 'a free pod'],
    ]);
  });

  it.each([
    [{ call_sid: '' }, /^call_sid must be/],
    [{ merchant_id: 7 }, /^merchant_id must be/],
    [{ wait: '2h' }, /^wait must be a duration from 0s to 60s/],
  ])('rejects %j', async (body, message) => {
    const { status, body: answer } = await router.post('/explain', body);
    expect([status, answer.code]).toEqual([400, 'invalid_request']);
    expect(answer.error).toMatch(message);
  });
});
