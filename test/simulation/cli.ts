/** `npm run simulate`: many seeds, or one again. */
import { availableParallelism } from 'node:os';
import { parseArgs } from 'node:util';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';
import { type Fault, kinds } from './faults.js';
import { shrink } from './shrink.js';
import { type Outcome, simulate } from './simulate.js';

/** Each seed has its own Valkey, whose memory is freed late: ten thousand in one thread would fill the machine. */
const seedsPerWorker = 500;

const usage = `Usage: npm run simulate -- [options]

  --seeds N      how many seeds (default 500)
  --from N       the first of them (default 1)
  --seed N       this one alone, with its history
  --faults JSON  with --seed: these faults instead of its own
  --shrink       with --seed: leaves out faults as long as it still fails
  --jobs N       how many at a time (default: one per core)
  --json         one line of JSON at the end
`;

function wrong(text: string): never {
  process.stderr.write(`simulate: ${text}\n\n${usage}`);
  process.exit(2);
}

function numberOf(name: string, text: string | undefined, fallback: number): number {
  if (text === undefined) return fallback;
  const least = name === 'seed' || name === 'from' ? 0 : 1;
  if (!/^\d{1,9}$/.test(text) || Number(text) < least)
    wrong(`--${name} must be a whole number from ${least} to 999999999, not ${JSON.stringify(text)}`);
  return Number(text);
}

function faultsIn(text: string | undefined): Fault[] | undefined {
  if (text === undefined) return undefined;
  try {
    const faults = JSON.parse(text) as Fault[];
    for (const { kind, place, atMs, forMs } of faults)
      if (!kinds[kind] || ![place, atMs, forMs].every(Number.isSafeInteger)) throw new Error(kind);
    return faults;
  } catch {
    return wrong('--faults must be a list as --shrink prints it: [{"kind", "place", "atMs", "forMs"}...]');
  }
}

async function one(seed: number, faults: Fault[] | undefined, json: boolean): Promise<number> {
  const outcome = await simulate(seed, faults ? { faults } : {});
  const { trace, ...rest } = outcome;
  if (json) process.stdout.write(`${JSON.stringify(rest)}\n`);
  else process.stdout.write(`${trace.join('\n')}\n\n${verdict(outcome)}\n`);
  return outcome.violations.length > 0 ? 1 : 0;
}

function verdict({ seed, violations, faults, calls, virtualMs, digest }: Outcome): string {
  const what = `seed ${seed}: ${calls} calls, ${faults} faults, ${Math.round(virtualMs / 1000)} s, history ${digest.slice(0, 12)}`;
  return violations.length === 0
    ? `${what}: nothing broken`
    : [`${what}: BROKEN`, ...violations].join('\n  ');
}

async function many(from: number, count: number, jobs: number, json: boolean): Promise<number> {
  const startMs = performance.now();
  const totals = { seeds: 0, failed: 0, calls: 0, faults: 0, commands: 0, virtualSeconds: 0 };
  const failed: number[] = [];
  let next = from;
  await Promise.all(
    Array.from({ length: Math.min(jobs, count) }, () => {
      let worker: Worker;
      let seedsLeft = 0;
      return new Promise<void>((resolve, reject) => {
        const give = () => {
          if (next >= from + count) return void worker.terminate().then(() => resolve());
          if (seedsLeft === 0) {
            void worker?.terminate();
            worker = new Worker(new URL(import.meta.url), { workerData: 'seeds' });
            worker.on('error', reject);
            worker.on('message', take);
            seedsLeft = seedsPerWorker;
          }
          seedsLeft -= 1;
          worker.postMessage(next++);
        };
        const take = (outcome: Omit<Outcome, 'trace'>) => {
          totals.seeds += 1;
          totals.calls += outcome.calls;
          totals.faults += outcome.faults;
          totals.commands += outcome.commands;
          totals.virtualSeconds += outcome.virtualMs / 1000;
          if (outcome.violations.length > 0) {
            failed.push(outcome.seed);
            totals.failed += 1;
            report(outcome);
          }
          progress(totals.seeds, count, totals.failed);
          give();
        };
        give();
      });
    }),
  );
  const seconds = (performance.now() - startMs) / 1000;
  const factor = Math.round(totals.virtualSeconds / seconds);
  if (json) process.stdout.write(`${JSON.stringify({ ...totals, seconds, factor, failed_seeds: failed })}\n`);
  else
    process.stdout.write(
      `${totals.seeds} seeds, ${totals.failed} failed; ${totals.calls} calls, ${totals.faults} faults, ${totals.commands} commands; ${Math.round(totals.virtualSeconds)} s of theirs in ${seconds.toFixed(1)} s, ${factor} times real time\n`,
    );
  return totals.failed > 0 ? 1 : 0;
}

function report({ seed, violations }: Omit<Outcome, 'trace'>): void {
  if (process.stderr.isTTY) process.stderr.write('\r\x1b[K');
  process.stderr.write(
    `seed ${seed} FAILED: ${violations[0]}\n  npm run simulate -- --seed ${seed}            its history\n  npm run simulate -- --seed ${seed} --shrink   what it takes\n`,
  );
}

function progress(done: number, all: number, failed: number): void {
  if (!process.stderr.isTTY) {
    // In a log: twenty lines for any number of seeds.
    if (Math.floor((done / all) * 20) > Math.floor(((done - 1) / all) * 20))
      process.stderr.write(`${done}/${all}${failed > 0 ? `, ${failed} failed` : ''}\n`);
    return;
  }
  const width = 30;
  const full = Math.round((done / all) * width);
  process.stderr.write(
    `\r\x1b[K[${'='.repeat(full)}${' '.repeat(width - full)}] ${done}/${all}${failed > 0 ? `, ${failed} failed` : ''}`,
  );
  if (done === all) process.stderr.write('\r\x1b[K');
}

async function main(): Promise<number> {
  let values: Record<string, string | boolean | undefined>;
  try {
    ({ values } = parseArgs({
      options: {
        seeds: { type: 'string' },
        from: { type: 'string' },
        seed: { type: 'string' },
        faults: { type: 'string' },
        jobs: { type: 'string' },
        shrink: { type: 'boolean' },
        json: { type: 'boolean' },
        help: { type: 'boolean', short: 'h' },
      },
    }));
  } catch (error) {
    wrong((error as Error).message);
  }
  const text = (name: string) => values[name] as string | undefined;
  if (values.help) {
    process.stdout.write(usage);
    return 0;
  }
  const json = values.json === true;
  if (text('seed') !== undefined) {
    const seed = numberOf('seed', text('seed'), 1);
    if (values.seeds !== undefined) wrong('--seed is one seed, --seeds many: not both');
    if (values.shrink) {
      if ((await simulate(seed)).violations.length === 0) {
        process.stdout.write(`seed ${seed} does not fail: there is nothing to leave out\n`);
        return 0;
      }
      const left = await shrink(seed, {}, (count) => progress(25 - count, 25, 0));
      process.stdout.write(
        `${left.map((fault) => JSON.stringify(fault)).join('\n')}\nnpm run simulate -- --seed ${seed} --faults '${JSON.stringify(left)}'\n`,
      );
      return 1;
    }
    return one(seed, faultsIn(text('faults')), json);
  }
  if (values.shrink || values.faults !== undefined) wrong('--shrink and --faults need --seed');
  return many(
    numberOf('from', text('from'), 1),
    numberOf('seeds', text('seeds'), 500),
    numberOf('jobs', text('jobs'), availableParallelism()),
    json,
  );
}

if (isMainThread) process.exitCode = await main();
else if (workerData === 'seeds')
  parentPort?.on('message', async (seed: number) => {
    const { trace: _, ...rest } = await simulate(seed);
    parentPort?.postMessage(rest);
  });
