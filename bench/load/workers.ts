/**
 * `serve --workers 2` against one worker, and against two routers with ports of their own, on the same machine. Two cores show
 * little against one worker: the load and Redis need them too. Against two routers they show what sharing the port costs.
 */
import { cpus } from 'node:os';
import { setTimeout as pause } from 'node:timers/promises';
import { start } from '../console/programs.js';
import { freePort } from '../support/engine.js';
import { groupCpuMs } from '../support/group-cpu.js';
import { httpLoad } from '../support/http-load.js';
import { compare } from '../support/measure.js';
import { type Figure, number } from '../support/report.js';
import type { Bench } from '../support/run.js';
import { BenchStore, podNames, untilAvailable } from '../support/store.js';

/** Of both halves of the load. */
const connections = 64;
/** More than are live at once: wrk releases a call 1,024 requests after its allocate. */
const pods = 5000;
const readyTimeoutMs = 60_000;

export async function workers({ engine, admin, quick }: Bench): Promise<Figure[]> {
  await admin.flushall();
  const load = httpLoad();
  const groups: Group[] = [];
  const open = async (prefix: string, workersOfEach: readonly number[]) => {
    const group = await startGroup(engine.url, prefix, workersOfEach);
    groups.push(group);
    await untilAvailable(group.store, pods);
    await Promise.all(group.urls.map(untilReady));
    return new Side(group, load);
  };
  try {
    const one = await open('one:', [1]);
    const two = await open('two:', [2]);
    const routers = await open('routers:', [1, 1]);
    const rounds = { rounds: quick ? 4 : 8, roundMs: quick ? 2000 : 3000 };
    const alone = await compare(two.run, one.run, rounds);
    const aloneCpu = `${two.takeCpu()} us against ${one.takeCpu()}`;
    const apart = await compare(two.run, routers.run, rounds);
    const apartCpu = `${two.takeCpu()} us against ${routers.takeCpu()}`;
    const note = ({ first, second, spread }: typeof alone, cpu: string) =>
      `${number(first)}/s against ${number(second)}/s by ${load.name}, rounds ${spread.map(number).join('..')}; router CPU ${cpu} us per request`;
    return [
      {
        id: 'load.workers',
        label: `allocate and release over HTTP by two workers, against one worker, on ${cpus().length} cores`,
        value: alone.ratio,
        unit: 'x',
        note: `${note(alone, aloneCpu)}; the load and Redis share the cores`,
      },
      {
        id: 'load.workers.apart',
        label: '  the same against two routers with ports of their own',
        value: apart.ratio,
        unit: 'x',
        target: { atLeast: 0.9 },
        note: note(apart, apartCpu),
      },
    ];
  } finally {
    for (const { store } of groups) store.close();
    await Promise.allSettled(groups.flatMap(({ programs }) => programs.map((program) => program.stop())));
  }
}

async function untilReady(url: string): Promise<void> {
  const isReady = () =>
    fetch(`${url}/ready`).then(
      ({ ok }) => ok,
      () => false,
    );
  for (const deadline = performance.now() + readyTimeoutMs; !(await isReady()); await pause(50))
    if (performance.now() > deadline) throw new Error(`${url} is not ready`);
}

class Side {
  #cpuMs = 0;
  #requests = 0;

  constructor(
    private readonly group: Group,
    private readonly load: ReturnType<typeof httpLoad>,
  ) {}

  /** Both halves of the load go to the only port, or each to its own. */
  readonly run = async (ms: number): Promise<number> => {
    const { urls, programs, store } = this.group;
    const cpuMs = () => programs.reduce((sum, { pid }) => sum + groupCpuMs(pid), 0);
    const before = cpuMs();
    const halves = [urls[0] ?? '', urls.at(-1) ?? ''];
    const results = await Promise.all(halves.map((url) => this.load.run(url, connections / 2, ms)));
    this.#cpuMs += cpuMs() - before;
    this.#requests += results.reduce((sum, { requests }) => sum + requests, 0);
    await store.releaseAll();
    return results.reduce((sum, { perSecond }) => sum + perSecond, 0);
  };

  /** Microseconds per request since the last call, with the rounds that warm up. */
  takeCpu(): string {
    const us = (1000 * this.#cpuMs) / this.#requests;
    [this.#cpuMs, this.#requests] = [0, 0];
    return number(us);
  }
}

type Group = Awaited<ReturnType<typeof startGroup>>;

async function startGroup(redisUrl: string, prefix: string, workersOfEach: readonly number[]) {
  const ports = await Promise.all(workersOfEach.map(() => freePort()));
  const programs = workersOfEach.map((count, i) =>
    start(['serve', '--workers', String(count)], {
      REDIS_URL: redisUrl,
      REDIS_KEY_PREFIX: prefix,
      POD_NAME: `router-${i}`,
      HTTP_PORT: String(ports[i]),
      METRICS_PORT: 'off',
      POD_SOURCE: 'static',
      STATIC_PODS: podNames(pods).join(','),
      TIER_CONFIG: JSON.stringify({ tiers: { gold: { target: pods } } }),
      // The benchmark's process would have to read a line per request.
      LOG_LEVEL: 'warn',
    }),
  );
  const urls = ports.map((port) => `http://127.0.0.1:${port}`);
  return { urls, programs, store: new BenchStore(redisUrl, { prefix }) };
}
