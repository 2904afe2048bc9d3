import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { pythonClient, pythonMissing } from '../support/python.js';

const read = (path: string) => readFileSync(join(pythonClient, path), 'utf8');
const modules = readdirSync(join(pythonClient, 'smart_router')).filter((name) => name.endsWith('.py'));

describe('the Python package', () => {
  it('has the version of the router', () => {
    const { version } = JSON.parse(readFileSync('package.json', 'utf8')) as { version: string };
    expect(read('smart_router/_version.py')).toBe(`__version__ = "${version}"\n`);
  });

  it('has at most 400 lines in each module', () => {
    const lines = (name: string) => read(`smart_router/${name}`).split('\n').length - 1;
    expect(modules.filter((name) => lines(name) > 400)).toEqual([]);
  });

  it('imports only the standard library of Python', () => {
    const known = new Set([
      ...[
        '__future__',
        'asyncio',
        'contextlib',
        'dataclasses',
        'datetime',
        'email.utils',
        'http.client',
        'io',
      ],
      ...[
        'json',
        'logging',
        'math',
        'os',
        're',
        'random',
        'signal',
        'socket',
        'ssl',
        'threading',
        'time',
        'types',
      ],
      ...['typing', 'urllib.parse'],
    ]);
    const imported = modules.flatMap((name) =>
      [...read(`smart_router/${name}`).matchAll(/^\s*(?:from|import) ([\w.]+)/gm)].map(([, one = '']) => one),
    );
    expect(imported.filter((name) => !name.startsWith('.') && !known.has(name))).toEqual([]);
  });
});

describe('docs/python.md', () => {
  const text = readFileSync('docs/python.md', 'utf8');
  const blocks = [...text.matchAll(/^```python\n# (\w+\.py)\n([\s\S]*?)^```/gm)];

  it.each(blocks.map(([, file = '', code = '']) => [file, code] as const))(
    'quotes %s as it is',
    (file, code) => {
      const lines = code.split('\n').filter((line) => line.trim() !== '');
      const example = read(`examples/${file}`).split('\n');
      expect(lines.filter((line) => !example.includes(line))).toEqual([]);
      expect(lines.length).toBeGreaterThan(2);
    },
  );

  it('quotes both examples', () => {
    expect(new Set(blocks.map(([, file]) => file))).toEqual(
      new Set(readdirSync(join(pythonClient, 'examples')).filter((name) => name.endsWith('.py'))),
    );
  });
});

const missing = pythonMissing();

describe.skipIf(missing !== undefined)(`the Python client${missing ? ` [${missing}]` : ''}`, () => {
  it('passes its own tests: deadlines, cancellation, threads, signals', () => {
    execFileSync('python3', ['-B', '-W', 'error', '-m', 'unittest', 'discover', 'tests'], {
      cwd: pythonClient,
      env: { PATH: process.env.PATH, HOME: process.env.HOME, PYTHONPATH: pythonClient },
      stdio: 'pipe',
    });
  });
});
