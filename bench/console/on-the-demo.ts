/**
 * The demo with its three routers, workers and database on the same cores as the browser. Its story is off; calls run.
 */
import type { Browser } from 'playwright-core';
import { launchChromium } from '../../scripts/chromium.mjs';
import { median } from '../support/measure.js';
import { type Figure, number } from '../support/report.js';
import type { Bench } from '../support/run.js';
import { holds } from './page.js';
import { type Program, start } from './programs.js';

/** Time from the start of loading until the pools are visible; and when each pod disappeared. */
const watchPods = `(() => {
  globalThis.gone = {};
  const look = (changes) => {
    for (const { removedNodes } of changes)
      for (const node of removedNodes) if (node.dataset?.pod) gone[node.dataset.pod] = Date.now();
    if (globalThis.viewMs === undefined && document.querySelector('[data-pod]')) {
      globalThis.viewMs = 0;
      requestAnimationFrame(() => setTimeout(() => { viewMs = performance.now(); }));
    }
  };
  new MutationObserver(look).observe(document, { childList: true, subtree: true });
})()`;

export async function onTheDemo({ quick }: Bench): Promise<Figure[]> {
  const browser = await launchChromium();
  const demo = start(['demo', '--no-story'], { HTTP_PORT: '0' });
  try {
    const { groups } = await demo.line(/^ {2}Open\s+(http:\S+)\//);
    const url = groups[0] ?? '';
    const first = await view(browser, url);
    const views: number[] = [];
    const empties: number[] = [];
    for (let round = 0; round < (quick ? 5 : 20); round++) {
      empties.push(await emptyPage(browser, url));
      views.push(await view(browser, url));
    }
    const deaths = await deadPods(browser, url, demo, quick ? 5 : 20);
    return [
      {
        id: 'console.first_view.seconds',
        label: 'first view of the demo: from loading to the pools on the screen',
        value: median(views) / 1000,
        unit: 's',
        target: { below: 1 },
        note: `${views.length} new visitors, slowest ${seconds(Math.max(...views))}; the first one, when the demo began to answer, ${seconds(first)}; an empty page of the same server ${seconds(median(empties))}`,
      },
      {
        id: 'console.dead_pod.seconds',
        label: 'a crashed pod of the demo: until the page no longer shows it, worst',
        value: Math.max(...deaths) / 1000,
        unit: 's',
        target: { below: 1 },
        note: `${deaths.length} crashes, median ${seconds(median(deaths))}`,
      },
    ];
  } finally {
    await browser.close();
    await demo.stop();
  }
}

const seconds = (ms: number) => `${number(ms / 1000)} s`;

/** As a new visitor: nothing is cached. */
async function view(browser: Browser, url: string): Promise<number> {
  const context = await browser.newContext();
  await context.addInitScript(watchPods);
  const page = await context.newPage();
  await page.goto(`${url}/#/overview`);
  await holds(page, 'globalThis.viewMs > 0');
  const ms = (await page.evaluate('viewMs')) as number;
  await context.close();
  return ms;
}

async function emptyPage(browser: Browser, url: string): Promise<number> {
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.goto(`${url}/health`);
  const ms = (await page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd")) as number;
  await context.close();
  return ms;
}

async function deadPods(browser: Browser, url: string, demo: Program, count: number): Promise<number[]> {
  const context = await browser.newContext();
  await context.addInitScript(watchPods);
  const page = await context.newPage();
  await page.goto(`${url}/#/overview`);
  const times: number[] = [];
  while (times.length < count) {
    await holds(page, "document.querySelectorAll('[data-pod]').length === 20");
    await page.evaluate('(gone = {}, 0)');
    const crash = demo.line(/agent +(\S+) crashed/);
    // Before the command: the time of its keyboard counts too.
    const atMs = Date.now();
    demo.type('crash');
    const pod = JSON.stringify((await crash).groups[0]);
    await holds(page, `gone[${pod}] !== undefined`);
    times.push(((await page.evaluate(`gone[${pod}]`)) as number) - atMs);
  }
  await context.close();
  return times;
}
