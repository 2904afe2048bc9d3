/** Sign-in, sign-out, the end of a session, and a restart of the router. */
import { afterEach, expect, it } from 'vitest';
import { describeBrowser, patientEnv } from '../support/browser.js';
import { describeOneEngine } from '../support/engines.js';
import { onOwnPort } from '../support/ports.js';
import { impatient, startTestRouter, type TestRouter } from '../support/router.js';
import { until } from '../support/until.js';

const adminKey = 'admin-key-0123456789';
const keys = { SMART_ROUTER_ADMIN_KEY: adminKey, SMART_ROUTER_API_KEY: 'api-key-0123456789' };

describeBrowser('the console and its router', (browser) => {
  describeOneEngine('with keys', (engine) => {
    let router: TestRouter;
    afterEach(async () => {
      await browser.close();
      await router.stop();
    });

    it('asks for the admin key, shows why it is rejected, then opens the requested page', async () => {
      router = await startTestRouter(engine.url, { ...patientEnv, ...keys });
      const page = await browser.open(`${router.url}/#/pods?tier=gold`);
      await page.getByRole('heading', { name: 'Sign in' }).waitFor();
      const field = page.getByLabel('Admin key');
      expect(await page.evaluate('document.activeElement.id')).toBe('key');
      await field.fill('not-the-key-0123456789');
      await page.getByRole('button', { name: 'Sign in' }).click();
      await page.getByRole('alert').getByText('wrong admin key').waitFor();
      expect(await field.inputValue()).toBe('');
      await field.fill(adminKey);
      await field.press('Enter');
      await page.getByRole('heading', { name: 'Pods', level: 1 }).waitFor();
      await page.getByRole('row').filter({ hasText: 'gold-1' }).waitFor();
      expect(await page.getByLabel('Pool', { exact: true }).inputValue()).toBe('gold');

      const kept = await page.evaluate('JSON.stringify([localStorage, sessionStorage, document.cookie])');
      expect(kept).not.toContain(adminKey);
      expect(kept).not.toContain('smart_router_session');
      const [cookie] = await page.context().cookies();
      expect(cookie).toMatchObject({ httpOnly: true, sameSite: 'Strict' });
      expect(router.logText()).not.toContain(adminKey);
      expect(page.problems.splice(0).join()).toContain('401');
    });

    it('allows mutating requests with a session, and none after sign-out', async () => {
      router = await startTestRouter(engine.url, { ...patientEnv, ...keys });
      const page = await browser.open(`${router.url}/#/pods`);
      await page.getByLabel('Admin key').fill(adminKey);
      await page.getByRole('button', { name: 'Sign in' }).click();
      await page.getByRole('button', { name: 'Drain gold-1' }).click();
      await page.getByRole('dialog').getByRole('button', { name: 'Drain' }).click();
      await page.getByRole('button', { name: 'Undrain gold-1' }).first().waitFor();
      await page.getByRole('button', { name: 'Sign out' }).click();
      await page.getByRole('heading', { name: 'Sign in' }).waitFor();
      expect(await page.getByText('gold-1').count()).toBe(0);
      await page.reload();
      await page.getByRole('heading', { name: 'Sign in' }).waitFor();
      // A read may be on its way when the session ends.
      expect(page.problems.splice(0).filter((problem) => !problem.includes('401'))).toEqual([]);
    });

    it('logs a release with the name of the session', async () => {
      router = await startTestRouter(engine.url, { ...patientEnv, ...keys });
      await router.post(
        '/allocate',
        { call_sid: 'CA1' },
        { authorization: `Bearer ${keys.SMART_ROUTER_API_KEY}` },
      );
      const page = await browser.open(`${router.url}/#/calls/CA1`);
      await page.getByLabel('Admin key').fill(adminKey);
      await page.getByRole('button', { name: 'Sign in' }).click();
      await page.getByRole('button', { name: 'Release CA1' }).click();
      await page.getByRole('dialog').getByRole('button', { name: 'Release the call' }).click();
      await page
        .getByText(/^Call CA1 is released\./)
        .last()
        .waitFor();
      await until(() => /audit: call\.release done/.test(router.logText()), 'it is in the log');
      expect(router.logText()).toMatch(/"action":"call\.release","what":"CA1".*"actor":"console:/);
    });

    it('asks again when the session has expired, and returns to the same page', async () => {
      router = await startTestRouter(engine.url, { ...patientEnv, ...keys });
      const page = await browser.open(`${router.url}/#/events?type=leader_elected`);
      await page.getByLabel('Admin key').fill(adminKey);
      await page.getByRole('button', { name: 'Sign in' }).click();
      await page.getByRole('heading', { name: 'Events', level: 1 }).waitFor();
      await page.context().clearCookies();
      await page.getByRole('heading', { name: 'Sign in' }).waitFor();
      await page.getByLabel('Admin key').fill(adminKey);
      await page.getByRole('button', { name: 'Sign in' }).click();
      await page.getByRole('heading', { name: 'Events', level: 1 }).waitFor();
      expect(new URL(page.url()).hash).toBe('#/events?type=leader_elected');
      expect(page.problems.splice(0).join()).toContain('401');
    });
  });

  describeOneEngine('that stops', (engine) => {
    it('shows since when it is stale, and recovers after a restart', async () => {
      const first = await onOwnPort((port) => startTestRouter(engine.url, { HTTP_PORT: String(port) }));
      const page = await browser.open(`${first.url}/#/overview`, { expectNetworkErrors: true });
      await page.getByRole('img', { name: 'gold: 2 pods, 0 calls. 2 free' }).waitFor();
      await first.stop();
      await page.getByText(/^Stale since (\d+ \w+ )?\d\d:\d\d:\d\d, reconnecting$/).waitFor();
      expect(await page.locator('main').getAttribute('data-stale')).toBe('');
      // The last known state is still shown.
      await page.getByRole('img', { name: 'gold: 2 pods, 0 calls. 2 free' }).waitFor();

      const second = await startTestRouter(engine.url, {
        ...patientEnv,
        HTTP_PORT: String(first.port),
      });
      try {
        await second.post('/allocate', { call_sid: 'CA1' });
        await page.getByText(/^Stale since/).waitFor({ state: 'detached' });
        await page.getByRole('img', { name: 'gold: 2 pods, 1 call. 1 free, 1 busy' }).waitFor();
        await second.post('/release', { call_sid: 'CA1' });
        await page.getByRole('img', { name: 'gold: 2 pods, 0 calls. 2 free' }).waitFor();
        expect(await page.locator('main').getAttribute('data-stale')).toBeNull();
      } finally {
        await browser.close();
        await second.stop();
      }
    });

    it('is stale when only the store does not answer', async () => {
      const router = await startTestRouter(engine.url, impatient);
      const page = await browser.open(`${router.url}/#/overview`, { expectNetworkErrors: true });
      try {
        await page.getByRole('img', { name: 'gold: 2 pods, 0 calls. 2 free' }).waitFor();
        await engine.pause();
        await page.getByText(/^Stale since/).waitFor();
        await engine.resume();
        await page.getByText(/^Stale since/).waitFor({ state: 'detached' });
      } finally {
        await engine.resume();
        await browser.close();
        await router.stop();
      }
    });
  });
});
