import { spawn } from 'node:child_process';
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';

const log = fileURLToPath(new URL('../../dist/observe/log.js', import.meta.url));

it.each(['json', 'pretty'])(
  'drops %s lines that a full disk does not take, and the process continues',
  async (format) => {
    const script = `
    const { createLogger } = await import(${JSON.stringify(log)});
    const log = createLogger({ level: 'info', format: '${format}' });
    for (let i = 0; i < 100; i++) log.info({ i }, 'x'.repeat(20_000));
    log.fatal('last line');
    process.stderr.write('continues');`;
    const child = spawn(process.execPath, ['--input-type=module', '-e', script], {
      stdio: ['ignore', openSync('/dev/full', 'w'), 'pipe'],
    });
    let stderr = '';
    child.stderr?.on('data', (chunk) => {
      stderr += chunk;
    });
    const code = await new Promise((resolve) => child.once('close', resolve));
    expect([code, stderr]).toEqual([0, 'continues']);
  },
);

it.each(['json', 'pretty'])('continues while the reader of its %s lines stalls', async (format) => {
  const script = `
    const { createLogger } = await import(${JSON.stringify(log)});
    const log = createLogger({ level: 'info', format: '${format}' });
    for (let i = 0; i < 300; i++) log.info({ i }, 'x'.repeat(1000));
    process.stderr.write('continues');
    process.stdin.once('data', () => {}).once('end', () => log.info('last line'));`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', script], { stdio: 'pipe' });
  // Nothing reads standard output until the child has written 300 KB: a pipe holds 64 KiB.
  child.stdout.pause();
  await new Promise((resolve) => child.stderr.once('data', resolve));
  let stdout = '';
  child.stdout.on('data', (chunk) => {
    stdout += chunk;
  });
  child.stdout.resume();
  await new Promise<void>((resolve) => {
    const check = () =>
      stdout.split('x\n').length + stdout.split('x"}').length > 300 ? resolve() : undefined;
    child.stdout.on('data', check);
    check();
  });
  child.stdin.end('x');
  await new Promise((resolve) => child.once('close', resolve));
  expect(stdout).toContain('last line');
});

it('overwrites nothing when standard output and standard error are the same file', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'smart-router-log-'));
  const file = openSync(join(folder, 'log'), 'w');
  const script = `
    const { createLogger } = await import(${JSON.stringify(log)});
    createLogger({ level: 'info', format: 'json' }).info('first line');
    process.stderr.write('second line');`;
  const stdio = ['ignore', file, file] as const;
  const child = spawn(process.execPath, ['--input-type=module', '-e', script], { stdio: [...stdio] });
  await new Promise((resolve) => child.once('close', resolve));
  closeSync(file);
  expect(readFileSync(join(folder, 'log'), 'utf8')).toMatch(/^\{.*"first line"\}\nsecond line$/);
  rmSync(folder, { recursive: true });
});
