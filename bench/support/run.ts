/** Runs the parts of an area and tells what they found: a table for people, a JSON file for machines. */
import { cpus, loadavg } from 'node:os';
import { parseArgs } from 'node:util';
import type { Redis } from 'ioredis';
import { type BenchEngine, startEngine } from './engine.js';
import { type Figure, meets, table, writeResults } from './report.js';
import { adminClient } from './store.js';

/** What a part of a benchmark gets; figures are what it gives. */
export interface Bench {
  engine: BenchEngine;
  admin: Redis;
  quick: boolean;
}

export type Part = (bench: Bench) => Promise<Figure[]>;

export async function runArea(area: string, parts: Readonly<Record<string, Part>>): Promise<void> {
  const { values: options } = parseArgs({
    options: {
      quick: { type: 'boolean', default: false },
      check: { type: 'boolean', default: false },
      only: { type: 'string' },
      json: { type: 'string', default: `bench/results/${area}.json` },
    },
  });
  const chosen = options.only?.split(',') ?? Object.keys(parts);
  const unknown = chosen.filter((name) => !(name in parts));
  if (unknown.length > 0) {
    console.error(
      `bench: ${area} has no part ${unknown.join(', ')}; it has ${Object.keys(parts).join(', ')}.`,
    );
    process.exit(2);
  }

  const load = loadavg()[0] ?? 0;
  const engine = await startEngine();
  const bench: Bench = { engine, admin: adminClient(engine.url), quick: options.quick };
  console.log(
    `Store: ${engine.name}. Node ${process.version}, ${cpus().length} cores, load ${load.toFixed(1)} before the start.`,
  );
  const figures: Figure[] = [];
  for (const name of chosen) {
    process.stderr.write(`${name} ...\n`);
    figures.push(...((await parts[name]?.(bench)) ?? []));
  }
  bench.admin.disconnect();
  await engine.stop();

  console.log(`\n${table(figures)}`);
  writeResults(
    options.json,
    {
      area,
      store: engine.name,
      node: process.version,
      cores: cpus().length,
      load,
      quick: options.quick,
    },
    figures,
  );
  console.log(`\nWritten to ${options.json}.`);
  const missed = figures.filter((figure) => !meets(figure));
  if (missed.length > 0) console.log(`Below target: ${missed.map(({ id }) => id).join(', ')}.`);
  if (options.check && missed.length > 0) process.exitCode = 1;
}
