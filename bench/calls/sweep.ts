/**
 * The leader's sweep over 100,000 pods: its total time, and how long one script blocks the other commands.
 *
 * The time of a script comes from the server's slow log (everything over 0.1 ms; with 0 the log would also have every
 * command inside the scripts). It is wall-clock time, so on a busy machine it includes time in which the server did not
 * run. So the sweep is repeated, and the figure is the median of the longest scripts; the note has the worst.
 */
import type { Redis } from 'ioredis';
import { sweepBatchSize } from '../../src/pool/sweeper.js';
import { forEach, median } from '../support/measure.js';
import { type Figure, number } from '../support/report.js';
import type { Bench } from '../support/run.js';
import { BenchStore, nextSid, podNames } from '../support/store.js';

const pods = 100_000;
const expiredCalls = 10_000;

export async function sweep({ engine, admin, quick }: Bench): Promise<Figure[]> {
  await admin.flushall();
  let offsetMs = 0;
  const store = new BenchStore(engine.url, { prefix: 'voice:', offsetMs: () => offsetMs });
  await store.prepare(podNames(pods));
  const repeats = quick ? 2 : 7;

  const idle: Timed[] = [];
  const busy: Timed[] = [];
  for (let i = 0; i < repeats; i++) {
    idle.push(await timed(admin, store));
    await forEach(Array.from({ length: expiredCalls }, nextSid), 64, (sid) => store.allocate(sid));
    offsetMs += 901_000;
    const result = await timed(admin, store);
    if (result.callsEnded !== expiredCalls) throw new Error(`the sweep ended ${result.callsEnded} calls`);
    busy.push(result);
  }
  store.close();
  return [...figures('idle', 'nothing to do', idle), ...figures('expired', '10,000 calls expired', busy)];
}

interface Timed {
  seconds: number;
  longestMs: number;
  batches: number;
  callsEnded: number;
}

async function timed(admin: Redis, store: BenchStore): Promise<Timed> {
  await admin.config('SET', 'slowlog-max-len', '100000');
  await admin.config('SET', 'slowlog-log-slower-than', '100');
  await admin.slowlog('RESET');
  const start = performance.now();
  const { batches, callsEnded, lookedAt } = await store.sweep((phase) => sweepBatchSize(phase, 1));
  const seconds = (performance.now() - start) / 1000;
  const entries = (await admin.slowlog('GET', '100000')) as [number, number, number, string[]][];
  await admin.config('SET', 'slowlog-log-slower-than', '-1');
  if (lookedAt < pods) throw new Error(`the sweep looked at ${lookedAt} of ${pods} pods`);
  const scripts = entries.filter(([, , , args]) => /^eval/i.test(args[0] ?? ''));
  return { seconds, longestMs: Math.max(0.1, ...scripts.map(([, , us]) => us / 1000)), batches, callsEnded };
}

function figures(id: string, what: string, runs: readonly Timed[]): Figure[] {
  const longest = runs.map(({ longestMs }) => longestMs);
  const seconds = runs.map((run) => run.seconds);
  return [
    {
      id: `sweep.${id}.seconds`,
      label: `sweep of 100,000 pods, ${what}: whole`,
      value: median(seconds),
      unit: 's',
      target: { below: 3 },
      note: `${runs[0]?.batches} scripts; ${runs.length} sweeps, slowest ${number(Math.max(...seconds))} s`,
    },
    {
      id: `sweep.${id}.script`,
      label: `sweep of 100,000 pods, ${what}: longest script`,
      value: median(longest),
      unit: 'ms',
      target: { below: 5 },
      note: `worst of all sweeps ${number(Math.max(...longest))} ms`,
    },
  ];
}
