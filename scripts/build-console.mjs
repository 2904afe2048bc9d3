// Builds console/ into dist/console: one page, one script and one style sheet with hashed names, and a script with the
// runbook, loaded on demand.
import { renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { runbookPlugin } from './runbook-pages.mjs';

/** @param {string} root */
export async function buildConsole(root) {
  const { build } = await import('vite');
  const folder = join(root, 'dist', 'console');
  const fresh = join(root, 'dist', '.console');
  await build({
    configFile: false,
    root: join(root, 'console'),
    // The page also works below a path of a proxy.
    base: './',
    logLevel: 'warn',
    publicDir: false,
    plugins: [runbookPlugin(root)],
    build: {
      outDir: fresh,
      emptyOutDir: true,
      // The content security policy allows files of this origin and nothing inline.
      assetsInlineLimit: 0,
      modulePreload: { polyfill: false },
      target: 'es2022',
      cssCodeSplit: false,
    },
  });
  // A running router that serves dist/console sees a missing page only between these two lines.
  rmSync(folder, { recursive: true, force: true });
  renameSync(fresh, folder);
}
