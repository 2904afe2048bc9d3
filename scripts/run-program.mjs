// Compiles and runs a program of test/ with the sources that it imports: `npm run simulate -- --seeds 500`, `npm run chaos --
// --minutes 5`, `npm run failover -- --rounds 20`, `npm run soak -- --hours 2`. `npm test` checks the types. All but the
// simulation start real processes from dist/, which is built first.
import { execFileSync, spawn } from 'node:child_process';
import { copyFileSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { embedLua } from './embed.mjs';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const [program = '', ...args] = process.argv.slice(2);
const inherit = /** @type {const} */ ({ stdio: 'inherit', cwd: root });
if (program === 'simulation') embedLua(root);
else if (!args.some((word) => ['--help', '-h', '--summarise'].includes(word)))
  execFileSync(process.execPath, [join(root, 'scripts', 'build.mjs')], inherit);
// A folder per run: you can study one seed while thousands run.
mkdirSync(join(root, '.cache'), { recursive: true });
const compiled = mkdtempSync(join(root, '.cache', `${program}-`));
process.on('exit', () => rmSync(compiled, { recursive: true, force: true }));
// src/version.ts reads it.
copyFileSync(join(root, 'package.json'), join(compiled, 'package.json'));
const typescript = dirname(createRequire(import.meta.url).resolve('typescript/package.json'));
const config = join(root, 'test', program, 'tsconfig.json');
const tsc = [join(typescript, 'bin', 'tsc'), '-p', config, '--outDir', compiled];
execFileSync(process.execPath, tsc, inherit);
// The IPC channel closes when this process dies. Ctrl-C reaches the child too; wait until it has healed and ended.
const child = spawn(process.execPath, [join(compiled, 'test', program, 'cli.js'), ...args], {
  stdio: ['inherit', 'inherit', 'inherit', 'ipc'],
  cwd: root,
});
process.on('SIGINT', () => {});
process.on('SIGTERM', () => child.kill('SIGTERM'));
child.once('exit', (code) => {
  process.exitCode = code ?? 1;
});
