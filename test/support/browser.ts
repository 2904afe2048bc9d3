/**
 * A real browser for tests of the console: Chromium of the machine, headless, limited to loopback.
 * One per test file; every page has its own context, and records its errors.
 */
import type { Browser, BrowserContextOptions, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect } from 'vitest';
import { findChromium, launchChromium } from '../../scripts/chromium.mjs';
import { findings } from './axe.js';
import { setupReason } from './engines.js';

export function browserAvailable(): true | string {
  return findChromium() !== undefined || `Chromium is not on PATH${setupReason('chromium')}`;
}

export interface ConsolePage extends Page {
  /** Errors of the page, of its console and of its content security policy, so far. */
  readonly problems: string[];
}

export interface SuiteBrowser {
  /** A fresh page at this address. */
  open(
    url: string,
    options?: BrowserContextOptions & { expectNetworkErrors?: boolean },
  ): Promise<ConsolePage>;
  /**
   * Closes every page, and fails if one had an error, or if axe finds a problem on it. It happens
   * after each test; a test that stops a router does it first, because a page that loses its router complains.
   */
  close(): Promise<void>;
}

/** A browser beside everything else: on a busy machine a page takes seconds to open. */
const testTimeoutMs = 90_000;

/** A router that a page looks at, on a busy machine: no answer is late, so no error is in the page's console. */
export const patientEnv = { REQUEST_TIMEOUT: '15s', REDIS_COMMAND_TIMEOUT: '12s' };

/** The browser's own message about a failed request. */
const networkError = /^Failed to load resource: (net::|the server responded with a status of 5\d\d)/;

/** Runs the suite where there is a Chromium; elsewhere it is listed as skipped, with the reason. */
export function describeBrowser(title: string, suite: (browser: SuiteBrowser) => void): void {
  const available = browserAvailable();
  if (available !== true) {
    const open = () => Promise.reject(new Error(available));
    describe.skip(`${title} [${available}]`, () => suite({ open, close: async () => {} }));
    return;
  }
  describe(title, { timeout: testTimeoutMs }, () => {
    let browser: Browser | undefined;
    const pages: { page: ConsolePage; expectNetworkErrors: boolean }[] = [];
    const close = async () => {
      for (const { page, expectNetworkErrors } of pages.splice(0)) {
        const faults = page.isClosed() ? [] : await findings(page);
        await page.context().close();
        expect(faults, page.url()).toEqual([]);
        const isExpected = (problem: string) => expectNetworkErrors && networkError.test(problem);
        expect(page.problems.filter((problem) => !isExpected(problem))).toEqual([]);
      }
    };
    beforeAll(async () => {
      browser = await launchChromium();
    });
    afterAll(() => browser?.close());
    afterEach(close);
    suite({
      async open(url, { expectNetworkErrors = false, ...options } = {}) {
        if (!browser) throw new Error('The browser has not started: use it inside tests.');
        const page = await openPage(browser, url, options);
        pages.push({ page, expectNetworkErrors });
        return page;
      },
      close,
    });
  });
}

export async function openPage(
  browser: Browser,
  url: string,
  options: BrowserContextOptions = {},
): Promise<ConsolePage> {
  const context = await browser.newContext({
    viewport: { width: 1280, height: 800 },
    reducedMotion: 'reduce',
    ...options,
  });
  context.setDefaultTimeout(30_000);
  await context.addInitScript({
    content: `addEventListener('securitypolicyviolation', (event) =>
      console.error('violates ' + event.violatedDirective + ': ' + event.blockedURI))`,
  });
  const page = await context.newPage();
  const problems: string[] = [];
  page.on('console', (message) => {
    if (message.type() === 'error' || message.type() === 'warning') problems.push(message.text());
  });
  page.on('pageerror', (error) => problems.push(String(error.stack)));
  await page.goto(url);
  return Object.assign(page, { problems });
}
