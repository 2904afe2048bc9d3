/** bin/smart-router.js where dist/ is missing or incomplete. */
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it, onTestFinished } from 'vitest';
import { start } from './support.js';

const bin = fileURLToPath(new URL('../../bin', import.meta.url));

function copyBin(built: Record<string, string> = {}): { path: string } {
  const folder = mkdtempSync(join(tmpdir(), 'smart-router-bin-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  cpSync(bin, join(folder, 'bin'), { recursive: true });
  const files = { 'package.json': '{"type":"module"}', ...built };
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, name)), { recursive: true });
    writeFileSync(join(folder, name), text);
  }
  return { path: join(folder, 'bin', 'smart-router.js') };
}

it('says in one line that it is not built, and exits 1', async () => {
  expect(await start(copyBin(), ['--help']).ended).toEqual({
    code: 1,
    stdout: '',
    stderr: 'smart-router is not built: run `npm ci` (or `npm run build`) in its folder\n',
  });
});

it('shows every other missing module unchanged', async () => {
  const binary = copyBin({ 'dist/cli/index.js': "import './gone.js';" });
  const { code, stderr } = await start(binary, []).ended;
  expect(code).toBe(1);
  expect(stderr).toContain('gone.js');
  expect(stderr).not.toContain('not built');
});

it('passes the arguments on and exits with what the command gives', async () => {
  const binary = copyBin({
    'dist/cli/index.js': 'export const run = async (args) => (console.log(args.join()), 4);',
  });
  expect(await start(binary, ['a', 'b']).ended).toEqual({ code: 4, stdout: 'a,b\n', stderr: '' });
});
