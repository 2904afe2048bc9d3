/** `serve --workers 2` against one worker on the same machine. Two cores show little: the load and Redis need them too. */
import { cpus } from 'node:os';
import { start } from '../console/programs.js';
import { freePort } from '../support/engine.js';
import { groupCpuMs } from '../support/group-cpu.js';
import { httpLoad } from '../support/http-load.js';
import { compare } from '../support/measure.js';
import { type Figure, number } from '../support/report.js';
import type { Bench } from '../support/run.js';
import { BenchStore, podNames, untilAvailable } from '../support/store.js';

const connections = 64;
/** More than are live at once: wrk releases a call 1,024 requests after its allocate. */
const pods = 5000;

export async function workers({ engine, admin, quick }: Bench): Promise<Figure[]> {
  await admin.flushall();
  const load = httpLoad();
  const groups = [1, 2].map((count) => startGroup(engine.url, count));
  try {
    const sides = await Promise.all(
      groups.map(async (group) => {
        const { url, program, store } = await group;
        await untilAvailable(store, pods);
        const spent = { cpuMs: 0, requests: 0 };
        const run = async (ms: number) => {
          const before = groupCpuMs(program.pid);
          const { requests, perSecond } = await load.run(url, connections, ms);
          spent.cpuMs += groupCpuMs(program.pid) - before;
          spent.requests += requests;
          await store.releaseAll();
          return perSecond;
        };
        return { run, cpu: () => number((1000 * spent.cpuMs) / spent.requests) };
      }),
    );
    const [one, two] = sides;
    if (one === undefined || two === undefined) throw new Error('a group did not start');
    const { first, second, ratio, spread } = await compare(two.run, one.run, {
      rounds: quick ? 4 : 8,
      roundMs: quick ? 2000 : 3000,
    });
    return [
      {
        id: 'load.workers',
        label: `allocate and release over HTTP by two workers, against one worker, on ${cpus().length} cores`,
        value: ratio,
        unit: 'x',
        note: `${number(first)}/s to ${number(second)}/s by ${load.name}, rounds ${spread.map(number).join('..')}; router CPU ${two.cpu()} us to ${one.cpu()} us per request; the load and Redis share the cores`,
      },
    ];
  } finally {
    for (const group of groups) {
      const { program, store } = await group;
      store.close();
      await program.stop();
    }
  }
}

async function startGroup(redisUrl: string, count: number) {
  const prefix = `workers-${count}:`;
  const port = await freePort();
  const program = start(['serve', '--workers', String(count)], {
    REDIS_URL: redisUrl,
    REDIS_KEY_PREFIX: prefix,
    HTTP_PORT: String(port),
    METRICS_PORT: 'off',
    POD_SOURCE: 'static',
    STATIC_PODS: podNames(pods).join(','),
    TIER_CONFIG: JSON.stringify({ tiers: { gold: { target: pods } } }),
    // The benchmark's process would have to read a line per request.
    LOG_LEVEL: 'warn',
  });
  return { url: `http://127.0.0.1:${port}`, program, store: new BenchStore(redisUrl, { prefix }) };
}
