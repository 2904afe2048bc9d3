/** The package `@smart-router/client` as a project gets it: packed, installed without a network, compiled and run. */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { version } from '../../src/version.js';

const root = fileURLToPath(new URL('../..', import.meta.url));
const project = mkdtempSync(join(tmpdir(), 'smart-router-client-'));
const installed = join(project, 'node_modules/@smart-router/client');

function run(file: string, args: string[]): string {
  const { status, stdout, stderr, error } = spawnSync(file, args, { cwd: project, encoding: 'utf8' });
  if (status !== 0) throw new Error(`${args.join(' ')}: ${error ?? ''}\n${stdout}${stderr}`);
  return stdout;
}

/** Under npm the same npm, else the one on PATH. */
function npm(...args: string[]): void {
  const path = process.env.npm_execpath;
  const quiet = [...args, '--no-audit', '--no-fund', '--ignore-scripts', '--cache', join(project, 'cache')];
  if (path !== undefined && existsSync(path)) run(process.execPath, [path, ...quiet]);
  else run('npm', quiet);
}

const tarball = `smart-router-client-${version}.tgz`;

beforeAll(() => {
  writeFileSync(join(project, 'package.json'), '{ "type": "module", "private": true }');
  npm('pack', join(root, 'clients/typescript'));
  npm('install', '--offline', `./${tarball}`);
});
afterAll(() => rmSync(project, { recursive: true, force: true }));

describe('@smart-router/client', () => {
  it('has the version of the router, no dependency, and less than 1 MB', () => {
    const manifest = JSON.parse(readFileSync(join(installed, 'package.json'), 'utf8'));
    expect(manifest).toMatchObject({ version, engines: { node: '>=20' } });
    expect(Object.keys(manifest).filter((key) => /dependencies/i.test(key))).toEqual([]);
    expect(readdirSync(join(project, 'node_modules')).filter((name) => !name.startsWith('.'))).toEqual([
      '@smart-router',
    ]);
    const files = readdirSync(installed, { recursive: true, encoding: 'utf8' });
    expect(files).toEqual(expect.arrayContaining(['README.md', join('dist', 'LICENSE')]));
    const bytes = files.reduce((sum, name) => sum + statSync(join(installed, name)).size, 0);
    expect(bytes).toBeLessThan(1_000_000);
  });

  it('exports the same names as smart-router/client', async () => {
    const code = `console.log(JSON.stringify(Object.keys(await import('@smart-router/client'))))`;
    const names = JSON.parse(run(process.execPath, ['--input-type=module', '--eval', code]));
    expect(names.sort()).toEqual(Object.keys(await import('../../src/client/index.js')).sort());
  });
});
