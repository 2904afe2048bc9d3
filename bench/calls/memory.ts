/** What live calls cost the store, and what is left when they have ended. */
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
  const gone = () => new Promise((resolve) => setTimeout(resolve, graceMs + 1500));

  // Once through: every pod has had a call, the event stream is as long as it gets.
  const first = sids();
  await forEach(first, 64, (sid) => store.allocate(sid));
  await forEach(first, 64, (sid) => store.calls.release(sid));
  await gone();

  const before = await used();
  const second = sids();
  await forEach(second, 64, (sid) => store.allocate(sid));
  const live = await used();
  await forEach(second, 64, (sid) => store.calls.release(sid));
  const released = await used();
  await gone();
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
      label: 'of it left after release (tombstones)',
      value: megabytes(released - before),
      unit: 'MB',
      note: `after the tombstones' time: ${number(megabytes(after - before))} MB`,
    },
  ];
}
