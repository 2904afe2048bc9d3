/**
 * A thousand pods and five thousand calls, of which about thirty a second end and begin again, while each page is
 * shown and scrolled. Measures the time between two frames, against an idle page in the same browser under the same
 * load.
 */
import type { Browser } from 'playwright-core';
import { launchChromium } from '../../scripts/chromium.mjs';
import { forEach, percentile } from '../support/measure.js';
import { type Figure, number } from '../support/report.js';
import type { Bench } from '../support/run.js';
import { holds } from './page.js';
import { start } from './programs.js';

const pods = 1000;
const calls = 5000;
const changesPerSecond = 30;

/** Milliseconds between frames, while everything that scrolls is scrolled up and down. */
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
  const browser = await launchChromium();
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
  let changes: Changes | undefined;
  try {
    const { groups } = await router.line(/(?=.*smart-router is listening).*"url":"(http:[^"]+)"/);
    const url = (groups[0] ?? '').replace(/\/$/, '');
    const headers = { 'content-type': 'application/json' };
    const post = async (path: string, call_sid: string) => {
      const body = JSON.stringify({ call_sid });
      const response = await fetch(`${url}/api/v1${path}`, { method: 'POST', headers, body });
      if (!response.ok) throw new Error(`${path} of ${call_sid} got ${response.status}`);
      await response.arrayBuffer();
    };
    await poolIsFull(url);
    const sids = Array.from({ length: calls }, (_, n) => `CA-${n}`);
    await forEach(sids, 32, (sid) => post('/allocate', sid));
    changes = new Changes(async (n) => {
      await post('/release', `CA-${n}`);
      await post('/allocate', `CA-${n}`);
    });
    const figures = await looks(browser, url, quick ? 3000 : 15_000);
    const perSecond = await changes.stop();
    return figures.map((figure) => ({
      ...figure,
      note: `${figure.note}; ${number(perSecond)} calls a second ended and began`,
    }));
  } finally {
    await changes?.stop();
    await browser.close();
    await router.stop();
  }
}

/** Its pods are registered shortly after it listens. */
async function poolIsFull(url: string): Promise<void> {
  const late = AbortSignal.timeout(60_000);
  for (;;) {
    const response = await fetch(`${url}/api/v1/status`, { signal: late });
    const { pools } = (await response.json()) as { pools: Record<string, { available: number }> };
    if (pools.basic?.available === pods) return;
    await pause(50);
  }
}

/** Replaces calls at a fixed rate; `stop` reports failures. */
class Changes {
  readonly #startMs = performance.now();
  readonly #work: Promise<unknown>;
  #isOver = false;
  #done = 0;

  constructor(change: (n: number) => Promise<void>) {
    this.#work = this.#run(change).catch((error: unknown) => error);
  }

  /** Replaced calls per second. */
  async stop(): Promise<number> {
    this.#isOver = true;
    const error = await this.#work;
    if (error) throw error;
    return this.#done / ((performance.now() - this.#startMs) / 1000);
  }

  async #run(change: (n: number) => Promise<void>): Promise<void> {
    while (!this.#isOver) {
      const dueMs = this.#startMs + (this.#done * 1000) / changesPerSecond;
      await pause(Math.max(0, dueMs - performance.now()));
      await change(this.#done % calls);
      this.#done += 1;
    }
  }
}

async function looks(browser: Browser, url: string, ms: number): Promise<Figure[]> {
  const page = await browser.newPage();
  const idle = (await page.evaluate(frames(ms))) as number[];
  const figures: Figure[] = [];
  for (const [name, sign] of [
    ['overview', '[aria-label^="basic: 1,000 pods"]'],
    ['pods', '[role=table][aria-label=Pods] [aria-rowindex="5"]'],
    ['calls', '[role=table][aria-label="Live calls"] [aria-rowindex="5"]'],
    ['events', '[role=table][aria-label=Events] [aria-rowindex="5"]'],
  ] as const) {
    await page.goto(`${url}/#/${name}`);
    await holds(page, `document.querySelector('${sign}')`);
    const gaps = (await page.evaluate(frames(ms))) as number[];
    figures.push({
      id: `console.large.${name}.frame_ms`,
      label: `1,000 pods, 5,000 calls that come and go: ${name}, 95 of 100 frames within`,
      value: percentile(gaps, 95),
      unit: 'ms',
      target: { below: 50 },
      note: `${gaps.length} frames, longest ${number(Math.max(...gaps))} ms; an empty page ${number(percentile(idle, 95))} ms, longest ${number(Math.max(...idle))} ms`,
    });
  }
  return figures;
}

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
