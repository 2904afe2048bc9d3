// Runs chaos with real processes: `npm run chaos -- --minutes 5`. The routers and workers are those of dist/, built here;
// test/chaos is compiled into .cache/chaos-program. Types are not checked here: `npm test` does.
import { execFileSync, spawn } from 'node:child_process';
import { copyFileSync, mkdirSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const compiled = join(root, '.cache', 'chaos-program');
const isHelp = process.argv.some((word) => word === '--help' || word === '-h');
if (!isHelp)
  execFileSync(process.execPath, [join(root, 'scripts', 'build.mjs')], { stdio: 'inherit', cwd: root });
rmSync(compiled, { recursive: true, force: true });
mkdirSync(compiled, { recursive: true });
// src/version.ts reads it.
copyFileSync(join(root, 'package.json'), join(compiled, 'package.json'));
const typescript = dirname(createRequire(import.meta.url).resolve('typescript/package.json'));
const config = join(root, 'test', 'chaos', 'tsconfig.json');
execFileSync(process.execPath, [join(typescript, 'bin', 'tsc'), '-p', config], {
  stdio: 'inherit',
  cwd: root,
});
const script = join(compiled, 'test', 'chaos', 'cli.js');
// The channel tells it when we are gone; Ctrl-C reaches it by itself, and we wait for it to heal and end.
const child = spawn(process.execPath, [script, ...process.argv.slice(2)], {
  stdio: ['inherit', 'inherit', 'inherit', 'ipc'],
  cwd: root,
});
process.on('SIGINT', () => {});
process.on('SIGTERM', () => child.kill('SIGTERM'));
child.once('exit', (code) => {
  process.exitCode = code ?? 1;
});
