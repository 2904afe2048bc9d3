import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { agentTable } from '../../src/config/agent.js';
import { configTable } from '../../src/config/config.js';
import { parseTierConfigJson } from '../../src/config/tiers.js';

// Cells may be padded so that columns line up.
const text = readFileSync(new URL('../../docs/configuration.md', import.meta.url), 'utf8').replace(
  / +\|/g,
  ' |',
);
const sections = new Map(text.split(/^## /m).map((part) => [part.split('\n', 1)[0] ?? '', part]));
const rowOf = (section: string, name: string) =>
  sections
    .get(section)
    ?.split('\n')
    .find((line) => line.startsWith(`| \`${name}\` |`));

describe('docs/configuration.md', () => {
  it.each([...configTable, ...agentTable].map((field) => [field.name, field] as const))(
    'has %s in the table of its section, with its defaults',
    (name, field) => {
      const row = rowOf(field.section, name);
      expect(row, `no row for ${name} under "## ${field.section}"`).toBeDefined();
      if (typeof field.fallback === 'string') expect(row).toContain(`\`${field.fallback}\``);
      if (field.demoFallback) expect(row).toContain(`demo \`${field.demoFallback}\``);
    },
  );

  it('names no variable in its tables that does not exist', () => {
    const known = new Set([...configTable, ...agentTable].map(({ name }) => name));
    const named = [...text.matchAll(/^\| `([A-Z_]+)` \|/gm)].map((match) => match[1] ?? '');
    expect(named.filter((name) => !known.has(name))).toEqual([]);
  });

  it('shows tier configurations that are accepted without a warning', () => {
    const tiers = sections.get('Tiers: the three forms of `TIER_CONFIG`') ?? '';
    const examples = [...tiers.matchAll(/```json\n(.*?)```/gs)].map((match) => match[1] ?? '');
    expect(examples).toHaveLength(3);
    for (const example of examples) {
      expect(parseTierConfigJson(example)).toMatchObject({ problems: [], warnings: [] });
    }
  });
});
