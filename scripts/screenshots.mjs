// `npm run screenshots`: every page of the console and its sign-in, light and dark, wide and narrow, of a running demo.
//   npm run screenshots -- [folder] [--seconds 90] [--readme]
// The folder is a new one in the system's place for temporary files unless it is given. The demo runs for a while first,
// so that there is something to see. With --readme the light overview also becomes docs/images/console.png, and a short
// recording docs/images/console-live.png.
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

/** With a key the demo asks for it, and the sign-in is seen too. It goes no further than this machine. */
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
  console.log(`The demo answers at ${url}; it plays for ${values.seconds} s first.`);
  await sleep(Number(values.seconds) * 1000);
  for (const viewport of sizes)
    for (const colorScheme of schemes) await shoot(browser, url, viewport, colorScheme);
  if (values.readme) {
    const images = join(root, 'docs', 'images');
    copyFileSync(join(folder, 'overview-1440-light.png'), join(images, 'console.png'));
    writeFileSync(join(images, 'console-live.png'), await record(browser, url));
    console.log('docs/images has the light overview and a recording.');
  }
  console.log(`${(1 + pages.length) * sizes.length * schemes.length} pictures are in ${folder}`);
} finally {
  await browser.close();
  demo.kill('SIGTERM');
  await ended;
}

/** The one line that it prints when it answers. @returns {Promise<string>} */
async function address() {
  for await (const line of createInterface({ input: demo.stdout })) return JSON.parse(line).url;
  throw new Error('the demo ended before it answered');
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
    // Charts and lists come with the answers of several requests.
    await page.waitForLoadState('networkidle', { timeout: 2000 }).catch(() => {});
    await picture(name);
  }
  await context.close();
}

/**
 * @param {import('playwright-core').Page} page
 * @param {string} url
 * @param {() => Promise<unknown>} [before] when the sign-in is seen
 */
async function signIn(page, url, before) {
  // The demo kills a router now and then: its connections break, and the next one is another's.
  for (let tries = 1; ; tries++) {
    const failure = await page.goto(url).then(
      () => undefined,
      (error) => error,
    );
    if (failure === undefined) break;
    if (tries === 10) throw failure;
    await sleep(1000);
  }
  await page.getByRole('heading', { name: 'Sign in' }).waitFor();
  await before?.();
  await page.getByLabel('Admin key').fill(key);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByText('Live', { exact: true }).waitFor();
}

/**
 * A walk through some pages, a picture every 700 ms.
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
