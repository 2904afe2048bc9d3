/** Cost of a large pool and of draining pods for a call. */
import { compare, forEach, throughput } from '../support/measure.js';
import { type Figure, number } from '../support/report.js';
import type { Bench } from '../support/run.js';
import { BenchStore, nextSid, podNames } from '../support/store.js';

/** Fewer than the smallest pool, so that a pod is always free. */
const callers = 8;

async function against(
  { quick }: Bench,
  first: BenchStore,
  second: BenchStore,
  figure: Pick<Figure, 'id' | 'label' | 'target'>,
): Promise<Figure> {
  const result = await compare(
    (roundMs) => throughput(callers, roundMs, () => first.pair(nextSid())),
    (roundMs) => throughput(callers, roundMs, () => second.pair(nextSid())),
    { rounds: quick ? 5 : 15, roundMs: quick ? 150 : 300 },
  );
  return {
    ...figure,
    value: result.ratio,
    unit: 'x',
    note: `${number(result.first)}/s against ${number(result.second)}/s, rounds ${result.spread.map(number).join('..')}`,
  };
}

async function stores(
  { engine, admin }: Bench,
  firstPods: number,
  secondPods: number,
): Promise<[BenchStore, BenchStore]> {
  await admin.flushall();
  const first = new BenchStore(engine.url, { prefix: 'first:' });
  const second = new BenchStore(engine.url, { prefix: 'second:' });
  await first.prepare(podNames(firstPods));
  await second.prepare(podNames(secondPods));
  return [first, second];
}

export async function poolSize(bench: Bench): Promise<Figure[]> {
  const [large, small] = await stores(bench, 100_000, 10);
  const figure = await against(bench, large, small, {
    id: 'pool.size',
    label: '100,000 pods in the pool against 10',
    target: { atLeast: 0.8 },
  });
  large.close();
  small.close();
  return [figure];
}

export async function draining(bench: Bench): Promise<Figure[]> {
  const [half, none] = await stores(bench, 1000, 1000);
  await forEach(podNames(1000).slice(0, 500), 16, (pod) => half.calls.drain(pod));
  const figure = await against(bench, half, none, {
    id: 'pool.draining',
    label: 'half of 1,000 pods draining against none',
    target: { atLeast: 0.95 },
  });
  half.close();
  none.close();
  return [figure];
}
