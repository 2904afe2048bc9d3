import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { errorCodes } from '../../src/errors.js';

const text = readFileSync(new URL('../../docs/errors.md', import.meta.url), 'utf8');
const rows = new Map(
  text
    .split('\n')
    .filter((line) => line.startsWith('| `'))
    .map((line) => {
      const cells = line.split('|').map((cell) => cell.trim());
      return [cells[1]?.replaceAll('`', '') ?? '', cells.slice(2)];
    }),
);

describe('docs/errors.md', () => {
  it.each(Object.entries(errorCodes))(
    'has %s with status %i, what it means and what to do',
    (code, status) => {
      const [shown, meaning, advice] = rows.get(code) ?? [];
      expect(shown, `no row for ${code}`).toBe(String(status));
      expect(meaning?.length).toBeGreaterThan(20);
      expect(advice?.length).toBeGreaterThan(10);
    },
  );

  it('names no code that does not exist', () => {
    expect([...rows.keys()].filter((code) => !(code in errorCodes))).toEqual([]);
  });
});
