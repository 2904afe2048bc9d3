// Builds console/ into dist/console: one page, one script, one style sheet, all with hashed names; and a script with the
// runbook, which is loaded when somebody opens it.
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
    // The page also works below a path, behind a proxy.
    base: './',
    logLevel: 'warn',
    publicDir: false,
    plugins: [runbookPlugin(root)],
    build: {
      outDir: fresh,
      emptyOutDir: true,
      // The content security policy allows files of our own and nothing inline.
      assetsInlineLimit: 0,
      modulePreload: { polyfill: false },
      target: 'es2022',
      cssCodeSplit: false,
    },
  });
  // A router that serves the page meanwhile finds it whole at every moment but one.
  rmSync(folder, { recursive: true, force: true });
  renameSync(fresh, folder);
}
