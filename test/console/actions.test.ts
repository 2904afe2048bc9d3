/** Actions on calls, pods and merchants in the console. */
import { afterEach, beforeEach, expect, it } from 'vitest';
import { findings } from '../support/axe.js';
import { describeBrowser, patientEnv } from '../support/browser.js';
import { describeOneEngine } from '../support/engines.js';
import { startTestRouter, type TestRouter } from '../support/router.js';
import { until } from '../support/until.js';

describeBrowser('the console in an operator’s hands', (browser) => {
  describeOneEngine('on a router', (engine) => {
    let router: TestRouter;
    beforeEach(async () => {
      router = await startTestRouter(engine.url, { ...patientEnv, LEASE_TTL: '60s', DRAINING_TTL: '9m' });
    });
    afterEach(async () => {
      await browser.close();
      await router.stop();
    });
    const open = (hash: string) => browser.open(`${router.url}/#/${hash}`);

    it('releases a call after a dialog about the consequences, and then shows its pod', async () => {
      const { body } = await router.post('/allocate', { call_sid: 'CA1', merchant_id: 'acme' });
      const page = await open('calls/CA1');
      await page.getByRole('button', { name: 'Release CA1' }).click();
      const dialog = page.getByRole('dialog', { name: 'Release CA1?' });
      await dialog.getByText('It does not hang up the phone').waitFor();
      await dialog.getByText('Its lease was never renewed: it ends in').waitFor();
      expect(await findings(page)).toEqual([]);
      await dialog.getByRole('button', { name: 'Cancel' }).click();
      expect((await router.get('/calls/CA1')).status).toBe(200);

      await page.getByRole('button', { name: 'Release CA1' }).click();
      const sent = page.waitForRequest('**/api/v1/release');
      await dialog.getByRole('button', { name: 'Release the call' }).click();
      expect((await sent).postDataJSON()).toEqual({ call_sid: 'CA1', fence: body.fence });
      await page.getByText(`Call CA1 is released. Pod ${body.pod_name} is available.`).last().waitFor();
      expect((await router.get('/calls/CA1')).status).toBe(404);

      const panel = page.getByRole('complementary', { name: 'Call CA1' });
      await panel.getByText('Ended', { exact: true }).waitFor();
      const facts = panel.locator('dl');
      await facts.getByText(body.pod_name, { exact: true }).waitFor();
      await facts.getByText('gold', { exact: true }).waitFor();
      await facts.getByText('acme', { exact: true }).waitFor();
      expect(await panel.getByRole('button', { name: 'Release CA1' }).count()).toBe(0);
    });

    it('marks a full pool in amber', async () => {
      for (const call_sid of ['CA1', 'CA2', 'CA3']) await router.post('/allocate', { call_sid });
      const page = await open('overview');
      const gold = page.getByRole('region', { name: 'gold', exact: true });
      const basic = page.getByRole('region', { name: 'basic', exact: true });
      await gold.getByText('full', { exact: true }).waitFor();
      expect(await gold.locator('.tone-warn').textContent()).toBe('0 free');
      // Its one pod has a call and could take two more.
      await basic.getByText('1 busy').waitFor();
      expect(await basic.locator('.tone-warn').count()).toBe(0);
      await router.post('/drain', { pod_name: 'basic-1' });
      await basic.getByText('takes no calls', { exact: true }).waitFor();
      await router.post('/release', { call_sid: 'CA1' });
      await gold.getByText('1 free').waitFor();
      expect(await gold.locator('.tone-warn').count()).toBe(0);
    });

    it('shows an alert of severity page as critical', async () => {
      await router.post('/drain', { pod_name: 'gold-1' });
      await router.post('/drain', { pod_name: 'gold-2' });
      await router.post('/drain', { pod_name: 'basic-1' });
      expect((await router.post('/allocate', { call_sid: 'CA1' })).status).toBe(503);
      await until(async () => {
        // By itself it looks every 10 s.
        router.context.history.loop.nudge();
        return (await router.get('/alerts')).body.alerts.length > 0;
      }, 'the router has noticed');
      const page = await open('overview');
      const alerts = page.getByRole('region', { name: 'Alerts' });
      await alerts.getByText('got no pod').waitFor();
      expect(await alerts.locator('.chip').first().textContent()).toBe('Critical');
    });

    it('shows every button of a table at 390 pixels', async () => {
      await router.post('/drain', { pod_name: 'gold-1' });
      const page = await browser.open(`${router.url}/#/pods`, { viewport: { width: 390, height: 844 } });
      await page.getByRole('cell').getByRole('button', { name: 'Undrain gold-1' }).waitFor();
      const cut = await page
        .locator('.td:has(> button)')
        .evaluateAll((cells) =>
          cells.filter((cell) => cell.scrollWidth > cell.clientWidth).map((cell) => cell.textContent),
        );
      expect(cut).toEqual([]);
    });

    it('does not release a newer call with the same id', async () => {
      await router.post('/allocate', { call_sid: 'CA1' });
      const page = await open('calls/CA1');
      await page.getByRole('button', { name: 'Release CA1' }).click();
      await page.route('**/api/v1/release', async (route) => {
        await router.post('/release', { call_sid: 'CA1' });
        await router.post('/allocate', { call_sid: 'CA1' });
        await route.continue();
      });
      await page.getByRole('dialog').getByRole('button', { name: 'Release the call' }).click();
      await page.getByRole('dialog').getByRole('alert').waitFor();
      expect((await router.get('/calls/CA1')).status).toBe(200);
      expect(page.problems.splice(0).join()).toContain('409');
    });

    it('shows how long a drain lasts and when the pod is safe to stop, without a bar for one call', async () => {
      const { pod_name } = (await router.post('/allocate', { call_sid: 'CA1' })).body;
      await router.post('/drain', { pod_name: 'basic-1' });
      const page = await open('pods');
      const drained = page.getByRole('listitem').filter({ hasText: 'basic-1' });
      await drained.getByText(/^Drained, safe to stop; accepts calls again in \d/).waitFor();
      await page.getByRole('button', { name: `Drain ${pod_name}`, exact: true }).click();
      const dialog = page.getByRole('dialog', { name: `Drain ${pod_name}?` });
      await dialog.getByText('after 9 min 0 s, or when you undrain it').waitFor();
      await dialog.getByRole('button', { name: 'Drain' }).click();
      await page
        .getByText(
          `Pod ${pod_name} is draining: it gets no new calls. It is safe to stop when its call has ended`,
        )
        .last()
        .waitFor();
      const drains = page.getByRole('listitem').filter({ hasText: pod_name });
      await drains.getByText(/^1 call left; accepts calls again in \d/).waitFor();
      expect(await page.getByRole('progressbar').count()).toBe(0);
    });

    it('shows who drains a pod, if the event has it', async () => {
      await router.post('/drain', { pod_name: 'gold-1' });
      const page = await open('tiers');
      const by = 'console:47b769ec@127.0.0.1';
      await page.route('**/api/v1/events/search?*pod_draining*', async (route) => {
        const response = await route.fetch();
        const { events, ...rest } = await response.json();
        await route.fulfill({ json: { ...rest, events: events.map((one: object) => ({ ...one, by })) } });
      });
      await page.goto(`${router.url}/#/pods`);
      await page.getByRole('region', { name: '1 pod draining' }).getByText(`by ${by}`).waitFor();
    });

    it('marks and focuses the invalid field in the rules of a merchant', async () => {
      const page = await open('tiers');
      await page.getByRole('button', { name: 'Add merchant' }).click();
      const id = page.getByLabel('Merchant id');
      await id.fill('my shop!');
      await page.getByRole('button', { name: 'Save' }).click();
      await page.getByText(/^Only letters/).waitFor();
      expect(await id.getAttribute('aria-invalid')).toBe('true');
      expect(await page.evaluate('document.activeElement.id')).toBe('merchant-id');
      expect(await findings(page)).toEqual([]);
      await id.fill('my-shop');
      await page.getByText(/^Only letters/).waitFor({ state: 'detached' });
      await page.getByLabel('Own pool, tried first').fill('a pool');
      await page.getByRole('button', { name: 'Save' }).click();
      await page.getByText(/^Only letters/).waitFor();
      expect(await id.getAttribute('aria-invalid')).toBe('false');
      expect((await router.get('/merchants')).body.merchants).toEqual([]);
    });

    it('lists tiers in chain order, with their origin', async () => {
      const page = await open('tiers');
      const changes = page.getByRole('region', { name: 'Changes' });
      await changes.getByText('initial, from TIER_CONFIG · by a router at startup').waitFor();
      await page.getByRole('button', { name: 'Edit tiers' }).click();
      const names = page.getByLabel('Name of the tier');
      await names.first().waitFor();
      const inOrder = await Promise.all((await names.all()).map((name) => name.inputValue()));
      expect(inOrder).toEqual((await router.get('/tiers')).body.default_chain);
    });

    it('shows since when events are stored', async () => {
      const page = await open('recovery');
      await page.getByText(/^stored only since (\d+ \w+ )?\d\d:\d\d:\d\d$/).waitFor();
      await page.getByText(/earlier events are not stored/).waitFor();
      // An event from before the period: nothing of it is missing.
      await page.route('**/api/v1/events/search?*before=*', (route) => {
        const at = new Date(0).toISOString();
        const events = [{ id: '1-0', type: 'pod_registered', at }];
        return route.fulfill({ json: { success: true, events, before: '1-0', kept_since: at } });
      });
      await page.getByRole('button', { name: '6 hours' }).click();
      await page.getByText(/^since (\d+ \w+ )?\d\d:\d\d:\d\d$/).waitFor();
      await page.getByText(/in the last 360 minutes/).waitFor();
    });

    it('links to recovered records and suggests filters when no event matches', async () => {
      const page = await open('events?q=nothing-like-this');
      const empty = page.getByText(/^Try other words\./);
      await empty.waitFor();
      await empty.getByRole('link', { name: 'Recovery' }).click();
      await page.getByRole('heading', { name: 'Recovery', level: 1 }).waitFor();
      await page.getByRole('button', { name: 'Records', exact: true, pressed: true }).waitFor();
    });

    it('moves the content of hidden columns to a second line on a phone', async () => {
      await router.post('/allocate', { call_sid: 'CA1', merchant_id: 'acme' });
      const page = await browser.open(`${router.url}/#/calls`, { viewport: { width: 390, height: 844 } });
      const row = page.getByRole('table', { name: 'Live calls' }).getByRole('row').nth(1);
      await row.getByText(/for acme · running for/).waitFor();
      expect(await page.getByRole('columnheader', { name: 'Merchant' }).count()).toBe(0);
      await page.setViewportSize({ width: 768, height: 1024 });
      await page.getByRole('columnheader', { name: 'Merchant' }).waitFor();
      await row.getByText('acme', { exact: true }).waitFor();
    });
  });
});
