/** Calls that a router refused for overload are seen on the overview: as failures, in words, and as an alert. */
import { expect, it } from 'vitest';
import { describeBrowser, patientEnv } from '../support/browser.js';
import { describeOneEngine } from '../support/engines.js';
import { looked } from '../support/history-round.js';
import { startTestRouter } from '../support/router.js';
import { tcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';

describeBrowser('the overview', (browser) => {
  describeOneEngine('of a router that was overloaded', (engine) => {
    it('counts rejected calls as failures, and shows the reason', async () => {
      const limit = 20;
      const proxy = await tcpProxy(engine.port);
      const url = new URL(engine.url);
      url.port = String(proxy.port);
      const router = await startTestRouter(url.href.replace(/\/$/, ''), {
        ...patientEnv,
        MAX_REQUESTS_IN_FLIGHT: String(limit),
      });
      try {
        proxy.blackHole();
        // All for one call: it gets its pod once.
        const waiting = Array.from({ length: limit }, () => router.post('/allocate', { call_sid: 'CA1' }));
        await until(() => router.context.admission.inFlight === limit, 'the router is full');
        for (const call_sid of ['CA2', 'CA3', 'CA4', 'CA5', 'CA6'])
          expect((await router.post('/allocate', { call_sid })).body.code).toBe('overloaded');
        proxy.pass();
        await Promise.all(waiting);
        await looked(router);

        const page = await browser.open(`${router.url}/#/overview`);
        const success = page.getByRole('region', { name: 'Success' });
        await success.getByText('5 rejected: overloaded', { exact: true }).waitFor();
        // One of six; rates have thousandths per second.
        await success.getByText(/^1[67]\.\d %$/).waitFor();
        const told = '5 calls were rejected in the last 5 minutes because a router was overloaded';
        await page.getByText(told, { exact: true }).waitFor();
      } finally {
        await browser.close();
        await router.stop();
      }
    });
  });
});
