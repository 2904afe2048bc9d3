import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { Metrics } from '../../src/calls/metrics.js';
import { RecordMetrics } from '../../src/records/metrics.js';

const text = readFileSync(new URL('../../docs/metrics.md', import.meta.url), 'utf8');
const rows = new Map(
  text
    .split('\n')
    .filter((line) => line.startsWith('| `'))
    .map((line) => {
      const [, name = '', type, labels = '', meaning] = line.split('|').map((cell) => cell.trim());
      const names = [...labels.matchAll(/`(\w+)`/g)].map((match) => match[1]);
      return [name.replaceAll('`', ''), { type, labels: names, meaning }];
    }),
);
const { registry } = new Metrics();
new RecordMetrics(registry);
const metrics = registry.getMetricsAsArray() as unknown as {
  name: string;
  type: string;
  labelNames: string[];
}[];

describe('docs/metrics.md', () => {
  it.each(metrics.map((metric) => [metric.name, metric] as const))(
    'has %s with its type, its labels and its meaning',
    async (name, { labelNames }) => {
      const row = rows.get(name);
      expect(row, `no row for ${name}`).toBeDefined();
      const { type } = (await registry.getMetricsAsJSON()).find((metric) => metric.name === name) ?? {};
      expect(row?.type).toBe(type);
      expect(row?.labels).toEqual(labelNames);
      expect(row?.meaning?.length).toBeGreaterThan(5);
    },
  );

  it('names no metric that does not exist, neither in a table nor in a query', () => {
    const known = new Set(metrics.map(({ name }) => name));
    const queries = [...text.matchAll(/```promql\n(.*?)```/gs)].map((match) => match[1]).join('\n');
    const used = [...queries.matchAll(/\b(?:smart_router|http)_\w+/g)].map((match) => match[0]);
    const named = [...rows.keys(), ...used.map((name) => name.replace(/_(bucket|sum|count)$/, ''))];
    expect(named.filter((name) => !known.has(name))).toEqual([]);
    expect(used.length).toBeGreaterThan(10);
  });
});
