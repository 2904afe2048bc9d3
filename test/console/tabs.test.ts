/** Hidden tabs of the console: more of them than the browser opens connections to one router, and hidden for long. */
import type { Page } from 'playwright-core';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { describeBrowser, patientEnv } from '../support/browser.js';
import { describeOneEngine } from '../support/engines.js';
import { startTestRouter, type TestRouter } from '../support/router.js';

const tabs = 8;

/** Chromium shows every page of a test as visible. */
const setHidden = (page: Page, isHidden: boolean) =>
  page.evaluate(`
    Object.defineProperty(document, 'hidden', { value: ${isHidden}, configurable: true });
    document.dispatchEvent(new Event('visibilitychange'));
  `);

describeBrowser('the console', (browser) => {
  describeOneEngine('in tabs', (engine) => {
    let router: TestRouter;
    beforeEach(async () => {
      router = await startTestRouter(engine.url, patientEnv);
    });
    afterEach(async () => {
      await browser.close();
      await router.stop();
    });

    it('is live in each visible one, because a hidden one closes its event stream', async () => {
      const first = await browser.open(`${router.url}/#/pods`);
      let page: Page = first;
      for (let tab = 1; tab <= tabs; tab++) {
        await page.getByText('Live', { exact: true }).waitFor();
        await setHidden(page, true);
        if (tab === tabs) break;
        page = await first.context().newPage();
        await page.goto(`${router.url}/#/pods`);
      }
      const stream = first.waitForRequest(/\/api\/v1\/events(\?|$)/);
      await setHidden(first, false);
      await stream;
      await first.getByText('Live', { exact: true }).waitFor();
    });

    it.each([
      ['half a minute', 30_000, /\/api\/v1\/events\?since=/],
      ['two minutes', 120_000, /\/api\/v1\/events$/],
    ])('hidden for %s shows the events of that time', async (_, ms, stream) => {
      const page = await browser.open(`${router.url}/#/events`);
      await page.getByText('Live', { exact: true }).waitFor();
      await router.post('/allocate', { call_sid: 'CA-before' });
      await page.getByText('CA-before').first().waitFor();
      await setHidden(page, true);
      await router.post('/allocate', { call_sid: 'CA-hidden' });
      await page.evaluate(`{ const now = Date.now; Date.now = () => now() + ${ms}; }`);
      const opened = page.waitForRequest(stream);
      await setHidden(page, false);
      await opened;
      await page.getByText('CA-hidden').first().waitFor();
      await router.post('/allocate', { call_sid: 'CA-after' });
      await page.getByText('CA-after').first().waitFor();
      expect(await page.getByText('CA-hidden').count()).toBe(1);
      expect(await page.getByText('CA-before').count()).toBe(1);
    });
  });
});
