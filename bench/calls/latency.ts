/** Latency of one allocate, alone and with others. */
import { percentile, throughput } from '../support/measure.js';
import type { Figure } from '../support/report.js';
import type { Bench } from '../support/run.js';
import { BenchStore, nextSid, podNames } from '../support/store.js';

export async function latency({ engine, admin, quick }: Bench): Promise<Figure[]> {
  await admin.flushall();
  const store = new BenchStore(engine.url, { prefix: 'voice:' });
  await store.prepare(podNames(1000));
  const figures: Figure[] = [];
  for (const callers of [1, 64]) {
    await throughput(callers, 300, () => store.pair(nextSid()));
    const times: number[] = [];
    await throughput(callers, quick ? 1000 : 3000, async () => {
      const sid = nextSid();
      const start = performance.now();
      await store.allocate(sid);
      times.push(performance.now() - start);
      await store.calls.release(sid);
    });
    for (const percent of [50, 99]) {
      figures.push({
        id: `latency.${callers}.p${percent}`,
        label: `allocate, ${callers} at once, p${percent}`,
        value: percentile(times, percent),
        unit: 'ms',
        ...(percent === 50 ? { note: `${times.length.toLocaleString('en-US')} allocates` } : {}),
      });
    }
  }
  store.close();
  return figures;
}
