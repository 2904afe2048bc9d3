/** Allocate and release over HTTP against a bare Fastify server: what one request costs, by rate and by CPU time. */
import { httpLoad } from '../support/http-load.js';
import { compare } from '../support/measure.js';
import { type Figure, number } from '../support/report.js';
import type { Bench } from '../support/run.js';
import { ServerProcess } from '../support/server-process.js';
import { BenchStore, untilAvailable } from '../support/store.js';

const connections = 64;
/** More than are live at once: wrk releases a call 1,024 requests after its allocate. */
const pods = 5000;

export async function http({ engine, admin, quick }: Bench): Promise<Figure[]> {
  await admin.flushall();
  const servers: ServerProcess[] = [];
  const start = async (file: string, ...args: string[]) => {
    const server = await ServerProcess.start(new URL(file, import.meta.url), args);
    servers.push(server);
    return server;
  };
  const store = new BenchStore(engine.url, { prefix: 'voice:' });
  const load = httpLoad();
  try {
    const router = await start('../support/http-server.js', engine.url, String(pods));
    const bare = await start('../support/plain-server.js');
    await untilAvailable(store, pods);
    const storeCpuMs = async () => cpuMsOf(await admin.info('cpu'));
    const spent = { router: [0, 0], store: [0, 0], bare: [0, 0] };
    const add = (whose: keyof typeof spent, ms: number, requests: number) => {
      spent[whose] = [(spent[whose][0] ?? 0) + ms, (spent[whose][1] ?? 0) + requests];
    };
    let rounds = 0;
    const { first, second, ratio, spread } = await compare(
      async (ms) => {
        const before = [(await router.spent()).cpuMs, await storeCpuMs()] as const;
        const { requests, perSecond } = await load.run(router.url, connections, ms);
        const after = [(await router.spent()).cpuMs, await storeCpuMs()] as const;
        // The first round of each is the warm-up.
        if (rounds++ > 0) {
          add('router', after[0] - before[0], requests);
          add('store', after[1] - before[1], requests);
        }
        await store.releaseAll();
        return perSecond;
      },
      async (ms) => {
        const before = (await bare.spent()).cpuMs;
        const { requests, perSecond } = await load.run(bare.url, connections, ms);
        if (rounds > 1) add('bare', (await bare.spent()).cpuMs - before, requests);
        return perSecond;
      },
      { rounds: quick ? 4 : 8, roundMs: quick ? 2000 : 3000 },
    );
    const us = ([ms = 0, requests = 0]: number[]) => (1000 * ms) / requests;
    const [routerUs, bareUs] = [us(spent.router), us(spent.bare)];
    return [
      {
        id: 'http.rate',
        label: `allocate and release over HTTP, ${connections} at once, against a bare Fastify server`,
        value: ratio,
        unit: 'x',
        target: { atLeast: 0.6 },
        note: `${number(first)}/s against ${number(second)}/s by ${load.name}, rounds ${spread.map(number).join('..')}`,
      },
      {
        id: 'http.cpu',
        label: `  CPU time of the router for such a request, against that server`,
        value: routerUs / bareUs,
        unit: 'times',
        // 75 us where the bare server takes 40 us.
        target: { below: 1.88 },
        note: `${number(routerUs)} us against ${number(bareUs)} us; Redis ${number(us(spent.store))} us`,
      },
    ];
  } finally {
    store.close();
    await Promise.all(servers.map((server) => server.stop()));
  }
}

/** Of Redis itself, without the processes that it starts. */
function cpuMsOf(info: string): number {
  const seconds = (name: string) => Number(new RegExp(`^${name}:([\\d.]+)`, 'm').exec(info)?.[1]);
  return 1000 * (seconds('used_cpu_user') + seconds('used_cpu_sys'));
}
