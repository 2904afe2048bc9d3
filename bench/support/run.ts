/** Runs the parts of an area and writes their figures: a table for people, a JSON file for programs. */
import { cpus, loadavg, release, totalmem, type } from 'node:os';
import { parseArgs } from 'node:util';
import type { Redis } from 'ioredis';
import { type BenchEngine, startEngine } from './engine.js';
import { type Figure, meets, table, writeResults } from './report.js';
import { adminClient } from './store.js';

/** The argument of a part of a benchmark, which returns figures. */
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

/** Describes the machine in the results. */
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

  // Runs the exit handlers, which stop the store and delete its folder.
  process.once('SIGTERM', () => process.exit(143));
  const load = loadavg()[0] ?? 0;
  const engine = await startEngine();
  const bench: Bench = { engine, admin: adminClient(engine.url), quick: options.quick };
  console.log(
    `Store: ${engine.name}. Node ${process.version}, ${cpus().length} cores, load average ${load.toFixed(1)}.`,
  );
  const figures: Figure[] = [];
  const failed: string[] = [];
  try {
    for (const name of chosen) {
      process.stderr.write(`${name} ...\n`);
      try {
        figures.push(...((await parts[name]?.(bench)) ?? []));
      } catch (error) {
        // A failed part does not discard the figures of the others.
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
  if (missed.length > 0) console.log(`Missed targets: ${missed.map(({ id }) => id).join(', ')}.`);
  if (failed.length > 0) console.log(`Failed: ${failed.join(', ')}.`);
  if (failed.length > 0 || (options.check && missed.length > 0)) process.exitCode = 1;
}
