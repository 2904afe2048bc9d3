import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { embedSql } from '../../scripts/embed.mjs';
import { migrations } from '../../src/workflows/migrations.generated.js';
import { queries } from '../../src/workflows/queries.generated.js';

let root: string;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'embed-sql-'));
});
afterEach(() => rmSync(root, { recursive: true }));

function write(path: string, text: string): void {
  mkdirSync(dirname(join(root, path)), { recursive: true });
  writeFileSync(join(root, path), text);
}

it('migrations keep their order and every character', () => {
  write('src/a/b/migrations/002_two.sql', '-- two\nSELECT 2;\n');
  write('src/a/b/migrations/001_one.sql', 'SELECT $$\n-- one\n$$;\n');
  embedSql(root);
  const text = readFileSync(join(root, 'src/a/b/migrations.generated.ts'), 'utf8');
  expect(
    JSON.parse(
      text
        .slice(text.indexOf('= [') + 2)
        .replace(/(name|sql):/g, '"$1":')
        .replace(/,?\n\];\n$/, ']'),
    ),
  ).toEqual([
    { name: '001_one', sql: 'SELECT $$\n-- one\n$$;\n' },
    { name: '002_two', sql: '-- two\nSELECT 2;\n' },
  ]);
});

it.each([
  ['a gap', ['001_one.sql', '003_three.sql']],
  ['a number twice', ['001_one.sql', '001_two.sql']],
  ['no number', ['one.sql']],
])('%s in the numbers stops the build', (_, names) => {
  for (const name of names) write(`src/a/migrations/${name}`, 'SELECT 1;');
  expect(() => embedSql(root)).toThrow(/the name must start with 00[12]_, the next number/);
});

it('queries are keyed by name and lose their comments', () => {
  write('src/a/queries/find_all.sql', "-- All.\n-- $1 name\nSELECT '--'\n  -- why\nFROM t\n\n");
  embedSql(root);
  expect(readFileSync(join(root, 'src/a/queries.generated.ts'), 'utf8')).toBe(
    `export const queries = {\n  findAll: "SELECT '--'\\nFROM t",\n} as const;\n`,
  );
});

it('the shipped workflows have theirs', () => {
  expect(migrations.map(({ name }) => name)).toEqual(['001_sitemap_files', '002_pages']);
  expect(Object.keys(queries)).toEqual(['insertPages', 'insertSitemapFiles', 'savePage']);
});
