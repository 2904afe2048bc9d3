/**
 * A thousand pods and five thousand calls, of which thirty a second end and begin again, while somebody looks at each
 * page and scrolls. Smooth is what a browser can draw in time: how far two frames are apart, against a page on which
 * nothing happens, in the same browser and under the same load.
 */
import type { Browser, Page } from 'playwright-core';
import { launchChromium } from '../../scripts/chromium.mjs';
import { forEach, percentile } from '../support/measure.js';
import { type Figure, number } from '../support/report.js';
import type { Bench } from '../support/run.js';
import { holds } from './page.js';
import { start } from './programs.js';

const pods = 1000;
const calls = 5000;
const changesPerSecond = 30;

/** Frames of a while, in milliseconds between one and the next; scrolls up and down whatever can be scrolled. */
const frames = (ms: number) => `new Promise((resolve) => {
  const boxes = [document.scrollingElement, ...document.querySelectorAll('[role=region]')];
  const gaps = [];
  const begin = performance.now();
  let last = begin;
  const next = (now) => {
    gaps.push(now - last);
    last = now;
    for (const box of boxes) box.scrollTop = (1 - Math.cos((now - begin) / 400)) * 0.5 * box.scrollHeight;
    if (now - begin < ${ms}) requestAnimationFrame(next);
    else resolve(gaps.slice(1));
  };
  requestAnimationFrame(next);
})`;

export async function largeFleet({ engine, admin, quick }: Bench): Promise<Figure[]> {
  await admin.flushall();
  const router = start(['serve'], {
    REDIS_URL: engine.url,
    HTTP_PORT: '0',
    METRICS_PORT: 'off',
    LOG_FORMAT: 'json',
    POD_SOURCE: 'static',
    STATIC_PODS: Array.from({ length: pods }, (_, n) => `agent-${n}=basic`).join(','),
    TIER_CONFIG: JSON.stringify({ tiers: { basic: { type: 'shared', target: pods, max_concurrent: 5 } } }),
    LEASE_TTL: '15m',
    LEADER_ELECTION_ENABLED: 'false',
  });
  const browser = await launchChromium();
  let isOver = false;
  let changing: Promise<void> | undefined;
  try {
    const { groups } = await router.line(/(?=.*smart-router is listening).*"url":"(http:[^"]+)"/);
    const url = (groups[0] ?? '').replace(/\/$/, '');
    const post = async (path: string, call_sid: string) => {
      const headers = { 'content-type': 'application/json' };
      const body = JSON.stringify({ call_sid });
      const response = await fetch(`${url}/api/v1${path}`, { method: 'POST', headers, body });
      await response.arrayBuffer();
      return response.ok;
    };
    // The pods are there a moment after it listens.
    while (!(await post('/allocate', 'CA-0'))) await pause(50);
    const sids = Array.from({ length: calls }, (_, n) => `CA-${n}`);
    await forEach(sids, 32, (sid) => post('/allocate', sid));
    changing = (async () => {
      for (let n = 0; !isOver; n = (n + 1) % calls) {
        await post('/release', `CA-${n}`);
        await post('/allocate', `CA-${n}`);
        await pause(1000 / changesPerSecond);
      }
    })();
    return await looks(browser, url, quick ? 3000 : 15_000);
  } finally {
    isOver = true;
    await changing;
    await browser.close();
    await router.stop();
  }
}

async function looks(browser: Browser, url: string, ms: number): Promise<Figure[]> {
  const page = await browser.newPage();
  const idle = (await page.evaluate(frames(ms))) as number[];
  const figures: Figure[] = [];
  for (const [name, sign] of [
    ['overview', 'basic: 1,000 pods'],
    ['pods', 'agent-'],
    ['calls', 'CA-'],
    ['events', 'CA-'],
  ] as const) {
    await open(page, `${url}/#/${name}`, sign);
    const gaps = (await page.evaluate(frames(ms))) as number[];
    figures.push({
      id: `console.large.${name}.frame_ms`,
      label: `1,000 pods, 5,000 calls, ${changesPerSecond} changes a second: ${name}, 95 of 100 frames within`,
      value: percentile(gaps, 95),
      unit: 'ms',
      target: { below: 50 },
      note: `${gaps.length} frames, longest ${number(Math.max(...gaps))} ms; an empty page ${number(percentile(idle, 95))} ms, longest ${number(Math.max(...idle))} ms`,
    });
  }
  return figures;
}

async function open(page: Page, address: string, sign: string): Promise<void> {
  await page.goto(address);
  await holds(page, `document.querySelector('main')?.innerHTML.includes(${JSON.stringify(sign)})`);
}

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
