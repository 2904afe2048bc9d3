/** The pages of the console in a real browser, against real routers. */
import type { Page } from 'playwright-core';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { describeBrowser, patientEnv } from '../support/browser.js';
import { describeOneEngine } from '../support/engines.js';
import { openFleet } from '../support/fleet.js';
import { startTestRouter, type TestRouter } from '../support/router.js';
import { until } from '../support/until.js';

const rowOf = (page: Page, table: string, name: string) =>
  page.getByRole('table', { name: table }).getByRole('row').filter({ hasText: name });

describeBrowser('the console', (browser) => {
  describeOneEngine('on a router', (engine) => {
    let router: TestRouter;
    beforeEach(async () => {
      router = await startTestRouter(engine.url, {
        ...patientEnv,
        LEASE_TTL: '60s',
      });
    });
    afterEach(async () => {
      await browser.close();
      await router.stop();
    });
    const open = (hash: string) => browser.open(`${router.url}/#/${hash}`);
    const allocate = async (sid: string, merchant?: string) => {
      const body = { call_sid: sid, ...(merchant && { merchant_id: merchant }) };
      return (await router.post('/allocate', body)).body.pod_name as string;
    };

    it('shows the pods of every pool, and calls as they start and end', async () => {
      const page = await open('overview');
      await page.getByRole('img', { name: 'gold: 2 pods, 0 calls. 2 free' }).waitFor();
      const pod = await allocate('CA1');
      await page.getByRole('img', { name: 'gold: 2 pods, 1 call. 1 free, 1 busy' }).waitFor();
      await page.locator(`[data-pod="${pod}"][data-is="busy"]`).waitFor();
      await page.getByText('Call allocated').first().waitFor();
      await router.post('/release', { call_sid: 'CA1' });
      await page.getByRole('img', { name: 'gold: 2 pods, 0 calls. 2 free' }).waitFor();
      await page.getByText('Leader router-under-test', { exact: true }).waitFor();
      expect(await page.title()).toBe('Overview · Smart Router');
    });

    it('applies events that arrive during a read to its result', async () => {
      const page = await open('overview');
      await page.getByRole('img', { name: 'gold: 2 pods, 0 calls. 2 free' }).waitFor();
      let reads = 0;
      let looked = false;
      let letGo = () => {};
      const gate = new Promise<void>((resolve) => {
        letGo = resolve;
      });
      await page.route('**/api/v1/pods*', async (route) => {
        reads += 1;
        // No later read repairs it.
        if (reads > 1) return;
        const response = await route.fetch();
        looked = true;
        await gate;
        await route.fulfill({ response }).catch(() => {});
      });
      await until(() => looked, 'a read has looked and is not back yet');
      await allocate('CA1');
      const busy = page.getByRole('img', { name: 'gold: 2 pods, 1 call. 1 free, 1 busy' });
      await busy.waitFor();
      letGo();
      await until(() => reads > 1, 'the read is over and the next one has begun');
      expect(await busy.isVisible()).toBe(true);
    });

    it('finds pods by name, state, pool and call', async () => {
      const pod = await allocate('CA-find-me');
      const page = await open('pods');
      await rowOf(page, 'Pods', 'basic-1').waitFor();
      await page.getByLabel('Search pods').fill('find-me');
      await rowOf(page, 'Pods', pod).waitFor();
      await rowOf(page, 'Pods', 'basic-1').waitFor({ state: 'detached' });
      await page.getByLabel('Search pods').fill('');
      await page.getByRole('button', { name: /^Free/ }).click();
      await rowOf(page, 'Pods', pod).waitFor({ state: 'detached' });
      await rowOf(page, 'Pods', 'basic-1').waitFor();
      await page.getByLabel('Pool', { exact: true }).selectOption('gold');
      await rowOf(page, 'Pods', 'basic-1').waitFor({ state: 'detached' });
      await page.getByLabel('Search pods').fill('nothing-like-this');
      await page.getByText('No pod matches').waitFor();
    });

    it('drains a pod after a confirmation, shows the progress, and undrains it', async () => {
      const pod = await allocate('CA1');
      const page = await open('pods');
      await page.getByRole('button', { name: `Drain ${pod}`, exact: true }).click();
      const dialog = page.getByRole('dialog', { name: `Drain ${pod}?` });
      await dialog.getByText('Its live call continues.').waitFor();
      expect((await router.get(`/pod/${pod}`)).body.blocked_by).toBeNull();
      await dialog.getByRole('button', { name: 'Drain' }).click();
      await rowOf(page, 'Pods', pod).getByText('Draining').waitFor();
      expect((await router.get(`/pod/${pod}`)).body.blocked_by).toBe('draining');
      const progress = page.getByRole('region', { name: '1 pod draining' });
      await progress.getByText('1 call left').waitFor();
      await router.post('/release', { call_sid: 'CA1' });
      await progress.getByText('drained').waitFor();
      await progress.getByRole('button', { name: `Undrain ${pod}` }).click();
      await page.getByRole('dialog').getByRole('button', { name: 'Undrain' }).click();
      await rowOf(page, 'Pods', pod).getByText('Free').waitFor();
      expect((await router.get(`/pod/${pod}`)).body.blocked_by).toBeNull();
    });

    it('shows the error message of a rejected request', async () => {
      const page = await open('pods');
      await rowOf(page, 'Pods', 'gold-1').waitFor();
      await page.getByRole('button', { name: 'Drain gold-1' }).click();
      await page.route('**/api/v1/drain', (route) =>
        route.fulfill({
          status: 409,
          json: { success: false, code: 'tier_conflict', error: 'one clear sentence' },
        }),
      );
      await page.getByRole('dialog').getByRole('button', { name: 'Drain' }).click();
      await page.getByRole('alert').getByText('one clear sentence').waitFor();
      // The browser itself notes a failed request.
      expect(page.problems.splice(0).join()).toContain('409');
    });

    it('shows the timeline of an ended call, and why a call got no pod', async () => {
      const page = await open('calls');
      await page.getByText('No live calls').waitFor();
      const pod = await allocate('CA-live');
      await rowOf(page, 'Live calls', 'CA-live').getByText(pod).waitFor();
      await router.post('/release', { call_sid: 'CA-live' });
      await rowOf(page, 'Live calls', 'CA-live').waitFor({ state: 'detached' });
      await page.getByLabel('Search calls').fill('CA-live');
      await page.getByLabel('Search calls').press('Enter');
      const panel = page.getByRole('complementary', { name: 'Call CA-live' });
      await panel.getByText('Call allocated').waitFor();
      await panel.getByText('Call released').waitFor();
      await panel.getByText('Ended').waitFor();
      await router.put('/merchants/strict', { fallback: ['gold'] });
      await Promise.all(['a', 'b'].map((sid) => allocate(sid, 'strict')));
      expect((await router.post('/allocate', { call_sid: 'CA-none', merchant_id: 'strict' })).status).toBe(
        503,
      );
      await page.getByLabel('Search calls').fill('CA-none');
      await page.getByRole('button', { name: 'Look up, including ended calls' }).click();
      const refused = page.getByRole('complementary', { name: 'Call CA-none' });
      await refused.getByText('No pod', { exact: true }).waitFor();
      await refused.getByText(/Tried.*gold.*no free pod/).waitFor();
      await refused.getByText('gold had 2 pods with 2 calls').waitFor();
      const now = refused.getByRole('region', { name: 'What would happen now' });
      await now
        .getByText('A new call of strict would be refused (no_pods): no pod of its chain is free')
        .waitFor();
      await now.getByText('No pod can take a call: 2 busy').waitFor();
      await now.getByText(/^Lease of [ab] on gold-[12] expires in \d+ s, unless it is renewed$/).waitFor();
      await router.post('/release', { call_sid: 'a' });
      await now.getByText('A new call of strict would get a pod of pool:gold').waitFor();
      await page.keyboard.press('Escape');
      await page.locator('body').press('Escape');
      await refused.waitFor({ state: 'detached' });
    });

    it('copies the path of the runbook of an alert', async () => {
      const page = await open('tiers');
      const runbook = 'docs/runbook.md#calls-get-no-pod';
      const since = new Date(0).toISOString();
      const alert = { name: 'calls.x', severity: 'warning', summary: 'One sentence', since, workflow: null };
      await page.route('**/api/v1/alerts', (route) =>
        route.fulfill({ json: { success: true, alerts: [{ ...alert, runbook }] } }),
      );
      await page.goto(`${router.url}/#/overview`);
      const copy = page.getByRole('button', { name: `Copy ${runbook}` });
      await copy.waitFor();
      // The clipboard of the machine belongs to the active window.
      await page.evaluate(
        "Object.defineProperty(navigator, 'clipboard', { value: { writeText: async (text) => { window.copied = text } } })",
      );
      await copy.click();
      await page.getByText(`Copied: ${runbook}`).last().waitFor();
      expect(await page.evaluate('window.copied')).toBe(runbook);
    });

    it('retries after 429', async () => {
      await allocate('CA1');
      const page = await open('overview');
      let refusals = 0;
      await page.route('**/api/v1/calls/CA1/timeline', async (route) => {
        if (refusals > 0) return route.continue();
        refusals += 1;
        const json = { success: false, code: 'too_many_requests', error: 'one moment' };
        await route.fulfill({ status: 429, headers: { 'retry-after': '1' }, json });
      });
      await page.goto(`${router.url}/#/calls/CA1`);
      await page.getByRole('complementary', { name: 'Call CA1' }).getByText('Call allocated').waitFor();
      expect(refusals).toBe(1);
      expect(page.problems.splice(0).join()).toContain('429');
    });

    it('shows that a call is unknown', async () => {
      const page = await open('calls/CA-never');
      const panel = page.getByRole('complementary', { name: 'Call CA-never' });
      await panel
        .getByText(/^No live call has this id.*Events are stored since (\d+ \w+ )?\d\d:\d\d:\d\d\.$/)
        .waitFor();
      expect(await panel.getByRole('alert').count()).toBe(0);
      expect(page.problems.splice(0).join()).toContain('404');
    });

    it('previews and saves tiers, rejects invalid ones, edits merchants, and lists the changes', async () => {
      const page = await open('tiers');
      await page.getByRole('button', { name: 'Edit tiers' }).click();
      const dialog = page.getByRole('dialog', { name: 'Edit tiers' });
      const preview = dialog.getByRole('region', { name: 'Preview of the chains' });
      await preview.getByText('no merchant').waitFor();
      await dialog.getByLabel('Target of gold').fill('many');
      await dialog.getByText(/gold.*whole number/).waitFor();
      expect(await dialog.getByRole('button', { name: 'Save' }).isDisabled()).toBe(true);
      await dialog.getByLabel('Target of gold').fill('1');
      await dialog.getByRole('button', { name: 'Move basic up' }).click();
      await preview.getByText(/basic.*gold/).waitFor();
      await dialog.getByRole('button', { name: 'Save' }).click();
      await dialog.waitFor({ state: 'detached' });
      const { body } = await router.get('/tiers');
      expect(body).toMatchObject({ tiers: { gold: { target: 1 } }, default_chain: ['basic', 'gold'] });
      await page.getByText('version 2', { exact: true }).waitFor();

      await page.getByRole('button', { name: 'Add merchant' }).click();
      await page.getByLabel('Merchant id').fill('acme');
      const chain = page.getByRole('region', { name: 'Preview of the chain' });
      await chain.getByText(/basic.*gold/).waitFor();
      await page.getByLabel('Own pool, tried first').fill('unknown');
      await chain.getByText('merchant:unknown skipped: no such merchant pool').waitFor();
      await page.getByLabel('Own pool, tried first').fill('');
      await page.getByLabel('Start of the default chain').selectOption('gold');
      await chain.getByText('basic').waitFor({ state: 'detached' });
      await page.getByRole('button', { name: 'Save' }).click();
      await page.getByRole('button', { name: 'Edit acme' }).waitFor();
      expect((await router.get('/merchants/acme')).body).toMatchObject({
        tier: 'gold',
        chain: ['pool:gold'],
      });
      const changes = page.getByRole('region', { name: 'Changes' });
      await changes.getByText('Merchant changed').waitFor();
      await changes
        .getByText(/by anonymous@/)
        .first()
        .waitFor();
      await page.getByRole('button', { name: 'Delete acme' }).click();
      await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
      await page.getByText('No merchant has its own rules').waitFor();
    });

    it('lists waiting calls with place and reason, and how a wait ended', async () => {
      const { tiers } = (await router.get('/tiers')).body;
      await router.put('/tiers', { tiers, default_chain: ['gold'], hold: { max_wait: '1m' } });
      await router.put('/merchants/acme', { max_calls: 1 });
      for (const [sid, merchant] of [['CA1', 'acme'], ['CA2']] as const) await allocate(sid, merchant);
      const ask = (call_sid: string, more = {}) =>
        router.post('/allocate', { call_sid, wait: '0s', ...more });
      await ask('CA3', { merchant_id: 'acme' });
      await ask('CA4');
      const page = await open('calls?show=waiting');
      await rowOf(page, 'Waiting calls', 'CA3').getByText('Merchant at its limit').waitFor();
      await rowOf(page, 'Waiting calls', 'CA4').getByText('No free pod').waitFor();
      await page.getByRole('link', { name: 'CA4' }).click();
      await page.getByText('Place 1 in the queue').waitFor();
      await page.getByText('Waiting', { exact: true }).first().waitFor();
      await router.post('/release', { call_sid: 'CA2' });
      await page.getByText('Pod handed over').waitFor();
      await rowOf(page, 'Waiting calls', 'CA4').waitFor({ state: 'detached' });
      await page.goto(`${router.url}/#/overview`);
      await page.getByRole('region', { name: 'Waiting now' }).getByText('1', { exact: true }).waitFor();
    });

    it('keeps the rules for waiting calls when tiers and merchants are edited', async () => {
      const { tiers, default_chain } = (await router.get('/tiers')).body;
      const hold = { max_wait: '1m', max_waiting: 7 };
      await router.put('/tiers', { tiers, default_chain, hold });
      await router.put('/merchants/acme', { max_calls: 4, hold });
      const page = await open('tiers');
      const save = async () => {
        await page.getByRole('dialog').getByRole('button', { name: 'Save' }).click();
        await page.getByRole('dialog').waitFor({ state: 'detached' });
      };
      await page.getByRole('button', { name: 'Edit tiers' }).click();
      await page.getByLabel('Target of gold').fill('9');
      await save();
      expect((await router.get('/tiers')).body).toMatchObject({ tiers: { gold: { target: 9 } }, hold });
      await page.getByRole('button', { name: 'Edit acme' }).click();
      await page.getByLabel('Start of the default chain').selectOption('gold');
      await save();
      expect((await router.get('/merchants/acme')).body).toMatchObject({ tier: 'gold', max_calls: 4, hold });
    });

    it('does not overwrite a concurrent change of the tiers', async () => {
      const page = await open('tiers');
      await page.getByRole('button', { name: 'Edit tiers' }).click();
      await router.put('/tiers', {
        gold: { target: 2 },
        basic: { type: 'shared', target: 1, max_concurrent: 4 },
      });
      await page.getByLabel('Target of gold').fill('5');
      await page.getByRole('button', { name: 'Save' }).click();
      await page
        .getByRole('alert')
        .getByText(/version/)
        .waitFor();
      expect((await router.get('/tiers')).body.tiers.gold.target).toBe(2);
      expect(page.problems.splice(0).join()).toContain('409');
    });

    it('follows events live, pauses, searches, and loads older events', async () => {
      for (let n = 0; n < 400; n++)
        await router.context.router
          .allocate({ callSid: `CA-old-${n}`, merchantId: 'm', provider: '', flow: '', template: '' })
          .catch(() => {});
      const page = await open('events');
      const table = page.getByRole('table', { name: 'Events' });
      await allocate('CA-new').catch(() => {});
      await router.post('/drain', { pod_name: 'basic-1' });
      await rowOf(page, 'Events', 'Pod draining').waitFor();
      await page.getByRole('button', { name: 'Pause' }).click();
      await router.post('/undrain', { pod_name: 'basic-1' });
      await page.getByRole('button', { name: /Resume \(\d+ new\)/ }).click();
      await rowOf(page, 'Events', 'Pod undrained').waitFor();
      await page.getByLabel('Kind of event').selectOption('leader_elected');
      await rowOf(page, 'Events', 'Pod undrained').waitFor({ state: 'detached' });
      await page.getByLabel('Kind of event').selectOption('');
      await page.getByLabel('Search events').fill('CA-old-7');
      await table.getByText('CA-old-7', { exact: true }).first().waitFor();
      await page.getByLabel('Search events').fill('');
      const before = Number(await table.getAttribute('aria-rowcount'));
      await page.getByRole('button', { name: 'Load older events' }).click();
      await until(
        async () => Number(await table.getAttribute('aria-rowcount')) > before,
        'older events are there',
      );
    });

    it('can be operated by keyboard', async () => {
      const page = await open('overview');
      await page.getByRole('heading', { name: 'Overview' }).waitFor();
      await page.keyboard.press('2');
      await page.getByRole('heading', { name: 'Pods', level: 1 }).waitFor();
      await page.keyboard.press('/');
      await page.keyboard.type('gold-2');
      await rowOf(page, 'Pods', 'gold-1').waitFor({ state: 'detached' });
      await page.keyboard.press('Escape');
      await page.keyboard.press('g');
      await page.keyboard.press('e');
      await page.getByRole('heading', { name: 'Events', level: 1 }).waitFor();
      await page.keyboard.press('?');
      await page.getByRole('dialog', { name: 'Keys and colours' }).waitFor();
      await page.keyboard.press('Escape');
      await page.getByRole('dialog', { name: 'Keys and colours' }).waitFor({ state: 'detached' });
      expect(new URL(page.url()).hash).toBe('#/events');
    });

    it('handles a key that is pressed as the page appears', async () => {
      const page = await open('tiers');
      // In the same turn as the heading: a listener added a frame later would miss it.
      await page.addInitScript({
        content: `new MutationObserver((_, watch) => {
          if (document.querySelector('h1')?.textContent !== 'Overview') return;
          watch.disconnect();
          dispatchEvent(new KeyboardEvent('keydown', { key: '2' }));
        }).observe(document, { childList: true, subtree: true })`,
      });
      await page.goto('about:blank');
      await page.goto(`${router.url}/#/overview`);
      await page.getByRole('heading', { name: 'Pods', level: 1 }).waitFor();
    });

    it('ignores single keys once they are turned off, also after a reload', async () => {
      const page = await open('overview');
      await page.getByRole('heading', { name: 'Overview' }).waitFor();
      await page.keyboard.press('?');
      const dialog = page.getByRole('dialog', { name: 'Keys and colours' });
      await dialog.getByLabel(/^Enable single keys/).uncheck();
      await page.keyboard.press('Escape');
      await dialog.waitFor({ state: 'detached' });
      expect(await page.evaluate('({ ...localStorage })')).toEqual({ 'smart-router-keys': 'off' });
      await page.reload();
      await page.getByRole('heading', { name: 'Overview' }).waitFor();
      for (const key of ['?', '2', 'g', 'e', '/']) await page.keyboard.press(key);
      expect(await page.getByRole('dialog').count()).toBe(0);
      expect(new URL(page.url()).hash).toBe('#/overview');
      await page.goto(`${router.url}/#/pods/gold-1`);
      const panel = page.getByRole('complementary');
      await panel.waitFor();
      await page.locator('body').press('Escape');
      await panel.waitFor({ state: 'detached' });
      await page.getByRole('button', { name: 'Keys' }).click();
      await dialog.getByLabel(/^Enable single keys/).check();
      await page.keyboard.press('Escape');
      await dialog.waitFor({ state: 'detached' });
      await page.keyboard.press('7');
      await page.getByRole('heading', { name: 'Events', level: 1 }).waitFor();
    });

    it('stores the colour theme and nothing else', async () => {
      const page = await open('overview');
      await page.getByRole('button', { name: 'Dark' }).click();
      await page.reload();
      await page.getByRole('button', { name: 'Dark', pressed: true }).waitFor();
      const kept = await page.evaluate('({ ...localStorage })');
      expect(kept).toEqual({ 'smart-router-theme': 'dark' });
      expect(await page.evaluate('getComputedStyle(document.documentElement).colorScheme')).toBe('dark');
    });
  });

  describeOneEngine('on a router with a short lease', (engine) => {
    it('lists recoveries with their reasons', async () => {
      const router = await startTestRouter(engine.url, {
        ...patientEnv,
        LEASE_TTL: '1s',
        CALL_INFO_TTL: '1m',
      });
      const page = await browser.open(`${router.url}/#/recovery`);
      try {
        await page.getByText('No recoveries').waitFor();
        await router.post('/allocate', { call_sid: 'CA-orphan' });
        const row = rowOf(page, 'Recoveries', 'CA-orphan');
        await row.getByText('recovered').waitFor();
        await row.getByText(/lease/).waitFor();
        await page.getByRole('button', { name: 'Pods', exact: true }).click();
        await row.waitFor({ state: 'detached' });
      } finally {
        await browser.close();
        await router.stop();
      }
    });
  });

  describeOneEngine('on a router that follows a cluster', (engine) => {
    it('removes a crashed pod and its call', async () => {
      const fleet = await openFleet(engine.url);
      fleet.pods('agent-0', 'agent-1');
      const router = await fleet.startHere('router-0', patientEnv);
      await until(
        async () => (await router.get('/status')).body.pools.gold?.available === 2,
        'both are there',
      );
      const { pod_name } = (await router.post('/allocate', { call_sid: 'CA1' })).body;
      const page = await browser.open(`${router.url}/#/overview`, { expectNetworkErrors: true });
      const cell = page.locator(`[data-pod="${pod_name}"]`);
      await page.locator(`[data-pod="${pod_name}"][data-is="busy"]`).waitFor();
      // Reads are blocked: only the stream can remove the pod.
      await page.route('**/api/v1/pods*', () => {});
      fleet.cluster.pods.remove(pod_name, { graceMs: 0 });
      await cell.waitFor({ state: 'detached' });
      await page.getByRole('img', { name: 'gold: 1 pod, 0 calls. 1 free' }).waitFor();
      await page.getByText('Call lost', { exact: true }).waitFor();
    });
  });
});
