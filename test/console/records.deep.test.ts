/** The page of records in a real browser, on a router with a real database behind it. */
import type { Pool } from 'pg';
import { beforeEach, expect, it } from 'vitest';
import { findings } from '../support/axe.js';
import { describeBrowser, patientEnv } from '../support/browser.js';
import { describeOneEngine } from '../support/engines.js';
import { describeOnePostgres } from '../support/postgres.js';
import { addJob, jobOf, jobsTable, limitedSource, recordsModule } from '../support/records-module.js';
import { startTestRouter } from '../support/router.js';
import { until } from '../support/until.js';

describeBrowser('records in the console', (browser) => {
  describeOneEngine('on a store', (engine) => {
    describeOnePostgres('and a database', (postgres) => {
      let pool: Pool;
      beforeEach(async () => {
        pool = postgres.pool();
        await jobsTable(pool);
      });
      const open = async (env: Record<string, string> = {}) => {
        const router = await startTestRouter(engine.url, {
          ...patientEnv,
          DATABASE_URL: postgres.url,
          RECORDS_MODULE: recordsModule(),
          // No automatic recovery: the test resets stuck records by hand.
          ZOMBIE_CLEANUP_ENABLED: 'false',
          ...env,
        });
        postgres.onEnd(async () => {
          await browser.close();
          await router.stop();
        });
        await until(async () => (await router.get('/status')).body.records.error === null, 'it is open');
        return browser.open(`${router.url}/#/records`);
      };

      it('shows a dry run of a reset that changes nothing, and then resets the records', async () => {
        const stuck = await addJob(pool, 'ok', { status: 'Processing', ago: '3 h' });
        const page = await open();
        const card = page.getByRole('region', { name: 'Workflow jobs' });
        await card.getByText('1 record stuck').waitFor();
        const row = page.getByRole('table', { name: 'Stuck records of jobs' }).getByRole('row').nth(1);
        await row.getByText('unclaimed').waitFor();
        await page.getByRole('button', { name: 'Reset all stuck…' }).click();
        const dialog = page.getByRole('dialog', { name: 'Reset stuck records of jobs' });
        await dialog.getByText('Dry run, nothing has changed.').waitFor();
        await dialog.getByText('1 record requeued').waitFor();
        expect(await findings(page)).toEqual([]);
        expect((await jobOf(pool, stuck)).status).toBe('Processing');
        await dialog.getByRole('button', { name: 'Reset 1 record' }).click();
        await dialog.waitFor({ state: 'detached' });
        await card.getByText('nothing stuck').waitFor();
        await page.getByText('No stuck records').waitFor();
        await until(async () => (await jobOf(pool, stuck)).status === 'Completed', 'the loop has done it');
      });

      it('shows why queued records wait, and retries one that waits for its retry', async () => {
        await addJob(pool, 'wait');
        await addJob(pool, 'wait');
        const id = await addJob(pool, 'fail');
        const page = await open({ RECORDS_MODULE: recordsModule(limitedSource) });
        const card = page.getByRole('region', { name: 'Workflow jobs' });
        await card.getByText(/1 wait for a retry \(next in .*\), 1 key at the limit/).waitFor();
        expect(await findings(page)).toEqual([]);
        await pool.query("UPDATE jobs SET what = 'ok' WHERE id = $1", [id]);
        await card.getByRole('button', { name: 'Retry failed records…' }).click();
        const dialog = page.getByRole('dialog', { name: 'Retry failed records of jobs' });
        await dialog.getByRole('columnheader', { name: 'Retry in' }).waitFor();
        await dialog.getByLabel('All 1').check();
        await dialog.getByRole('button', { name: 'Dry run' }).click();
        await dialog.getByRole('button', { name: 'Retry 1 record' }).click();
        await until(async () => (await jobOf(pool, id)).status === 'Completed', 'the loop has done it');
        await addJob(pool, 'done');
      });

      it('badge and page agree, also right after a reset', async () => {
        await addJob(pool, 'ok', { status: 'Processing', ago: '3 h' });
        const page = await open();
        const badge = page.getByRole('navigation').locator('.badge', { hasText: 'stuck' });
        const card = page.getByRole('region', { name: 'Workflow jobs' });
        await badge.getByText('1').waitFor();
        await card.getByText('1 record stuck').waitFor();
        await addJob(pool, 'ok', { status: 'Processing', ago: '2 h' });
        await card.getByText('2 records stuck').waitFor();
        expect(await badge.textContent()).toBe('2 stuck');
        await page.getByRole('table', { name: 'Stuck records of jobs' }).getByRole('row').nth(2).waitFor();
        await page.getByRole('button', { name: 'Reset all stuck…' }).click();
        await page.getByRole('dialog').getByRole('button', { name: 'Reset 2 records' }).click();
        await card.getByText('nothing stuck').waitFor();
        expect(await badge.count()).toBe(0);
      });

      it('reads again right after a reset and no longer lists the records', async () => {
        await addJob(pool, 'ok', { status: 'Processing', ago: '3 h' });
        const page = await open();
        // From now on only immediate reads are possible.
        await page.addInitScript(() => {
          const later = globalThis.setTimeout;
          const patient = (act: () => void, ms = 0) =>
            later(() => {
              if (ms < 500 || !('isNow' in globalThis)) act();
            }, ms);
          Object.assign(globalThis, { setTimeout: patient });
        });
        await page.reload();
        await page.getByRole('button', { name: 'Reset all stuck…' }).click();
        const dialog = page.getByRole('dialog', { name: 'Reset stuck records of jobs' });
        const reset = dialog.getByRole('button', { name: 'Reset 1 record' });
        await reset.waitFor();
        await page.evaluate('globalThis.isNow = true');
        await reset.click();
        await page.getByText('jobs: 1 record requeued.').last().waitFor();
        await page.getByText('No stuck records').waitFor();
        expect(await page.getByRole('button', { name: 'Reset all stuck…' }).isDisabled()).toBe(true);
      });

      it('lists records that were reset by hand as such, with the time they were stuck', async () => {
        const id = await addJob(pool, 'ok', { status: 'Processing', ago: '3 h' });
        const page = await open();
        await page.getByLabel(`Choose record ${id}`).check();
        await page.getByRole('button', { name: 'Reset 1 record…' }).click();
        await page.getByRole('button', { name: 'Reset 1 record', exact: true }).click();
        await page.getByText('No stuck records').waitFor();
        await page.goto(page.url().replace('#/records', '#/recovery?kind=record'));
        const row = page.getByRole('table', { name: 'Recoveries' }).getByRole('row').nth(1);
        await row.getByText(/^by hand, stuck 3 h/).waitFor();
      });

      it('resets only the chosen records', async () => {
        const [one, other] = [
          await addJob(pool, 'ok', { status: 'Processing', ago: '3 h' }),
          await addJob(pool, 'ok', { status: 'Processing', ago: '2 h' }),
        ];
        const page = await open();
        const all = page.getByLabel('Choose all');
        await all.check();
        expect(await page.getByLabel(`Choose record ${one}`).isChecked()).toBe(true);
        await page.getByRole('button', { name: 'Reset 2 records…' }).waitFor();
        await page.getByLabel(`Choose record ${other}`).uncheck();
        await all.and(page.locator(':indeterminate')).waitFor();
        await page.getByRole('button', { name: 'Reset 1 record…' }).click();
        await page.getByRole('button', { name: 'Reset 1 record', exact: true }).click();
        await page.getByLabel(`Choose record ${one}`).waitFor({ state: 'detached' });
        await page.getByLabel(`Choose record ${other}`).waitFor();
      });

      it('shows failed records with their errors, and retries the chosen ones after a dry run', async () => {
        const [failed, other] = [
          await addJob(pool, 'ok', { status: 'Failed' }),
          await addJob(pool, 'ok', { status: 'Failed' }),
        ];
        await pool.query('UPDATE jobs SET error = $1 WHERE id = $2', ['no <b>luck</b>', failed]);
        const page = await open();
        await page.getByRole('button', { name: 'Retry failed records…' }).click();
        const dialog = page.getByRole('dialog');
        await dialog.getByText('no <b>luck</b>').waitFor();
        const dryRun = dialog.getByRole('button', { name: 'Dry run' });
        expect(await dryRun.isDisabled()).toBe(true);
        await dialog.getByLabel('All 2').check();
        await dialog.getByLabel(String(other), { exact: true }).uncheck();
        await dryRun.click();
        await dialog.getByText('1 record requeued').waitFor();
        expect(await findings(page)).toEqual([]);
        expect((await jobOf(pool, failed)).status).toBe('Failed');
        await dialog.getByRole('button', { name: 'Retry 1 record' }).click();
        await until(async () => (await jobOf(pool, failed)).status === 'Completed', 'it is done');
        expect((await jobOf(pool, other)).status).toBe('Failed');
      });

      it('shows the error message while the database is down', async () => {
        const page = await open();
        await page.getByText('nothing stuck').waitFor();
        await postgres.stop();
        await page.getByRole('alert').first().waitFor();
        await postgres.start();
        await page.getByRole('alert').first().waitFor({ state: 'detached' });
        page.problems.splice(0);
      });
    });
  });
});
