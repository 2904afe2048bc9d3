// Starts the installed Chromium, headless and limited to loopback, for tests, benchmarks and screenshots.
import { chromium } from 'playwright-core';
import { findProgram } from './setup-helm.mjs';

/** @returns {string | undefined} */
export function findChromium() {
  return ['chromium', 'chromium-browser', 'google-chrome']
    .map(findProgram)
    .find((path) => path !== undefined);
}

/** @returns {Promise<import('playwright-core').Browser>} */
export async function launchChromium() {
  const executablePath = findChromium();
  if (executablePath === undefined)
    throw new Error('Chromium is not on PATH: install it first (Debian: apt-get install chromium).');
  return chromium.launch({
    executablePath,
    args: [
      // Chromium has no sandbox for root.
      ...(process.getuid?.() === 0 ? ['--no-sandbox'] : []),
      '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1',
      '--disable-dev-shm-usage',
    ],
  });
}
