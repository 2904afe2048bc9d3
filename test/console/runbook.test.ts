/** The runbook in the console, and the links from alerts to it. */
import { describe, expect, it } from 'vitest';
import { inlineOf, runbookPages, sectionsOf } from '../../scripts/runbook-pages.mjs';
import { type AlertRule, alertRules, runbookOf } from '../../src/observe/alert-rules.js';
import { findings } from '../support/axe.js';
import { describeBrowser, patientEnv } from '../support/browser.js';
import { describeOneEngine } from '../support/engines.js';
import { startTestRouter } from '../support/router.js';

const pages = runbookPages(process.cwd());

describe('a document', () => {
  it('is split into sections, each with its subsections', () => {
    const text = '# All\n\nFirst.\n\n## One, *here*\n\na\nb\n\n### Small\n\nc\n\n## Two\n\nd\n';
    const sections = sectionsOf(text, 'runbook');
    expect(sections.map(([anchor, { title }]) => [anchor, title])).toEqual([
      ['all', 'All'],
      ['one-here', 'One, *here*'],
      ['small', 'Small'],
      ['two', 'Two'],
    ]);
    expect(sections[0]?.[1].blocks).toEqual([{ is: 'paragraph', text: ['First.'] }]);
    expect(sections[1]?.[1].blocks).toEqual([
      { is: 'paragraph', text: ['a b'] },
      { is: 'heading', text: ['Small'] },
      { is: 'paragraph', text: ['c'] },
    ]);
  });

  it('keeps code, lists and tables', () => {
    const text =
      '## A\n\n```sql\nSELECT 1; -- | # not a heading\n\n# nor this\n```\n\n1. one\n   goes on\n2. two\n\n| a | b |\n|---|---|\n| `x \\| y` | |\n';
    expect(sectionsOf(text, 'runbook')[0]?.[1].blocks).toEqual([
      { is: 'code', text: 'SELECT 1; -- | # not a heading\n\n# nor this' },
      { is: 'list', ordered: true, items: [['one goes on'], ['two']] },
      { is: 'table', head: [['a'], ['b']], rows: [[[{ code: 'x | y' }], []]] },
    ]);
  });

  it('keeps links to the console and the web; other links become text', () => {
    expect(inlineOf('**Do** [`this`](#here), [that](operations.md#there).', 'runbook')).toEqual([
      { strong: ['Do'] },
      ' ',
      { text: [{ code: 'this' }], to: '#/runbook/runbook/here' },
      ', ',
      { text: ['that'], to: '#/runbook/operations/there' },
      '.',
    ]);
    expect(inlineOf('[a](api.md#b) [c](https://d.example/e)', 'runbook')).toEqual([
      'a',
      ' ',
      { text: ['c'], to: 'https://d.example/e' },
    ]);
    expect(inlineOf('[x](javascript:alert(1)) <b>y</b>', 'runbook')).toEqual(['x', ') <b>y</b>']);
  });
});

describe('the pages', () => {
  it('exist for every alert', () => {
    const named = Object.values<readonly AlertRule[]>(alertRules)
      .flat()
      .map((rule) => runbookOf(rule).replace('docs/', '').replace('.md#', '/'));
    expect(named.filter((page) => pages[page] === undefined)).toEqual([]);
  });

  it('link only to existing pages', () => {
    const targets = [...JSON.stringify(pages).matchAll(/#\/runbook\/([^"]+)"/g)].map(([, page]) => page);
    expect(targets.length).toBeGreaterThan(10);
    expect(targets.filter((page) => pages[page as string] === undefined)).toEqual([]);
  });
});

describeBrowser('the runbook in the console', (browser) => {
  describeOneEngine('of a router', (engine) => {
    it('is one click from its alert and readable while the store is down', async () => {
      const router = await startTestRouter(engine.url, patientEnv);
      try {
        const page = await browser.open(`${router.url}/#/tiers`);
        const runbook = 'docs/runbook.md#smartrouternocapacity';
        const since = new Date().toISOString();
        const alert = { name: 'calls.no_pods', severity: 'page', summary: 'No pod', workflow: null };
        await page.route('**/api/v1/alerts', (route) =>
          route.fulfill({ json: { alerts: [{ ...alert, since, runbook }] } }),
        );
        await page.goto(`${router.url}/#/overview`);
        await page.getByRole('link', { name: 'Runbook' }).click();
        await page.getByRole('article', { name: 'SmartRouterNoCapacity' }).getByText('Means.').waitFor();
        await page.getByText('smart-router pods --state blocked').waitFor();
        await page.route('**/api/v1/status', async (route) => {
          const response = await route.fetch();
          await route.fulfill({ response, json: { ...(await response.json()), status: 'down' } });
        });
        await page.getByText(/^Stale since/).waitFor();
        expect(await findings(page)).toEqual([]);
        await page.getByRole('article').getByRole('link', { name: 'A pod takes no calls' }).click();
        await page.getByRole('article', { name: 'A pod takes no calls' }).waitFor();
        await page.goto(`${router.url}/#/runbook/runbook/nothing`);
        await page.getByText('No such page of the runbook').waitFor();
      } finally {
        await browser.close();
        await router.stop();
      }
    });
  });
});
