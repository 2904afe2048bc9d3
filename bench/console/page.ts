import type { Page } from 'playwright-core';

/** Looks once a frame, inside the page: Playwright's own way evaluates text, which the page's policy forbids. */
export async function holds(page: Page, condition: string): Promise<void> {
  await page.evaluate(`new Promise((resolve) => {
    const look = () => ((${condition}) ? resolve() : requestAnimationFrame(look));
    look();
  })`);
}
