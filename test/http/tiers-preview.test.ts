/** The preview of a tier configuration: what a PUT would give, without doing it. */
import { afterEach, beforeEach, expect, it } from 'vitest';
import { assignmentOf } from '../../src/pool/registration.js';
import { describeOneEngine } from '../support/engines.js';
import { dump, startTestRouter, type TestRouter } from '../support/router.js';

const quiet = { CLEANUP_INTERVAL: '20m', RECONCILE_INTERVAL: '1h', TIER_CONFIG_REFRESH_INTERVAL: '1h' };

const tiersWith = (basic: object) => ({
  tiers: { gold: { target: 2 }, basic, vip: { target: 0 } },
  default_chain: ['gold', 'basic'],
});

interface PreviewedChain {
  merchant_id: string | null;
  chain: string[];
  skipped: { step: string; reason: string }[];
}

describeOneEngine('a preview of tiers', (engine) => {
  let router: TestRouter;
  beforeEach(async () => {
    router = await startTestRouter(engine.url, {
      ...quiet,
      TIER_CONFIG: JSON.stringify(tiersWith({ type: 'shared', target: 1, max_concurrent: 3 })),
    });
    await router.put('/merchants/acme', { tier: 'basic' });
    await router.put('/merchants/beta', { pool: 'vip' });
    await router.put('/merchants/own', { fallback: ['merchant:vip'] });
    await router.put('/merchants/label', { fallback: ['merchant:labelled', 'silver'] });
    await router.put('/merchants/none', { fallback: ['merchant:nowhere'] });
    const { context } = router;
    const pod = { name: 'labelled-1', uid: '', suspended: '' as const, mustReport: false, metadata: '{}' };
    await context.pools.register(
      '',
      [{ ...pod, pool: 'merchant:labelled' }],
      assignmentOf(context.settings.tiers),
    );
  });
  afterEach(() => router.stop());

  const merchants = async () =>
    (await router.get('/merchants')).body.merchants.map(
      ({ merchant_id, chain, skipped }: PreviewedChain): PreviewedChain => ({ merchant_id, chain, skipped }),
    ) as PreviewedChain[];

  it.each([
    ['the same with another limit', tiersWith({ type: 'shared', target: 1, max_concurrent: 4 })],
    ['the same again', tiersWith({ type: 'shared', target: 1, max_concurrent: 3 })],
    [
      'a tier less in the chain',
      { tiers: { gold: { target: 2 }, basic: { target: 1 }, vip: {} }, default_chain: ['gold'] },
    ],
    [
      'a merchant pool less',
      { tiers: { gold: { target: 2 }, basic: { target: 1 } }, default_chain: ['gold', 'basic'] },
    ],
    ['another merchant pool', { tiers: { gold: {}, nowhere: {}, vip: {} }, default_chain: ['gold'] }],
    ['other names altogether', { silver: 1, bronze: 2 }],
  ])('gives every merchant the chain that PUT then gives: %s', async (_, config) => {
    const before = await dump(engine.redis);
    const preview = await router.post('/tiers/preview', config);
    expect([preview.status, preview.body.valid, preview.body.problems]).toEqual([200, true, []]);
    expect(await dump(engine.redis)).toEqual(before);
    const put = await router.put('/tiers', config);
    expect(put.status).toBe(200);
    expect(preview.body.warnings).toEqual(put.body.warnings ?? []);
    const [whole, ...chains] = preview.body.chains as PreviewedChain[];
    expect(chains).toEqual(await merchants());
    expect(whole).toEqual({
      merchant_id: null,
      chain: [...router.context.settings.chainFor('another merchant').steps],
      skipped: [],
    });
  });

  it('lists every problem for which PUT would refuse it, without chains', async () => {
    const config = { tiers: { 'a b': {}, gold: { target: -1 } }, default_chain: 'gold' };
    const preview = await router.post('/tiers/preview', config);
    const put = await router.put('/tiers', config);
    expect(put.status).toBe(400);
    expect([preview.status, preview.body]).toEqual([
      200,
      { valid: false, problems: put.body.problems, warnings: expect.any(Array), chains: [] },
    ]);
    expect(preview.body.problems.length).toBeGreaterThan(2);
  });

  it('needs an object', async () => {
    for (const body of [[], 'text', 5, null]) {
      const answer = await router.post('/tiers/preview', body);
      expect([answer.status, answer.body.code]).toEqual([400, 'invalid_request']);
    }
  });
});
