/**
 * One router under calls at random times: its highest rate, the latency at parts of that rate, and its behaviour above
 * it. The limit in the same run is a plain server with one Redis command per request.
 */
import { compare } from '../support/measure.js';
import { type Figure, number } from '../support/report.js';
import type { Bench } from '../support/run.js';
import { ServerProcess, type Spent } from '../support/server-process.js';
import { BenchStore, untilAvailable } from '../support/store.js';
import { Generator } from './generator.js';
import { highestRate, missedOf, p99LimitMs, recoveryMs } from './highest-rate.js';
import type { PhaseResult } from './messages.js';

/** More than are live at three times the highest rate. */
const pods = 30_000;
/** How long the load is observed after it fell. */
const afterMs = 5000;

export async function openLoop({ engine, admin, quick }: Bench): Promise<Figure[]> {
  const generator = await Generator.start();
  const servers: ServerProcess[] = [];
  const start = async (file: string, ...args: string[]) => {
    const server = await ServerProcess.start(new URL(file, import.meta.url), [engine.url, ...args]);
    servers.push(server);
    return server;
  };
  try {
    const startRouter = async () => {
      // The pods of the router before would look available, and be registered again under load.
      await admin.flushall();
      const router = await start('../support/http-server.js', String(pods));
      const store = new BenchStore(engine.url, { prefix: 'voice:' });
      await untilAvailable(store, pods);
      store.close();
      return router;
    };
    const router = await startRouter();
    const plain = await start('../support/plain-server.js');
    const search =
      ({ url }: ServerProcess, what: string) =>
      (ms: number) =>
        highestRate(generator, url, what, {
          phase: { ms, warmUpMs: quick ? 500 : 1000 },
          precision: quick ? 1.2 : 1.08,
        });
    const {
      first: highest,
      second: limit,
      ratio,
      spread,
    } = await compare(
      search(router, 'router'),
      search(plain, 'plain server'),
      quick ? { rounds: 3, roundMs: 1500 } : { rounds: 3, roundMs: 5000 },
    );
    await plain.stop();
    const phaseMs = quick ? 3000 : 10_000;
    const figures: Figure[] = [
      {
        id: 'load.highest',
        label: `maximum calls a second with p99 of allocate under ${p99LimitMs} ms, against a plain server`,
        value: ratio,
        unit: 'x',
        target: { atLeast: 0.55 },
        note: `${number(highest)}/s against ${number(limit)}/s, rounds ${spread.map(number).join('..')}; a call is an allocate and a release`,
      },
    ];
    for (const percent of [25, 50, 75, 100]) {
      const [result, busy] = await measured(generator, router, (highest * percent) / 100, phaseMs);
      figures.push(...levelFigures(percent, result, busy));
    }
    await router.stop();
    for (const factor of [1.5, 3]) {
      // A new router each time, so that memory of the search or of the last factor does not hide the memory of this one.
      const fresh = await startRouter();
      await measured(generator, fresh, highest, phaseMs);
      const before = await fresh.spent();
      figures.push(...(await beyond(generator, fresh, { factor, highest, phaseMs, before })));
      await fresh.stop();
    }
    return figures;
  } finally {
    await generator.stop();
    await Promise.all(servers.map((server) => server.stop()));
  }
}

async function measured(
  generator: Generator,
  router: ServerProcess,
  ratePerSecond: number,
  ms: number,
): Promise<[PhaseResult, string]> {
  const startMs = performance.now();
  const start = await router.spent();
  let cpu = 0;
  const [result] = await generator.run(router.url, [{ ratePerSecond, ms, warmUpMs: 1000 }], async () => {
    cpu = cpuOf(start, await router.spent(), performance.now() - startMs);
  });
  if (result === undefined) throw new Error('the generator sent no result');
  return [result, busy(result, cpu)];
}

const cpuOf = (from: Spent, to: Spent, ms: number) => (to.cpuMs - from.cpuMs) / ms;

function busy({ generatorCpu, lateP99Ms }: PhaseResult, routerCpu: number): string {
  const percent = (share: number) => `${Math.round(100 * share)} %`;
  return `router ${percent(routerCpu)} of a core, generator ${percent(generatorCpu)} and itself ${number(lateP99Ms)} ms late (p99)`;
}

function levelFigures(percent: number, result: PhaseResult, busy: string): Figure[] {
  const { p50Ms, p99Ms, p999Ms, offered } = result;
  return [
    {
      id: `load.${percent}.p99`,
      label: `allocate at ${percent} % of that, p99`,
      value: p99Ms,
      unit: 'ms',
      // At 100 % it is at the limit by definition.
      ...(percent < 100 ? { target: { below: p99LimitMs } } : {}),
      note: `p50 ${number(p50Ms)} ms, p99.9 ${number(p999Ms)} ms; ${number(missedOf(result))} of ${number(offered)} calls without a pod; ${busy}`,
    },
  ];
}

interface Beyond {
  factor: number;
  highest: number;
  phaseMs: number;
  before: Spent;
}

async function beyond(
  generator: Generator,
  router: ServerProcess,
  { factor, highest, phaseMs, before }: Beyond,
): Promise<Figure[]> {
  const startMs = performance.now();
  const start = await router.spent();
  const ends: { spent: Spent; atMs: number }[] = [];
  const [over, after] = await generator.run(
    router.url,
    [
      { ratePerSecond: factor * highest, ms: phaseMs, warmUpMs: 1000 },
      { ratePerSecond: highest / 2, ms: afterMs, warmUpMs: 0 },
    ],
    async () => {
      ends.push({ spent: await router.spent(), atMs: performance.now() });
    },
  );
  const [end] = ends;
  if (over === undefined || after === undefined || end === undefined)
    throw new Error('the generator sent no result');
  const seconds = (phaseMs - 1000) / 1000;
  const share = (count: number) => `${((100 * count) / over.offered).toFixed(1)} %`;
  const { allocated, shed, failed, unanswered } = over;
  const label = `at ${factor} times the highest rate`;
  return [
    {
      id: `load.over.${factor}.answered`,
      label: `${label}: answered, with a pod or a rejection`,
      value: (allocated + shed) / over.offered,
      unit: '',
      target: { atLeast: 0.99 },
      note: `a pod ${share(allocated)}, rejected ${share(shed)}, other answers ${share(failed)}, none in 2 s ${share(unanswered)}`,
    },
    {
      id: `load.over.${factor}.given`,
      label: `${label}: pods allocated, against the highest rate`,
      value: allocated / seconds / highest,
      unit: 'x',
      target: { atLeast: 0.5 },
      note: busy(over, cpuOf(start, end.spent, end.atMs - startMs)),
    },
    {
      id: `load.over.${factor}.p99`,
      label: `${label}: p99 of those with a pod`,
      value: over.p99Ms,
      unit: 'ms',
      target: { below: 500 },
      note: `p50 ${number(over.p50Ms)} ms, p99.9 ${number(over.p999Ms)} ms`,
    },
    {
      id: `load.over.${factor}.memory`,
      label: `${label}: the router's peak memory against that at the highest rate`,
      value: end.spent.peakRssBytes / before.peakRssBytes,
      unit: 'x',
      target: { below: 1.5 },
      note: `${number(end.spent.peakRssBytes / 1e6)} MB against ${number(before.peakRssBytes / 1e6)} MB`,
    },
    {
      id: `load.over.${factor}.recovery`,
      label: `${label}: after it falls to half of the highest, until p99 is under ${p99LimitMs} ms and no call is rejected for a second`,
      value: (recoveryMs(after.windows) ?? afterMs) / 1000,
      unit: 's',
      target: { below: 2 },
      note: `p99 of the whole five seconds ${number(after.p99Ms)} ms, ${number(missedOf(after))} of ${number(after.offered)} calls without a pod`,
    },
  ];
}
