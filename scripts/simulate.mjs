// Runs the simulation: `npm run simulate -- --seeds 500`. test/simulation is compiled into .cache/simulate together with
// the sources it imports, so that what runs is the tree as it is now. Types are not checked here: `npm test` does.
import { execFileSync, spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { embedLua } from './embed-lua.mjs';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const compiled = join(root, '.cache', 'simulate');
embedLua(root);
rmSync(compiled, { recursive: true, force: true });
mkdirSync(compiled, { recursive: true });
// src/version.ts reads it.
copyFileSync(join(root, 'package.json'), join(compiled, 'package.json'));
const typescript = dirname(createRequire(import.meta.url).resolve('typescript/package.json'));
const config = join(root, 'test', 'simulation', 'tsconfig.json');
execFileSync(process.execPath, [join(typescript, 'bin', 'tsc'), '-p', config], {
  stdio: 'inherit',
  cwd: root,
});
const script = join(compiled, 'test', 'simulation', 'cli.js');
process.exitCode =
  spawnSync(process.execPath, [script, ...process.argv.slice(2)], { stdio: 'inherit', cwd: root }).status ??
  1;
