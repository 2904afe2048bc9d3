/**
 * The console on the demo, as a newcomer has it: three routers behind one address, calls that come and go, agents that
 * crash, abandoned records. Each page once, in a real browser; the details are tested elsewhere, on a quiet router.
 */
import { readFileSync } from 'node:fs';
import type { Locator, Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { Demo, hasPostgres, waitMs } from '../demo/support.js';
import { findings } from '../support/axe.js';
import { type ConsolePage, describeBrowser } from '../support/browser.js';
import { until } from '../support/until.js';

const key = 'a-key-for-the-demo-test';
const rowOf = (page: Page, table: string, name: string) =>
  page.getByRole('table', { name: table }).getByRole('row').filter({ hasText: name });

/** Of a process that may just have ended. */
function commandOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8');
  } catch {
    return '';
  }
}

describeBrowser('the console of the demo', (browser) => {
  let demo: Demo;
  beforeAll(async () => {
    demo = new Demo({ DEMO_SPEED: '2', SMART_ROUTER_ADMIN_KEY: key }, '--no-story');
    await until(() => /^ {2}Try /m.test(demo.output), 'the demo invites', waitMs);
  }, 2 * waitMs);
  afterAll(() => demo.end());

  const signIn = async (page: Page, admin = key) => {
    await page.getByLabel('Admin key').fill(admin);
    await page.getByRole('button', { name: 'Sign in' }).click();
  };
  const open = async (hash: string): Promise<ConsolePage> => {
    const page = await browser.open(`${demo.url}/#/${hash}`, { expectNetworkErrors: true });
    page.setDefaultTimeout(waitMs);
    await signIn(page);
    return page;
  };
  const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
  const get = async <T>(path: string) =>
    (await (await fetch(`${demo.url}/api/v1${path}`, { headers })).json()) as T;
  const post = (path: string, body: object) =>
    fetch(`${demo.url}/api/v1${path}`, { method: 'POST', headers, body: JSON.stringify(body) });
  /** What the demo says after this word was typed. */
  const after = async (word: string, pattern: RegExp): Promise<string> => {
    const mark = demo.output.length;
    demo.type(word);
    await until(() => pattern.test(demo.since(mark)), `the demo says ${pattern}`, waitMs);
    return pattern.exec(demo.since(mark))?.[1] ?? '';
  };

  /** An agent with a call, if there is one. What a busy machine is too slow to see of one crash, it sees of the next. */
  const crashUntil = async (isSeen: (pod: string) => Promise<boolean>): Promise<string> => {
    for (let tries = 1; ; tries += 1) {
      const pod = await after('crash', /agent +(\S+) crashed/);
      try {
        await until(() => isSeen(pod), `the crash of ${pod} is seen`);
        return pod;
      } catch (error) {
        if (tries === 5) throw error;
      }
    }
  };

  it('rejects a wrong key, and shows every pool with the right one', async () => {
    const page = await browser.open(`${demo.url}/#/overview`, { expectNetworkErrors: true });
    await signIn(page, 'not-the-key-of-this-demo');
    await page.getByRole('alert').getByText('wrong admin key').waitFor();
    await signIn(page);
    for (const pool of ['gold: 6', 'standard: 4', 'basic: 5', 'acme: 3', 'nova: 2'])
      await page.getByRole('img', { name: new RegExp(`${pool} pods, `) }).waitFor();
    await page.getByText(/^Leader router-[123]$/).waitFor();
    const refusals = page.problems.filter((problem) => problem.includes('401'));
    expect(refusals).not.toEqual([]);
    for (const refusal of refusals) page.problems.splice(page.problems.indexOf(refusal), 1);
  });

  it('shows new calls, and removes a pod that crashed', async () => {
    const page = await open('overview');
    await page.locator('[data-pod="gold-0"]').waitFor();
    await page.evaluate(`(() => {
      globalThis.gone = [];
      new MutationObserver((changes) => {
        for (const { removedNodes } of changes)
          for (const { dataset } of removedNodes) if (dataset?.pod) gone.push(dataset.pod);
      }).observe(document, { childList: true, subtree: true });
    })()`);
    demo.type('rush');
    await page.getByRole('img', { name: /^standard: 4 pods, 4 calls/ }).waitFor();
    await page.getByText('Call allocated').first().waitFor();
    const pod = await crashUntil(async (crashed) =>
      ((await page.evaluate('gone')) as string[]).includes(crashed),
    );
    // Its container starts again.
    await page.locator(`[data-pod="${pod}"]`).waitFor();
  });

  it('drains a pod, shows when its last call has ended, and undrains it', async () => {
    const page = await open('pods');
    await page.getByRole('button', { name: 'Drain standard-3', exact: true }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Drain' }).click();
    await rowOf(page, 'Pods', 'standard-3').getByText('Draining').waitFor();
    await demo.until(/drained +standard-3/);
    const progress = page.getByRole('region', { name: '1 pod draining' });
    await progress.getByText('drained').waitFor();
    await progress.getByRole('button', { name: 'Undrain standard-3' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Undrain' }).click();
    await progress.waitFor({ state: 'detached' });
  });

  it('shows the pod of a live and of an ended call, and why a call got none', async () => {
    const page = await open('calls');
    const answer = (await (await post('/allocate', { call_sid: 'my-call' })).json()) as { pod_name: string };
    await rowOf(page, 'Live calls', 'my-call').getByText(answer.pod_name).waitFor();
    await post('/release', { call_sid: 'my-call' });
    await rowOf(page, 'Live calls', 'my-call').waitFor({ state: 'detached' });
    await page.getByLabel('Search calls').fill('my-call');
    await page.getByLabel('Search calls').press('Enter');
    const panel = page.getByRole('complementary', { name: 'Call my-call' });
    await panel.getByText('Call released').waitFor();
    await panel.getByText(answer.pod_name).first().waitFor();

    const refused = await after('exhaust', /no pods +(CA-\d+) +×/);
    await page.getByLabel('Search calls').fill(refused);
    await page.getByLabel('Search calls').press('Enter');
    await page
      .getByRole('complementary', { name: `Call ${refused}` })
      .getByText(/Tried.*nova.*no free pod/)
      .waitFor();
  });

  it.skipIf(!hasPostgres)(
    'shows a dry run of a reset of abandoned records, and then resets them',
    async () => {
      await demo.until(/records +another-program left \d pages? in Processing/);
      const page = await open('records?workflow=page-curation');
      await page.getByRole('region', { name: 'Workflow sitemap-import' }).waitFor();
      await page.getByRole('table', { name: 'Stuck records of page-curation' }).waitFor();
      await page.getByRole('button', { name: 'Reset all stuck…' }).click();
      const dialog = page.getByRole('dialog', { name: 'Reset stuck records of page-curation' });
      await dialog.getByText('Dry run, nothing has changed.').waitFor();
      await dialog.getByRole('button', { name: /^Reset \d+ records?$/ }).click();
      await dialog.waitFor({ state: 'detached' });
      await demo.until(/records +\d abandoned records? of another-program requeued$/m);
    },
  );

  it('lists calls lost with a crashed agent, and recovered records', async () => {
    const page = await open('recovery');
    await page.getByRole('button', { name: '1 hour' }).waitFor();
    const sinceMs = Date.now();
    await after('crash', /agent +\S+ crashed; \d calls? lost/);
    let lost: string | undefined;
    await until(
      async () => {
        const { items } = await get<{ items: { id: string; outcome: string; at: string }[] }>('/recoveries');
        lost = items.find(({ outcome, at }) => outcome === 'lost' && Date.parse(at) >= sinceMs)?.id;
        return lost !== undefined;
      },
      'a call is lost',
      waitMs,
    );
    await rowOf(page, 'Recoveries', lost as string)
      .getByText(/container (has ended|was restarted)/)
      .first()
      .waitFor();
    if (!hasPostgres) return;
    await demo.killWorker();
    await page.getByRole('button', { name: 'Records', exact: true }).click();
    await rowOf(page, 'Recoveries', 'dead worker').first().waitFor();
  });

  it('previews the chain of a merchant, saves it, and shows the change', async () => {
    const page = await open('tiers');
    await page.getByRole('button', { name: 'Add merchant' }).click();
    await page.getByLabel('Merchant id').fill('newcomer');
    await page.getByLabel('Start of the default chain').selectOption('standard');
    const chain = page.getByRole('region', { name: 'Preview of the chain' });
    await chain.getByText(/standard.*basic/).waitFor();
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByRole('button', { name: 'Edit newcomer' }).waitFor();
    await page
      .getByRole('region', { name: 'Changes' })
      .getByText(/^newcomer/)
      .first()
      .waitFor();
  });

  it('shows events as they happen', async () => {
    const page = await open('events');
    await rowOf(page, 'Events', 'Call allocated').first().waitFor();
    await page.getByLabel('Search events').fill('CA-listen');
    await post('/allocate', { call_sid: 'CA-listen' });
    await rowOf(page, 'Events', 'CA-listen').first().waitFor();
  });

  it('is accessible on every page with data', async () => {
    const page = await open('overview');
    const shown: [name: string, sign: Locator][] = [
      ['overview', page.getByText('Call allocated')],
      ['pods', rowOf(page, 'Pods', 'gold-0')],
      ['calls', rowOf(page, 'Live calls', 'CA-')],
      ['recovery', rowOf(page, 'Recoveries', 'lost')],
      [
        'records',
        hasPostgres ? rowOf(page, 'Stuck records', 'Record') : page.getByText('This router has no records'),
      ],
      ['tiers', page.getByRole('button', { name: 'Edit newcomer' })],
      ['events', rowOf(page, 'Events', 'Call')],
    ];
    for (const [name, sign] of shown) {
      await page.goto(`${demo.url}/#/${name}`);
      await sign.first().waitFor();
      expect(await findings(page), name).toEqual([]);
    }
  });

  it.skipIf(process.platform !== 'linux')('recovers after all routers were killed', async () => {
    const page = await open('overview');
    await page.getByRole('img', { name: /^gold: 6 pods/ }).waitFor();
    const isRouter = (pid: number) => commandOf(pid).endsWith('\0serve\0');
    const routers = () => demo.children.filter(isRouter);
    await until(() => routers().length === 3, 'all three run', waitMs);
    for (const pid of routers()) process.kill(pid, 'SIGKILL');
    await page.getByText(/^Stale since (\d+ \w+ )?\d\d:\d\d:\d\d, reconnecting$/).waitFor();
    await page.getByText(/^Stale since/).waitFor({ state: 'detached' });
    await page.goto(`${demo.url}/#/calls`);
    await until(async () => (await post('/allocate', { call_sid: 'CA-back' })).ok, 'calls are taken', waitMs);
    await rowOf(page, 'Live calls', 'CA-back').waitFor();
  });
});
