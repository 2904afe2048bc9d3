/** More tabs of the console than the browser opens connections to one router. */
import type { Page } from 'playwright-core';
import { it } from 'vitest';
import { describeBrowser, patientEnv } from '../support/browser.js';
import { describeOneEngine } from '../support/engines.js';
import { startTestRouter } from '../support/router.js';

const tabs = 8;

/** Chromium shows every page of a test as visible. */
const setHidden = (page: Page, isHidden: boolean) =>
  page.evaluate(`
    Object.defineProperty(document, 'hidden', { value: ${isHidden}, configurable: true });
    document.dispatchEvent(new Event('visibilitychange'));
  `);

describeBrowser('the console', (browser) => {
  describeOneEngine('in many tabs', (engine) => {
    it('is live in each visible one, because a hidden one closes its event stream', async () => {
      const router = await startTestRouter(engine.url, patientEnv);
      try {
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
      } finally {
        await browser.close();
        await router.stop();
      }
    });
  });
});
