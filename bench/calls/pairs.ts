/**
 * Pairs of allocate and release a second: one script each against the limit of this design, two empty scripts; for
 * information, against the sixteen commands of the Go router.
 */
import type { Cluster, Redis } from 'ioredis';
import { GoRouter } from '../support/go-router.js';
import { compare, throughput } from '../support/measure.js';
import { type Figure, number } from '../support/report.js';
import type { Bench } from '../support/run.js';
import { BenchStore, nextSid, podNames } from '../support/store.js';

const targets = [
  { callers: 1, ratio: 0.65 },
  { callers: 16, ratio: 0.55 },
  { callers: 64, ratio: 0.55 },
  { callers: 256, ratio: 0.55 },
];

export async function pairs({ engine, admin, quick }: Bench): Promise<Figure[]> {
  const figures: Figure[] = [];
  for (const { callers, ratio } of targets) {
    await admin.flushall();
    const pods = podNames(1000);
    const ours = new BenchStore(engine.url, { prefix: 'voice:' });
    await ours.prepare(pods);
    const theirs = new BenchStore(engine.url, { prefix: 'go:' });
    const goRouter = new GoRouter(await clientOf(theirs), 'go:');
    await goRouter.prepare(pods);
    const result = await compare(
      (roundMs) => throughput(callers, roundMs, () => ours.pair(nextSid())),
      (roundMs) =>
        throughput(callers, roundMs, async () => {
          const sid = nextSid();
          await goRouter.allocate(sid);
          await goRouter.release(sid);
        }),
      { rounds: quick ? 3 : 9, roundMs: quick ? 200 : 400 },
    );
    const limit = await compare(
      (roundMs) => throughput(callers, roundMs, () => ours.pair(nextSid())),
      (roundMs) => throughput(callers, roundMs, () => ours.emptyPair(nextSid())),
      { rounds: quick ? 3 : 5, roundMs: quick ? 200 : 400 },
    );
    figures.push({
      id: `pairs.${callers}`,
      label: `allocate+release, ${callers} at once, against the Go router's commands`,
      value: result.ratio,
      unit: 'x',
      note: `${number(result.first)}/s against ${number(result.second)}/s, rounds ${result.spread.map(number).join('..')}`,
    });
    figures.push({
      id: `pairs.${callers}.limit`,
      label: `  the same against two empty scripts, so at most ${number(result.ratio / limit.ratio)} x`,
      value: limit.ratio,
      unit: 'x',
      target: { atLeast: ratio },
      note: `${number(limit.first)}/s against ${number(limit.second)}/s`,
    });
    ours.close();
    theirs.close();
  }
  return figures;
}

/** Returns the client of our store, with the same options, without our wrapper. */
async function clientOf(store: BenchStore): Promise<Redis | Cluster> {
  let found: Redis | Cluster | undefined;
  await store.connection.command('bench', async (client) => {
    found = client;
  });
  if (found === undefined) throw new Error('the store returned no client');
  return found;
}
