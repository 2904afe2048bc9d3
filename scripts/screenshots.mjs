// `npm run screenshots`: takes pictures of every page of the console of a demo, light and dark, wide and narrow.
//   npm run screenshots -- [folder] [--seconds 90] [--readme]
// The default folder is a new temporary one. The demo runs for some seconds first, to have data. --readme also writes the
// light overview to docs/images/console.png, and a short recording to docs/images/console-live.png.
import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { copyFileSync, mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { animated } from './animated-png.mjs';
import { launchChromium } from './chromium.mjs';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { seconds: { type: 'string', default: '90' }, readme: { type: 'boolean', default: false } },
});
if (!/^\d{1,4}$/.test(values.seconds)) {
  console.error(`--seconds must be a whole number from 0 to 9999, not ${JSON.stringify(values.seconds)}`);
  process.exit(2);
}
const folder = positionals[0] ?? mkdtempSync(join(tmpdir(), 'smart-router-screenshots-'));
mkdirSync(folder, { recursive: true });

/** With a key the demo shows the sign-in page too. The key is used on this machine only. */
const key = randomUUID();
const pages = ['overview', 'pods', 'calls', 'recovery', 'records', 'tiers', 'events'];
const sizes = [
  { width: 1440, height: 900 },
  { width: 768, height: 1024 },
  { width: 390, height: 844 },
];
const schemes = /** @type {const} */ (['light', 'dark']);

const browser = await launchChromium().catch((/** @type {Error} */ error) => {
  console.error(error.message);
  process.exit(1);
});
const demo = spawn(
  process.execPath,
  [join(root, 'bin', 'smart-router.js'), 'demo', '--headless', '--port', '0'],
  { stdio: ['ignore', 'pipe', 'inherit'], env: { ...process.env, SMART_ROUTER_ADMIN_KEY: key } },
);
const ended = once(demo, 'exit');
try {
  const url = await address();
  console.log(`demo listening on ${url}; taking pictures in ${values.seconds} s`);
  await sleep(Number(values.seconds) * 1000);
  for (const viewport of sizes)
    for (const colorScheme of schemes) await shoot(browser, url, viewport, colorScheme);
  if (values.readme) {
    const images = join(root, 'docs', 'images');
    copyFileSync(join(folder, 'overview-1440-light.png'), join(images, 'console.png'));
    writeFileSync(join(images, 'console-live.png'), await record(browser, url));
    console.log('wrote docs/images/console.png and docs/images/console-live.png');
  }
  console.log(`wrote ${(1 + pages.length) * sizes.length * schemes.length} pictures to ${folder}`);
} finally {
  await browser.close();
  demo.kill('SIGTERM');
  await ended;
}

/** Reads the address from the demo's first line. @returns {Promise<string>} */
async function address() {
  for await (const line of createInterface({ input: demo.stdout })) return JSON.parse(line).url;
  throw new Error('the demo exited before it listened');
}

/**
 * @param {import('playwright-core').Browser} browser
 * @param {string} url
 * @param {{ width: number, height: number }} viewport
 * @param {'light' | 'dark'} colorScheme
 */
async function shoot(browser, url, viewport, colorScheme) {
  const context = await browser.newContext({ viewport, colorScheme, reducedMotion: 'reduce' });
  const page = await context.newPage();
  const picture = (/** @type {string} */ name) =>
    page.screenshot({ path: join(folder, `${name}-${viewport.width}-${colorScheme}.png`) });
  await signIn(page, url, () => picture('sign-in'));
  for (const name of pages) {
    await page.goto(`${url}/#/${name}`);
    await page.getByText('Live', { exact: true }).waitFor();
    await page.getByText('Reading').waitFor({ state: 'detached' });
    // Charts and lists need the answers of several requests.
    await page.waitForLoadState('networkidle', { timeout: 2000 }).catch(() => {});
    await picture(name);
  }
  await context.close();
}

/**
 * @param {import('playwright-core').Page} page
 * @param {string} url
 * @param {() => Promise<unknown>} [before] called when the sign-in page is visible
 */
async function signIn(page, url, before) {
  // The demo kills routers: the page or its script may not load, and the next connection reaches another router.
  const heading = page.getByRole('heading', { name: 'Sign in' });
  for (let tries = 1; ; tries++) {
    try {
      await page.goto(url);
      await heading.waitFor({ timeout: 5000 });
      break;
    } catch (error) {
      if (tries === 10) throw error;
      await sleep(1000);
    }
  }
  await before?.();
  await page.getByLabel('Admin key').fill(key);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByText('Live', { exact: true }).waitFor();
}

/**
 * Records some pages, a picture every 700 ms.
 * @param {import('playwright-core').Browser} browser
 * @param {string} url
 */
async function record(browser, url) {
  const context = await browser.newContext({ viewport: { width: 1120, height: 700 }, colorScheme: 'light' });
  const page = await context.newPage();
  await signIn(page, url);
  const pictures = [];
  for (const [name, count] of /** @type {const} */ ([
    ['overview', 8],
    ['pods', 5],
    ['calls', 5],
    ['recovery', 3],
    ['records', 3],
  ])) {
    await page.goto(`${url}/#/${name}`);
    await page.getByText('Live', { exact: true }).waitFor();
    await page.getByText('Reading').waitFor({ state: 'detached' });
    for (let i = 0; i < count; i++) {
      await sleep(700);
      pictures.push(await page.screenshot());
    }
  }
  await context.close();
  return animated(pictures, 700);
}
