// Builds dist/: embeds Lua and SQL files in TypeScript modules, compiles, and bundles the console. Also builds the package
// in clients/typescript.
import { execFileSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { embedLua, embedSql } from './embed.mjs';
import { runbookPlugin } from './runbook-pages.mjs';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');

/** @returns {string | undefined} */
function compiler() {
  try {
    const pkg = createRequire(import.meta.url).resolve('typescript/package.json');
    return join(dirname(pkg), 'bin', 'tsc');
  } catch {
    return undefined;
  }
}

const tsc = compiler();
if (tsc === undefined) {
  // `npm ci --omit=dev` on a tree that is already built: nothing to do.
  if (existsSync(join(root, 'dist', 'index.js'))) process.exit(0);
  console.error(
    'smart-router: dist/ is missing and TypeScript is not installed: run `npm ci` without --omit=dev first.',
  );
  process.exit(1);
}
embedLua(root);
embedSql(root);
const dist = join(root, 'dist');
// Renamed into dist/ at the end: `npx smart-router` in this folder builds as well, beside a running router.
mkdirSync(join(root, '.cache'), { recursive: true });
const fresh = mkdtempSync(join(root, '.cache', 'dist-'));
const freshClient = mkdtempSync(join(root, '.cache', 'client-'));
process.once('exit', () => {
  for (const folder of [fresh, freshClient]) rmSync(folder, { recursive: true, force: true });
});
try {
  execFileSync(process.execPath, [tsc, '-p', join(root, 'tsconfig.build.json'), '--outDir', fresh], {
    stdio: 'inherit',
    cwd: root,
  });
} catch {
  process.exit(1);
}
// A signal alone runs no `exit` listener. Not before this line: it would wait until the compiler ends.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.once(signal, () => process.exit(1));
// The package of the client is a copy of what was compiled; src/client is its only source. The image has no clients/.
const client = join(root, 'clients', 'typescript');
const hasClient = existsSync(client);
if (hasClient) {
  for (const name of ['client', 'clock.js', 'clock.d.ts', 'version.js', 'version.d.ts'])
    cpSync(join(fresh, name), join(freshClient, name), { recursive: true });
  // npm packs a license only from the package's own folder.
  cpSync(join(root, 'LICENSE'), join(freshClient, 'LICENSE'));
}

// The console: one page, one script and one style sheet with hashed names, and a script with the runbook, loaded on demand.
const { build } = await import('vite');
await build({
  configFile: false,
  root: join(root, 'console'),
  // The page also works below a path of a proxy.
  base: './',
  logLevel: 'warn',
  publicDir: false,
  plugins: [runbookPlugin(root)],
  build: {
    outDir: join(fresh, 'console'),
    emptyOutDir: true,
    // The content security policy allows files of this origin and nothing inline.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: 'es2022',
    cssCodeSplit: false,
  },
});
const outdated = replace(fresh, dist);
if (hasClient) outdated.push(...replace(freshClient, join(client, 'dist')));
for (const path of outdated) rmSync(path, { recursive: true, force: true });

/**
 * Moves the files of `from` to `to`, folders first, so that a page never names a file that is not there yet. Returns the paths
 * in `to` that were not in `from`: removed last, when no page names them any more.
 * @param {string} from
 * @param {string} to
 * @returns {string[]}
 */
function replace(from, to) {
  mkdirSync(to, { recursive: true });
  const entries = readdirSync(from, { withFileTypes: true });
  const outdated = entries
    .filter((entry) => entry.isDirectory())
    .flatMap(({ name }) => replace(join(from, name), join(to, name)));
  for (const { name } of entries.filter((entry) => entry.isFile()))
    renameSync(join(from, name), join(to, name));
  const names = new Set(entries.map(({ name }) => name));
  const others = readdirSync(to).filter((name) => !names.has(name));
  return [...outdated, ...others.map((name) => join(to, name))];
}
