/** A thousand pods and five thousand calls: the page holds what is in view and no more, and still finds everything. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { describeBrowser, patientEnv } from '../support/browser.js';
import { type Engine, embeddedValkey } from '../support/engines.js';
import { startTestRouter, type TestRouter } from '../support/router.js';

const pods = 1000;
const calls = 5000;
/** What fits on the screen of the test, and some above and below. */
const mostRows = 60;

describeBrowser('the console of a large fleet', (browser) => {
  let engine: Engine;
  let router: TestRouter;
  beforeAll(async () => {
    engine = await embeddedValkey();
    router = await startTestRouter(engine.url, {
      ...patientEnv,
      STATIC_PODS: Array.from({ length: pods }, (_, n) => `agent-${n}=basic`).join(','),
      TIER_CONFIG: JSON.stringify({ tiers: { basic: { type: 'shared', target: pods, max_concurrent: 5 } } }),
      LEASE_TTL: '15m',
      CLEANUP_INTERVAL: '30s',
      RECONCILE_INTERVAL: '30s',
      LOG_LEVEL: 'warn',
    });
    const request = { merchantId: '', provider: 'twilio', flow: 'v2', template: 't' };
    for (let n = 0; n < calls; n += 100) {
      await Promise.all(
        Array.from({ length: 100 }, (_, i) =>
          router.context.router.allocate({ ...request, callSid: `CA-${n + i}` }),
        ),
      );
    }
  }, 120_000);
  afterAll(async () => {
    await router.stop();
    await engine.stop();
  });

  it('lists all calls with a page of rows, scrolls to the last, filters and sorts', async () => {
    const page = await browser.open(`${router.url}/#/calls`);
    const table = page.getByRole('table', { name: 'Live calls' });
    await page.getByRole('main').getByText('5,000 live').waitFor();
    expect(await table.getAttribute('aria-rowcount')).toBe(String(calls + 1));
    expect(await table.getByRole('row').count()).toBeLessThan(mostRows);
    await page.getByRole('button', { name: 'Call', exact: true }).click();
    await table.getByText('CA-0', { exact: true }).waitFor();
    await page
      .getByRole('region', { name: 'Live calls' })
      .evaluate((box) => box.scrollTo(0, box.scrollHeight));
    await table.getByText('CA-4999', { exact: true }).waitFor();
    expect(await table.getByRole('row').count()).toBeLessThan(mostRows);
    await page.getByLabel('Search calls').fill('CA-1234');
    await page.getByText('1 of 5,000 live').waitFor();
    await table.getByText('CA-1234', { exact: true }).waitFor();
  });

  it('lists all pods likewise, and stays true while calls come and go', async () => {
    const page = await browser.open(`${router.url}/#/pods`);
    const table = page.getByRole('table', { name: 'Pods' });
    await page.getByRole('button', { name: 'All 1000' }).waitFor();
    expect(await table.getByRole('row').count()).toBeLessThan(mostRows);
    await page.getByLabel('Search pods').fill('agent-777');
    const row = table.getByRole('row').filter({ hasText: 'agent-777' });
    await row.getByText('5', { exact: true }).waitFor();
    const { calls: own } = (await router.get('/pod/agent-777')).body;
    await router.post('/release', { call_sid: own[0] });
    await row.getByText('4', { exact: true }).waitFor();
    await router.post('/allocate', { call_sid: own[0] });
    await row.getByText('5', { exact: true }).waitFor();
  });

  it('draws every pod of the pool', async () => {
    const page = await browser.open(`${router.url}/#/overview`);
    await page.getByRole('img', { name: /^basic: 1,000 pods, 5,000 calls/ }).waitFor();
    expect(await page.locator('[data-pod]').count()).toBe(pods);
  });
});
