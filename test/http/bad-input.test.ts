/** Every row of the table is refused as it says, and changes nothing. */
import { afterEach, beforeEach, expect, it } from 'vitest';
import { describeOneEngine } from '../support/engines.js';
import { dump, startTestRouter, type TestRouter } from '../support/router.js';
import { rows } from './bad-input-table.js';

// The loops are too slow to change anything while the table is sent.
const quiet = { CLEANUP_INTERVAL: '20m', RECONCILE_INTERVAL: '1h', TIER_CONFIG_REFRESH_INTERVAL: '1h' };

describeOneEngine('wrong input', (engine) => {
  let router: TestRouter;
  beforeEach(async () => {
    router = await startTestRouter(engine.url, quiet);
  });
  afterEach(() => router.stop());

  it('is refused with its status, its code and one clear sentence, and changes nothing in the store', async () => {
    const before = await dump(engine.redis);
    const wrong: unknown[] = [];
    for (const [what, status, code, sentence, send] of rows) {
      const answer = await send(router);
      const { body } = answer;
      const right =
        answer.status === status &&
        body?.success === false &&
        body.code === code &&
        sentence.test(body.error) &&
        !body.error.includes('\n');
      if (!right)
        wrong.push({ what, expected: { status, code, sentence }, is: answer.status, got: answer.text });
    }
    expect(wrong).toEqual([]);
    expect(await dump(engine.redis)).toEqual(before);
    expect(rows.length).toBeGreaterThan(150);
  }, 60_000);

  it('in a tier configuration is listed whole in `problems`', async () => {
    const answer = await router.put('/tiers', {
      tiers: {
        'a b': {},
        gold: { type: 'golden', target: -1 },
        basic: { type: 'shared', max_concurrent: 0 },
      },
      default_chain: 'gold',
    });
    expect(answer.status).toBe(400);
    expect(answer.body.problems).toEqual([
      expect.stringContaining('not a tier name: "a b"'),
      expect.stringContaining('tiers.gold.type must be'),
      expect.stringContaining('tiers.gold.target must be'),
      expect.stringContaining('tiers.basic.max_concurrent must be'),
      expect.stringContaining('default_chain must be a list'),
    ]);
  });

  it('does not include unknown fields: those are ignored', async () => {
    const answer = await router.post('/allocate', { call_sid: 'CA1', From: '+1555', nested: { a: [1] } });
    expect(answer.status).toBe(200);
    expect((await router.post('/release', { call_sid: 'CA1', why: 'done' })).status).toBe(200);
    expect((await router.post('/drain', { pod_name: 'gold-1', force: true })).status).toBe(200);
  });

  it('with content-type JSON and no body is fine where no body is needed', async () => {
    await router.put('/merchants/acme', { tier: 'gold' });
    const answer = await router.ask('/merchants/acme', {
      method: 'DELETE',
      headers: { 'content-type': 'application/json' },
    });
    expect(answer.body).toEqual({ success: true, merchant_id: 'acme' });
  });
});
