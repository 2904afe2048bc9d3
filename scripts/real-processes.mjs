// Runs a program of test/ that starts real processes: `npm run chaos -- --minutes 5`, `npm run failover -- --rounds
// 20`, `npm run soak -- --hours 2`. Builds dist/ for the routers and workers, and compiles test/NAME into .cache. `npm test` checks the types.
import { execFileSync, spawn } from 'node:child_process';
import { copyFileSync, mkdirSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const [program = '', ...args] = process.argv.slice(2);
const compiled = join(root, '.cache', `${program}-program`);
const isBuildNeeded = !args.some((word) => ['--help', '-h', '--summarise'].includes(word));
if (isBuildNeeded)
  execFileSync(process.execPath, [join(root, 'scripts', 'build.mjs')], { stdio: 'inherit', cwd: root });
rmSync(compiled, { recursive: true, force: true });
mkdirSync(compiled, { recursive: true });
// src/version.ts reads it.
copyFileSync(join(root, 'package.json'), join(compiled, 'package.json'));
const typescript = dirname(createRequire(import.meta.url).resolve('typescript/package.json'));
const config = join(root, 'test', program, 'tsconfig.json');
execFileSync(process.execPath, [join(typescript, 'bin', 'tsc'), '-p', config], {
  stdio: 'inherit',
  cwd: root,
});
const script = join(compiled, 'test', program, 'cli.js');
// The IPC channel closes when this process dies. Ctrl-C reaches the child too; wait until it has healed and ended.
const child = spawn(process.execPath, [script, ...args], {
  stdio: ['inherit', 'inherit', 'inherit', 'ipc'],
  cwd: root,
});
process.on('SIGINT', () => {});
process.on('SIGTERM', () => child.kill('SIGTERM'));
child.once('exit', (code) => {
  process.exitCode = code ?? 1;
});
