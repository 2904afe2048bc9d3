/** Memory of live calls in the store, and the rest after their end. */
import { forEach } from '../support/measure.js';
import { type Figure, number } from '../support/report.js';
import type { Bench } from '../support/run.js';
import { BenchStore, nextSid, podNames } from '../support/store.js';

const calls = 10_000;
const graceMs = 2000;

export async function memory({ engine, admin }: Bench): Promise<Figure[]> {
  await admin.flushall();
  const store = new BenchStore(engine.url, { prefix: 'voice:', reportGraceMs: graceMs });
  await store.prepare(podNames(calls));
  const sids = () => Array.from({ length: calls }, nextSid);
  const used = async () => Number(/used_memory:(\d+)/.exec(await admin.info('memory'))?.[1]);
  const tombstonesExpired = () => new Promise((resolve) => setTimeout(resolve, graceMs + 1500));

  // Warm-up: every pod has had a call, and the event stream has its final length.
  const first = sids();
  await forEach(first, 64, (sid) => store.allocate(sid));
  await forEach(first, 64, (sid) => store.calls.release(sid));
  await tombstonesExpired();

  const before = await used();
  const second = sids();
  await forEach(second, 64, (sid) => store.allocate(sid));
  const live = await used();
  await forEach(second, 64, (sid) => store.calls.release(sid));
  const released = await used();
  await tombstonesExpired();
  const after = await used();
  store.close();
  const megabytes = (bytes: number) => bytes / 1e6;
  return [
    {
      id: 'memory.live',
      label: 'memory of 10,000 live calls',
      value: megabytes(live - before),
      unit: 'MB',
      note: `${number((live - before) / calls)} bytes a call; 10,000 pods without calls: ${number(megabytes(before))} MB`,
    },
    {
      id: 'memory.released',
      label: 'rest after release (tombstones)',
      value: megabytes(released - before),
      unit: 'MB',
      note: `after the tombstones have expired: ${number(megabytes(after - before))} MB`,
    },
  ];
}
