import { expect, it } from 'vitest';
import { skipLines } from './skips-reporter.js';

const file = 'test/http/calls.test.ts';

it('counts the tests of a file that share a reason, whether a note or a name carries it', () => {
  const skips = [
    { file, name: 'calls [native: redis-server is not on PATH] > one', note: undefined },
    { file, name: 'calls [native: redis-server is not on PATH] > two', note: undefined },
    { file, name: 'three', note: 'redis-server is not on PATH' },
    { file: 'test/b.test.ts', name: 'four', note: 'redis-server is not on PATH' },
    { file: 'test/b.test.ts', name: 'five', note: 'redis-server is not on PATH' },
  ];
  expect(skipLines(skips)).toEqual([
    `  ${file}: 3 tests: redis-server is not on PATH`,
    '  test/b.test.ts: 2 tests: redis-server is not on PATH',
  ]);
});

it('names the only test with its reason, and every test without one', () => {
  const skips = [
    { file, name: 'TLS', note: 'openssl is not on PATH' },
    { file, name: 'metrics [promtool is not on PATH]', note: undefined },
    { file, name: 'calls [embedded] > one', note: undefined },
    { file, name: 'calls [embedded] > two', note: undefined },
  ];
  expect(skipLines(skips)).toEqual([
    `  ${file} > TLS (openssl is not on PATH)`,
    `  ${file} > metrics [promtool is not on PATH]`,
    `  ${file} > calls [embedded] > one`,
    `  ${file} > calls [embedded] > two`,
  ]);
});

it('prints nothing without skipped tests', () => {
  expect(skipLines([])).toEqual([]);
});
