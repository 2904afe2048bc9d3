/** docs/benchmarks.md names every area, and has the markers between which `npm run bench` writes. */
import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { benchTable, withTable } from '../../scripts/bench-table.mjs';

const page = readFileSync('docs/benchmarks.md', 'utf8');
const areas = readdirSync('bench')
  .filter((name) => name.endsWith('.ts'))
  .map((name) => name.slice(0, -'.ts'.length));
const about = {
  store: 'redis',
  node: 'v20.0.0',
  cores: 2,
  machine: 'a processor, 24 GiB',
  load: 0.1,
  quick: false,
};
const figure = { id: 'a.b', label: 'a | b', value: 0.5, unit: 'x', target: { atLeast: 0.65 }, ok: false };

describe('docs/benchmarks.md', () => {
  it.each(areas)('says what %s measures', (area) => {
    expect(page).toMatch(new RegExp(`^\\| \`${area}\` \\|`, 'm'));
  });

  it('keeps everything around the table when the table is replaced', () => {
    const text = withTable(page, 'one');
    expect(withTable(text, 'two')).toBe(text.replace('\n\none\n\n', '\n\ntwo\n\n'));
    expect(withTable(page, 'one').split('## Figures')[0]).toBe(page.split('## Figures')[0]);
    expect(() => withTable('no place', 'one')).toThrow(/has no/);
  });
});

describe('the table of all benchmarks', () => {
  it('has a row for every figure, with its target and whether it is met', () => {
    const table = benchTable(['calls'], [{ ...about, area: 'calls', figures: [figure] }]);
    expect(table).toContain('2 cores of a processor, 24 GiB; Node 20.0.0, redis');
    expect(table).toContain('1 figures have a target; 1 miss it.');
    expect(table).toContain('| calls | a \\| b | 0.50 x | at least 0.65 x | **no** |  |');
  });

  it('has a row for a failed part, and for an area without results', () => {
    const results = [{ ...about, area: 'calls', figures: [], failed: ['sweep'] }];
    const table = benchTable(['calls', 'pool'], results);
    expect(table).toContain('| calls | part `sweep` | did not finish |');
    expect(table).toContain('| pool | everything | no result |');
    expect(benchTable(['calls'], [])).toBe('Not measured yet.');
  });
});
