/** Runs the parts of an area and tells what they found: a table for people, a JSON file for machines. */
import { cpus, loadavg, release, totalmem, type } from 'node:os';
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

function optionsOf(area: string) {
  try {
    return parseArgs({
      options: {
        quick: { type: 'boolean', default: false },
        check: { type: 'boolean', default: false },
        only: { type: 'string' },
        json: { type: 'string', default: `bench/results/${area}.json` },
      },
    }).values;
  } catch (error) {
    console.error(`bench: ${(error as Error).message.split('\n')[0]} (npm run bench -- --help)`);
    return undefined;
  }
}

/** For who reads the figures elsewhere. */
function machine(): string {
  const model = cpus()[0]?.model.trim() ?? 'unknown processor';
  return `${model}, ${Math.round(totalmem() / 2 ** 30)} GiB, ${type()} ${release().split('-')[0]}`;
}

export async function runArea(area: string, parts: Readonly<Record<string, Part>>): Promise<void> {
  const options = optionsOf(area);
  if (!options) {
    process.exitCode = 2;
    return;
  }
  const chosen = options.only?.split(',') ?? Object.keys(parts);
  const unknown = chosen.filter((name) => !(name in parts));
  if (unknown.length > 0) {
    console.error(
      `bench: ${area} has no part ${unknown.join(', ')}; it has ${Object.keys(parts).join(', ')}.`,
    );
    process.exit(2);
  }

  // So that what ends with this process (the store, its folder) ends with it then, too.
  process.once('SIGTERM', () => process.exit(143));
  const load = loadavg()[0] ?? 0;
  const engine = await startEngine();
  const bench: Bench = { engine, admin: adminClient(engine.url), quick: options.quick };
  console.log(
    `Store: ${engine.name}. Node ${process.version}, ${cpus().length} cores, load ${load.toFixed(1)} before the start.`,
  );
  const figures: Figure[] = [];
  const failed: string[] = [];
  try {
    for (const name of chosen) {
      process.stderr.write(`${name} ...\n`);
      try {
        figures.push(...((await parts[name]?.(bench)) ?? []));
      } catch (error) {
        // An hour of measuring is not lost because its last part failed.
        failed.push(name);
        console.error(`${name} failed:`, error);
      }
    }
  } finally {
    bench.admin.disconnect();
    await engine.stop();
  }

  console.log(`\n${table(figures)}`);
  writeResults(
    options.json,
    {
      area,
      store: engine.name,
      node: process.version,
      cores: cpus().length,
      machine: machine(),
      load,
      quick: options.quick,
      failed,
    },
    figures,
  );
  console.log(`\nWritten to ${options.json}.`);
  const missed = figures.filter((figure) => !meets(figure));
  if (missed.length > 0) console.log(`Below target: ${missed.map(({ id }) => id).join(', ')}.`);
  if (failed.length > 0) console.log(`Failed: ${failed.join(', ')}.`);
  if (failed.length > 0 || (options.check && missed.length > 0)) process.exitCode = 1;
}
