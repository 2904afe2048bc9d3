// Runs the simulation: `npm run simulate -- --seeds 500`. Compiles test/simulation and the sources it imports,
// so that the current tree runs, into a folder per run, so that you can study one seed while thousands run. `npm test` checks
// the types.
import { execFileSync, spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { embedLua } from './embed-lua.mjs';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
mkdirSync(join(root, '.cache'), { recursive: true });
const compiled = mkdtempSync(join(root, '.cache', 'simulate-'));
process.on('exit', () => rmSync(compiled, { recursive: true, force: true }));
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => process.exit(130));
embedLua(root);
// src/version.ts reads it.
copyFileSync(join(root, 'package.json'), join(compiled, 'package.json'));
const typescript = dirname(createRequire(import.meta.url).resolve('typescript/package.json'));
const config = join(root, 'test', 'simulation', 'tsconfig.json');
const tsc = [join(typescript, 'bin', 'tsc'), '-p', config, '--outDir', compiled];
execFileSync(process.execPath, tsc, { stdio: 'inherit', cwd: root });
const script = join(compiled, 'test', 'simulation', 'cli.js');
process.exitCode =
  spawnSync(process.execPath, [script, ...process.argv.slice(2)], { stdio: 'inherit', cwd: root }).status ??
  1;
