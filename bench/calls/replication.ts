/** What REDIS_WAIT_REPLICAS costs: allocate and release with the wait for a replica against the same without it. */
import { StoreConnection } from '../../src/calls/store/connection.js';
import { Replication } from '../../src/calls/store/replication.js';
import { systemClock } from '../../src/clock.js';
import { startEngine } from '../support/engine.js';
import { compare, percentile, throughput } from '../support/measure.js';
import { type Figure, number } from '../support/report.js';
import type { Bench } from '../support/run.js';
import { BenchStore, nextSid, podNames } from '../support/store.js';

export async function replication({ engine, admin, quick }: Bench): Promise<Figure[]> {
  const { host, port } = admin.options;
  const replica = await startEngine(['--replicaof', String(host), String(port)]);
  await admin.flushall();
  const store = new BenchStore(engine.url, { prefix: 'voice:' });
  const own = new StoreConnection({
    ...{ url: engine.url, keyPrefix: 'voice:', commandTimeoutMs: 30_000, clock: systemClock },
  });
  const wait = new Replication({
    ...{ main: store.connection, own, replicas: 1, timeoutMs: 1000, clock: systemClock },
  });
  const figures: Figure[] = [];
  try {
    while (!/^slave0:.*state=online/m.test(await admin.info('replication')))
      await new Promise((resolve) => setTimeout(resolve, 50));
    await store.prepare(podNames(1000));
    const times: number[] = [];
    const confirmed = async (write: () => Promise<unknown>) => {
      const start = performance.now();
      const master = await wait.master();
      await write();
      if (!(await wait.confirm(master))) throw new Error('a write of the benchmark was not confirmed');
      times.push(performance.now() - start);
    };
    for (const callers of [1, 16, 64]) {
      times.length = 0;
      const { first, second, ratio, spread } = await compare(
        (roundMs) =>
          throughput(callers, roundMs, async () => {
            const sid = nextSid();
            await confirmed(() => store.allocate(sid));
            await confirmed(() => store.calls.release(sid));
          }),
        (roundMs) => throughput(callers, roundMs, () => store.pair(nextSid())),
        { rounds: quick ? 3 : 7, roundMs: quick ? 200 : 400 },
      );
      figures.push({
        id: `replication.${callers}`,
        label: `allocate+release that wait for a replica, ${callers} at once, against the same without`,
        value: ratio,
        unit: 'x',
        note: `${number(first)}/s against ${number(second)}/s, rounds ${spread.map(number).join('..')}; one request p50 ${number(percentile(times, 50))} ms, p99 ${number(percentile(times, 99))} ms`,
      });
    }
    return figures;
  } finally {
    wait.close();
    store.close();
    await replica.stop();
  }
}
