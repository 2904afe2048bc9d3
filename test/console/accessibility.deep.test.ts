/** Every page and every dialog, light and dark, judged by axe: contrast, names, roles, order. */
import { afterEach, beforeEach, expect, it } from 'vitest';
import { findings } from '../support/axe.js';
import { describeBrowser, patientEnv } from '../support/browser.js';
import { describeOneEngine } from '../support/engines.js';
import { startTestRouter, type TestRouter } from '../support/router.js';

const pages: [hash: string, sign: string][] = [
  ['overview', 'Latest events'],
  ['pods', 'gold-1'],
  ['pods/gold-1', 'UID'],
  ['calls', 'CA1'],
  ['calls/CA1', 'Timeline'],
  ['recovery', 'Calls recovered'],
  ['records', 'This router has no records'],
  ['tiers', 'Chain of its calls'],
  ['events', 'CA1'],
  ['runbook/operations/the-keys-for-redis-cli', 'deleting it'],
];

describeBrowser('accessibility of the console', (browser) => {
  describeOneEngine('on a router', (engine) => {
    let router: TestRouter;
    beforeEach(async () => {
      router = await startTestRouter(engine.url, patientEnv);
      await router.post('/allocate', { call_sid: 'CA1', merchant_id: 'acme' });
      await router.post('/allocate', { call_sid: 'CA2' });
      await router.post('/drain', { pod_name: 'basic-1' });
      await router.put('/merchants/acme', { tier: 'gold', pool: 'vip' });
    });
    afterEach(async () => {
      await browser.close();
      await router.stop();
    });

    for (const colorScheme of ['light', 'dark'] as const) {
      it(`every page is accessible, ${colorScheme}`, async () => {
        const page = await browser.open(`${router.url}/`, { colorScheme });
        for (const [hash, sign] of pages) {
          await page.goto(`${router.url}/#/${hash}`);
          await page.getByText(sign).first().waitFor();
          expect(await findings(page), hash).toEqual([]);
        }
      });

      it(`every dialog is accessible, ${colorScheme}`, async () => {
        const page = await browser.open(`${router.url}/#/pods`, { colorScheme });
        await page.getByRole('button', { name: 'Drain gold-1' }).click();
        await page.getByRole('dialog').waitFor();
        expect(await findings(page)).toEqual([]);
        await page.keyboard.press('Escape');
        await page.keyboard.press('?');
        await page.getByRole('dialog', { name: 'Keys and colours' }).waitFor();
        expect(await findings(page)).toEqual([]);
        await page.keyboard.press('Escape');
        await page.getByRole('button', { name: 'Find a call or a pod' }).click();
        await page.getByLabel('Call id or pod name').fill('gold');
        await page.getByRole('link', { name: /^Pod gold-1/ }).waitFor();
        expect(await findings(page)).toEqual([]);
        await page.keyboard.press('Escape');
        await page.goto(`${router.url}/#/tiers`);
        await page.getByRole('button', { name: 'Edit tiers' }).click();
        await page.getByRole('region', { name: 'Preview of the chains' }).waitFor();
        expect(await findings(page)).toEqual([]);
        await page.keyboard.press('Escape');
        await page.getByRole('button', { name: 'Edit acme' }).click();
        await page.getByRole('dialog').waitFor();
        expect(await findings(page)).toEqual([]);
      });
    }

    it('every page fits 360 pixels', async () => {
      const page = await browser.open(`${router.url}/`, { viewport: { width: 360, height: 740 } });
      for (const [hash, sign] of pages) {
        await page.goto(`${router.url}/#/${hash}`);
        await page.getByText(sign).first().waitFor();
        const isWider = 'document.documentElement.scrollWidth > document.documentElement.clientWidth';
        expect(await page.evaluate(isWider), hash).toBe(false);
        expect(await findings(page), hash).toEqual([]);
      }
    });

    it('announces alerts and changes of state to screen readers', async () => {
      const page = await browser.open(`${router.url}/#/pods`);
      await page.getByRole('button', { name: 'Drain gold-1' }).click();
      await page.getByRole('dialog').getByRole('button', { name: 'Drain' }).click();
      await page
        .locator('[aria-live="polite"]')
        .getByText(/^Pod gold-1 is draining/)
        .waitFor();
    });
  });

  describeOneEngine('on a router with keys', (engine) => {
    it('the sign-in is accessible', async () => {
      const router = await startTestRouter(engine.url, {
        ...patientEnv,
        SMART_ROUTER_ADMIN_KEY: 'admin-key-0123456789',
      });
      try {
        for (const colorScheme of ['light', 'dark'] as const) {
          const page = await browser.open(`${router.url}/`, { colorScheme });
          await page.getByRole('heading', { name: 'Sign in' }).waitFor();
          expect(await findings(page)).toEqual([]);
        }
      } finally {
        await browser.close();
        await router.stop();
      }
    });
  });
});
