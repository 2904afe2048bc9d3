/**
 * Allocate, release and sweep: against the seeds' flow, over HTTP, in large pools; time and memory
 */
import { cpus, loadavg } from 'node:os';
import { parseArgs } from 'node:util';
import { http } from './calls/http.js';
import { latency } from './calls/latency.js';
import { memory } from './calls/memory.js';
import { pairs } from './calls/pairs.js';
import type { Bench, Part } from './calls/part.js';
import { draining, poolSize } from './calls/pool.js';
import { sweep } from './calls/sweep.js';
import { startEngine } from './support/engine.js';
import { type Figure, meets, table, writeResults } from './support/report.js';
import { adminClient } from './support/store.js';

const parts: Record<string, Part> = { pairs, http, poolSize, draining, sweep, memory, latency };

const { values: options } = parseArgs({
  options: {
    quick: { type: 'boolean', default: false },
    check: { type: 'boolean', default: false },
    only: { type: 'string' },
    json: { type: 'string', default: 'bench/results/calls.json' },
  },
});
const chosen = options.only?.split(',') ?? Object.keys(parts);
const unknown = chosen.filter((name) => !(name in parts));
if (unknown.length > 0) {
  console.error(`bench: calls has no part ${unknown.join(', ')}; it has ${Object.keys(parts).join(', ')}.`);
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
    area: 'calls',
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
