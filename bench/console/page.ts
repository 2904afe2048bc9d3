import type { Page } from 'playwright-core';

const patienceMs = 60_000;

/** Polls once a frame, inside the page: Playwright's own wait evaluates text, which the page's policy forbids. */
export async function holds(page: Page, condition: string): Promise<void> {
  await page.evaluate(`new Promise((resolve, reject) => {
    const endMs = performance.now() + ${patienceMs};
    const look = () => {
      if (${condition}) resolve();
      else if (performance.now() > endMs) reject(new Error('never: ' + ${JSON.stringify(condition)}));
      else requestAnimationFrame(look);
    };
    look();
  })`);
}
