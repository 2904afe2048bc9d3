/** 1,000 pods and 5,000 calls: the page contains only the rows in view, and finds everything. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { describeBrowser, patientEnv } from '../support/browser.js';
import { type Engine, embeddedValkey } from '../support/engines.js';
import { startTestRouter, type TestRouter } from '../support/router.js';
import { until } from '../support/until.js';

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
    await page.getByRole('button', { name: 'Live 5000' }).waitFor();
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
    await page.getByRole('button', { name: 'Live 1', exact: true }).waitFor();
    await table.getByText('CA-1234', { exact: true }).waitFor();
  });

  it('lists all pods likewise, and stays current while calls start and end', async () => {
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

  it('changes the colour of a full pool without a transition of every pod', async () => {
    const page = await browser.open(`${router.url}/#/overview`, { reducedMotion: 'no-preference' });
    const full = page.getByRole('region', { name: 'basic', exact: true }).getByText('full', { exact: true });
    await full.waitFor();
    await page.evaluate(`(() => {
      globalThis.transitions = 0;
      document.addEventListener('transitionrun', ({ target }) => {
        if (target.matches('[data-pod]')) transitions += 1;
      });
    })()`);
    await router.post('/release', { call_sid: 'CA-0' });
    await full.waitFor({ state: 'detached' });
    await router.post('/allocate', { call_sid: 'CA-0' });
    await full.waitFor();
    // Transitions start with the next frame.
    await page.evaluate('new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))');
    expect(await page.evaluate('transitions')).toBe(0);
  });

  it('waits nine times as long as a slow rendering took before the next one', async () => {
    const page = await browser.open(`${router.url}/#/overview`);
    await page.getByRole('img', { name: /^basic: 1,000 pods, 5,000 calls/ }).waitFor();
    await page.locator('.feed').waitFor();
    await page.evaluate(`(() => {
      globalThis.renderedAt = [];
      new MutationObserver(() => {
        renderedAt.push(performance.now());
        while (performance.now() < renderedAt.at(-1) + 30);
      }).observe(document.querySelector('.feed'), { childList: true });
    })()`);
    let renderedAt: number[] = [];
    for (let n = 0; renderedAt.length < 4; n++) {
      await router.post('/release', { call_sid: `CA-${n}` });
      await router.post('/allocate', { call_sid: `CA-${n}` });
      renderedAt = (await page.evaluate('renderedAt')) as number[];
    }
    const pauses = renderedAt.slice(1).map((at, index) => at - (renderedAt[index] ?? 0));
    expect(Math.min(...pauses)).toBeGreaterThan(9 * 30);
  });

  it('applies its timeout to each page of a list', async () => {
    const page = await browser.open('about:blank');
    // Deadlines that pass when the test says so.
    await page.addInitScript(() => {
      const given: AbortController[] = [];
      AbortSignal.timeout = () => {
        const deadline = new AbortController();
        given.push(deadline);
        return deadline.signal;
      };
      const pass = (n: number) => {
        for (const deadline of given.slice(0, n)) deadline.abort(new DOMException('late', 'TimeoutError'));
      };
      Object.assign(globalThis, { deadlines: () => given.length, pass });
    });
    const answered = new Set<string>();
    page.on('requestfinished', (request) => answered.add(new URL(request.url()).pathname));
    await page.route('**/api/v1/calls?*', async (route) => {
      const response = await route.fetch();
      // The other reads of the round do not matter here.
      await until(() => answered.has('/api/v1/status') && answered.has('/api/v1/alerts'), 'they are done');
      const before = await page.evaluate('deadlines()');
      await route.fulfill({ response }).catch(() => {});
      if (((await response.json()) as { cursor: string | null }).cursor === null) return;
      await until(async () => Number(await page.evaluate('deadlines()')) > Number(before), 'it reads on');
      await page.evaluate(`pass(${before})`);
    });
    await page.goto(`${router.url}/#/calls`);
    const table = page.getByRole('table', { name: 'Live calls' });
    await until(
      async () => (await table.getAttribute('aria-rowcount')) === String(calls + 1),
      'all are there',
    );
  });

  it('shows all events without a gap when more arrive than it holds', async () => {
    const page = await browser.open(`${router.url}/#/events`);
    const table = page.getByRole('table', { name: 'Events' });
    const rows = async () => Number(await table.getAttribute('aria-rowcount')) - 1;
    await until(async () => (await rows()) >= 300, 'the latest 100 and a page of the past are there');
    const { router: core } = router.context;
    const request = { merchantId: '', provider: 'twilio', flow: 'v2', template: 't' };
    // Events arrive in order: after this one, none of the previous tests does.
    await core.release('CA-4999');
    await core.allocate({ ...request, callSid: 'CA-last' });
    await table.getByText('CA-last', { exact: true }).waitFor();
    await page.getByRole('button', { name: 'Pause' }).click();
    const atOnce = (begin: number, act: (sid: string) => Promise<unknown>) =>
      Promise.all(Array.from({ length: 100 }, (_, i) => act(`CA-${begin + i}`)));
    for (let n = 0; n < 3100; n += 100) {
      await atOnce(n, (callSid) => core.release(callSid));
      await atOnce(n, (callSid) => core.allocate({ ...request, callSid }));
    }
    await page.getByRole('button', { name: 'Resume (6,200 new)' }).click();
    await until(async () => (await rows()) >= 5200, 'trimmed events are read again');
    const shown = await rows();
    const newestFirst: { type: string; call: string }[] = [];
    for (let before: string | null = ''; before !== null && newestFirst.length < shown; ) {
      const { body } = await router.get(`/events/search?limit=500${before && `&before=${before}`}`);
      newestFirst.push(...body.events);
      before = body.before;
    }
    await page.getByRole('region', { name: 'Events' }).evaluate((box) => box.scrollTo(0, box.scrollHeight));
    const last = table.locator(`[aria-rowindex="${shown + 1}"]`);
    // Were any missing between, the last row would be an older event.
    await last.getByText(newestFirst[shown - 1]?.call ?? '', { exact: true }).waitFor();
    await page.getByRole('button', { name: 'Load older events' }).click();
    await until(async () => (await rows()) === shown + 200, 'and on into the past');
  });
});
