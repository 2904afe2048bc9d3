/**
 * Waiting calls: the commands of allocate and release while no call waits; a release that hands its pod over against a
 * release followed by an allocate; the time until a caller on another replica has its pod.
 */
import type { Redis } from 'ioredis';
import { HttpConnection } from '../support/http-connection.js';
import { compare, median, percentile } from '../support/measure.js';
import { type Figure, number } from '../support/report.js';
import type { Bench } from '../support/run.js';
import { ServerProcess } from '../support/server-process.js';
import { BenchStore, nextSid, podNames, untilAvailable } from '../support/store.js';

/** Calls that end at once, one on each pod. */
const batch = 10;

interface Side {
  /** Ends every live call; each pod has another one then. */
  run(): Promise<void>;
  /** Outside the measured time. */
  prepare(): Promise<void>;
}

export async function handOver(bench: Bench): Promise<Figure[]> {
  const { engine, admin, quick } = bench;
  const figures = await commands(bench);
  for (const waiting of [10, 1000, 10_000]) {
    await admin.flushall();
    const stores = ['queue:', 'plain:'].map((prefix) => new BenchStore(engine.url, { prefix }));
    const [queue, plain] = stores as [BenchStore, BenchStore];
    for (const store of stores) await store.prepare(podNames(batch));
    const times: number[] = [];
    const handed = await releaseWithQueue(queue, waiting, times);
    const separate = await releaseThenAllocate(plain);
    const { first, second, ratio, spread } = await compare(rateOf(handed), rateOf(separate), {
      rounds: quick ? 3 : 9,
      roundMs: quick ? 100 : 300,
    });
    const storeTimes = [await storeMicros(admin, handed), await storeMicros(admin, separate)];
    figures.push(
      {
        id: `hand_over.${waiting}`,
        label: `release with hand-over, ${number(waiting)} waiting, against release and allocate`,
        value: ratio,
        unit: 'x',
        target: { atLeast: 0.7 },
        note: `${number(first)}/s against ${number(second)}/s, rounds ${spread.map(number).join('..')}; in the store ${storeTimes.map(number).join(' against ')} us`,
      },
      {
        id: `hand_over.${waiting}.p99`,
        label: `  from the release to the hand-over, ${batch} at once, p99`,
        value: percentile(times, 99),
        unit: 'ms',
        target: { below: 5 },
        note: `p50 ${number(percentile(times, 50))} ms, ${number(times.length)} hand-overs`,
      },
    );
    for (const store of stores) store.close();
  }
  return [...figures, await pollOnAnotherReplica(bench)];
}

/** Without the commands that call the script. */
async function commands({ engine, admin }: Bench): Promise<Figure[]> {
  await admin.flushall();
  const store = new BenchStore(engine.url, { prefix: 'voice:' });
  await store.prepare(podNames(10));
  await store.pair(nextSid());
  const sid = nextSid();
  const figures: Figure[] = [];
  for (const { name, added, step } of [
    { name: 'allocate', added: 'hget of the limits', step: () => store.allocate(sid) },
    { name: 'release', added: 'exists', step: () => store.calls.release(sid) },
  ]) {
    await admin.config('RESETSTAT');
    await step();
    const found = (await commandStats(admin)).filter(({ command }) => !/^(eval|config|info)/.test(command));
    const list = found.map(({ command, calls }) => (calls > 1 ? `${calls} ${command}` : command));
    figures.push({
      id: `commands.${name}`,
      label: `Redis commands of one ${name} of a merchant, no call waits`,
      value: found.reduce((sum, { calls }) => sum + calls, 0),
      unit: 'commands',
      note: `${list.join(', ')}; for waiting calls: ${added}`,
    });
  }
  store.close();
  return figures;
}

/** Keeps `waiting` calls in the queue. `times` gets the time of each release. */
async function releaseWithQueue(store: BenchStore, waiting: number, times: number[]): Promise<Side> {
  let live = await allocateAll(store);
  const queued: string[] = [];
  const side: Side = {
    async run() {
      const ending = live;
      live = queued.splice(0, batch);
      await Promise.all(
        ending.map(async (sid) => {
          const start = performance.now();
          await store.calls.release(sid);
          times.push(performance.now() - start);
        }),
      );
    },
    async prepare() {
      while (queued.length < waiting) {
        const sids = Array.from({ length: batch }, nextSid);
        // One after another: the order of arrival is known.
        for (const sid of sids) await store.enter(sid);
        queued.push(...sids);
      }
    },
  };
  await side.prepare();
  return side;
}

async function releaseThenAllocate(store: BenchStore): Promise<Side> {
  let live = await allocateAll(store);
  return {
    async run() {
      live = await Promise.all(
        live.map(async (sid) => {
          const next = nextSid();
          await store.calls.release(sid);
          await store.allocate(next);
          return next;
        }),
      );
    },
    async prepare() {},
  };
}

async function allocateAll(store: BenchStore): Promise<string[]> {
  const sids = Array.from({ length: batch }, nextSid);
  for (const sid of sids) await store.allocate(sid);
  return sids;
}

/** Calls a second, counting the time of `run` only. */
function rateOf(side: Side): (roundMs: number) => Promise<number> {
  return async (roundMs) => {
    let spentMs = 0;
    let done = 0;
    while (spentMs < roundMs) {
      const start = performance.now();
      await side.run();
      spentMs += performance.now() - start;
      done += batch;
      await side.prepare();
    }
    return done / (spentMs / 1000);
  };
}

/** The time that the store spends in scripts for one call: the median of batches, because other load stops the store. */
async function storeMicros(admin: Redis, side: Side): Promise<number> {
  const found: number[] = [];
  for (let round = 0; round < 50; round++) {
    await admin.config('RESETSTAT');
    await side.run();
    const scripts = (await commandStats(admin)).filter(({ command }) => command.startsWith('eval'));
    found.push(scripts.reduce((sum, { usec }) => sum + usec, 0) / batch);
    await side.prepare();
  }
  return median(found);
}

async function commandStats(admin: Redis): Promise<{ command: string; calls: number; usec: number }[]> {
  const lines = (await admin.info('commandstats')).matchAll(/^cmdstat_([^:]+):calls=(\d+),usec=(\d+)/gm);
  return [...lines].map(([, command = '', calls, usec]) => ({
    command,
    calls: Number(calls),
    usec: Number(usec),
  }));
}

/** From the release at one replica to the answer of a poll that waits at another. */
async function pollOnAnotherReplica({ engine, admin, quick }: Bench): Promise<Figure> {
  await admin.flushall();
  const file = new URL('../support/http-server.js', import.meta.url);
  const servers = [await ServerProcess.start(file, [engine.url, '1'])];
  servers.push(await ServerProcess.start(file, [engine.url, '1']));
  const store = new BenchStore(engine.url, { prefix: 'voice:' });
  const connections = servers.map(({ url }) => {
    const { hostname, port } = new URL(url);
    return new HttpConnection(hostname, Number(port));
  });
  const [releases, polls] = connections as [HttpConnection, HttpConnection];
  const send = async (connection: HttpConnection, path: string, body: object) => {
    const status = await connection.post(`/api/v1/${path}`, JSON.stringify(body));
    if (status !== '200') throw new Error(`${path} was answered ${status}`);
  };
  try {
    await untilAvailable(store, 1);
    let live = nextSid();
    await send(releases, 'allocate', { call_sid: live });
    const times: number[] = [];
    for (let round = 0; round < (quick ? 50 : 300); round++) {
      const next = nextSid();
      const answer = send(polls, 'allocate', { call_sid: next, wait: '30s' });
      while ((await store.calls.snapshot()).waitingCalls === 0) await Promise.race([pause(2), answer]);
      await pause(20 * Math.random());
      const start = performance.now();
      await send(releases, 'release', { call_sid: live });
      await answer;
      times.push(performance.now() - start);
      live = next;
    }
    return {
      id: 'hand_over.poll',
      label: 'from a release to the answer of a poll on another replica, p99',
      value: percentile(times, 99),
      unit: 'ms',
      target: { below: 100 },
      note: `p50 ${number(percentile(times, 50))} ms, worst ${number(Math.max(...times))} ms, ${number(times.length)} hand-overs`,
    };
  } finally {
    for (const connection of connections) connection.close();
    store.close();
    for (const server of servers) await server.stop();
  }
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
