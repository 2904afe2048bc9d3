/** What an operator on call must see at once on every page: failed routers, outages and stuck records. */
import type { Page } from 'playwright-core';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { describeBrowser, patientEnv } from '../support/browser.js';
import { describeOneEngine } from '../support/engines.js';
import { startTestRouter, type TestRouter } from '../support/router.js';

describeBrowser('the console at night', (browser) => {
  describeOneEngine('on a router', (engine) => {
    let router: TestRouter;
    beforeEach(async () => {
      router = await startTestRouter(engine.url, patientEnv);
    });
    afterEach(async () => {
      await browser.close();
      await router.stop();
    });
    /** Something else first: what an address answers is decided before the page under test asks. */
    const open = (viewport = { width: 1280, height: 800 }) =>
      browser.open(`${router.url}/#/tiers`, { viewport });
    const show = (page: Page, hash: string) => page.goto(`${router.url}/#/${hash}`);
    /** The router's own answer, changed. */
    const change = (page: Page, path: string, to: (body: object) => object) =>
      page.route(`**/api/v1/${path}`, async (route) => {
        const response = await route.fetch();
        await route.fulfill({ response, json: to(await response.json()) });
      });

    it('shows routers with overdue heartbeats, and those that disappeared', async () => {
      const page = await open();
      const secondsAgo = (seconds: number) => new Date(Date.now() - seconds * 1000).toISOString();
      const startedAt = secondsAgo(2 * 3600);
      const told = (name: string, seen: number) => ({
        ...{ name, version: '1.2.3', is_leader: false },
        ...{ started_at: startedAt, seen_at: secondsAgo(seen) },
      });
      let listed = () => [told('router-a', 1), told('router-b', 1)];
      await change(page, 'history*', (body) => ({ ...body, replicas: listed() }));
      await show(page, 'overview');
      const rowOf = (name: string) =>
        page.getByRole('region', { name: 'Routers' }).getByRole('row').filter({ hasText: name });
      await rowOf('router-b').getByText('Follower').waitFor();
      const lastSeen = secondsAgo(300);
      listed = () => [told('router-a', 1), { ...told('router-b', 0), seen_at: lastSeen }];
      await rowOf('router-b')
        .getByText(/^Not seen for [5-9] min/)
        .waitFor();
      // The uptime at its last heartbeat.
      await rowOf('router-b').getByText('1 h 55 min', { exact: true }).waitFor();
      listed = () => [told('router-a', 1)];
      await rowOf('router-b')
        .getByText(/^Gone since (\d+ \w+ )?\d\d:\d\d:\d\d$/)
        .waitFor();
      await rowOf('router-a').getByText('Follower').waitFor();
      await page.getByText(/^1 router gone/).waitFor();
    });

    it.each([1280, 768, 390])('shows that there is no leader, %i pixels wide', async (width) => {
      const page = await open({ width, height: 800 });
      let leads = false;
      await change(page, 'status', (body) => ({ ...body, ...(!leads && { leader: null }) }));
      await page.getByText(/^No leader for \d+ s$/).waitFor();
      await show(page, 'overview');
      await page.getByText('No router leads.', { exact: true }).waitFor();
      leads = true;
      await page.getByText(/^No leader/).waitFor({ state: 'detached' });
    });

    it('shows stuck records in the navigation and, without an alert, on the overview', async () => {
      const page = await open();
      const records = { database: 'up', paused: false, braked: false, error: null };
      await change(page, 'status', (body) => ({ ...body, records }));
      const workflow = {
        ...{ name: 'imports', queued: 0, processing: 4, stuck: 3, held: 1, failed: 0, advice: [] },
        ...{ oldest_queued_seconds: null, oldest_stuck_seconds: 720, processing_p99_seconds: null },
      };
      await page.route('**/api/v1/records', (route) => route.fulfill({ json: { workflows: [workflow] } }));
      await page.route('**/api/v1/records/imports/stuck*', (route) =>
        route.fulfill({ json: { workflow: 'imports', total: 0, records: [] } }),
      );
      await page.getByRole('link', { name: /^Records 3 stuck$/ }).waitFor();
      await show(page, 'overview');
      const line = page.getByRole('region', { name: 'Alerts' });
      await line.getByText('imports: 3 records stuck', { exact: true }).waitFor();
      await line.getByText('the oldest for 12 min 0 s, 1 held', { exact: true }).waitFor();
      const alert = {
        ...{ name: 'records.stuck_warning', severity: 'warning', summary: 'So many', workflow: 'imports' },
        ...{ since: new Date().toISOString(), runbook: 'docs/runbook-records.md#stuck-records' },
      };
      await page.route('**/api/v1/alerts', (route) => route.fulfill({ json: { alerts: [alert] } }));
      await line.getByText('So many').waitFor();
      expect(await line.getByText('imports: 3 records stuck').count()).toBe(0);
      await page.unroute('**/api/v1/alerts');
      await line.getByRole('link', { name: 'Show records' }).click();
      await page.getByRole('heading', { name: 'Records', level: 1 }).waitFor();
    });

    it('draws missing pods up to the target of the tier', async () => {
      const page = await open();
      await show(page, 'overview');
      await page.getByRole('img', { name: 'gold: 2 pods, 0 calls. 2 free' }).waitFor();
      await router.put('/tiers', {
        gold: { target: 3 },
        basic: { type: 'shared', target: 1, max_concurrent: 4 },
      });
      const gold = page.getByRole('region', { name: 'gold', exact: true });
      await gold.getByText('1 missing of 3', { exact: true }).waitFor();
      expect(await gold.locator('.cell[data-is="missing"]').count()).toBe(1);
      const basic = page.getByRole('region', { name: 'basic', exact: true });
      expect(await basic.locator('.cell[data-is="missing"]').count()).toBe(0);
    });

    it('shows the consequence of a store outage, then the error message', async () => {
      const page = await open();
      let isAway = true;
      const away = { status: 'down', store_error: 'the store did not answer (events): Socket timeout' };
      await change(page, 'status', (body) => ({ ...body, ...(isAway && away) }));
      const banner = page.getByRole('status').filter({ hasText: 'Stale since' });
      await banner
        .getByText('The store (Redis) does not answer: new calls are rejected, live calls continue')
        .waitFor();
      await banner.getByText(away.store_error, { exact: true }).waitFor();
      isAway = false;
      await banner.waitFor({ state: 'detached' });
    });

    it('shows no data before the first answer', async () => {
      const page = await open();
      let answer = () => {};
      const asked = new Promise<void>((resolve) => {
        answer = resolve;
      });
      await page.route('**/api/v1/history*', async (route) => {
        await asked;
        await route.continue().catch(() => {});
      });
      await show(page, 'overview');
      const tile = page.getByRole('region', { name: 'Calls per second' });
      await tile.getByText('–').waitFor();
      expect(await page.getByText('history starts now').count()).toBe(0);
      answer();
      await page.getByRole('region', { name: 'Routers' }).getByText('router-under-test').waitFor();
    });

    it('finds a pod or a call from every page with one key', async () => {
      await router.post('/allocate', { call_sid: 'CA-find-me' });
      const page = await open();
      await show(page, 'overview');
      await page.getByRole('img', { name: /^gold: 2 pods, 1 call/ }).waitFor();
      const dialog = page.getByRole('dialog', { name: 'Find a call or a pod' });
      await page.keyboard.press('/');
      await dialog.waitFor();
      await page.keyboard.type('gold-2');
      await dialog.getByRole('link', { name: /^Pod gold-2/ }).waitFor();
      await page.keyboard.press('Enter');
      await page.getByRole('complementary', { name: /gold-2/ }).waitFor();
      expect(new URL(page.url()).hash).toBe('#/pods/gold-2');

      await show(page, 'overview');
      await page.getByRole('heading', { name: 'Overview' }).waitFor();
      await page.keyboard.press('/');
      await dialog.waitFor();
      await page.keyboard.type('find-me');
      await dialog.getByRole('link', { name: /^Call CA-find-me on / }).click();
      await page.getByRole('complementary', { name: 'Call CA-find-me' }).waitFor();

      await show(page, 'tiers');
      await page.getByRole('heading', { name: 'Merchants and tiers' }).waitFor();
      await page.keyboard.press('/');
      await dialog.waitFor();
      await page.keyboard.type('CA-f');
      await page.keyboard.press('Escape');
      await dialog.waitFor({ state: 'detached' });
      await page.getByRole('button', { name: 'Find a call or a pod' }).click();
      await dialog.waitFor();
    });
  });
});
