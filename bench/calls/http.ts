/** Allocate over HTTP against an empty handler of the same server: the cost of the store on top of the server. */
import { AppError } from '../../src/errors.js';
import { httpLoad } from '../support/http-load.js';
import { compare, forEach } from '../support/measure.js';
import { type Figure, number } from '../support/report.js';
import type { Bench } from '../support/run.js';
import { ServerProcess } from '../support/server-process.js';
import { BenchStore, gold, untilAvailable } from '../support/store.js';

const connections = 64;
/** More than one round allocates: every request takes another pod. */
const pods = 60_000;

export async function http({ engine, admin, quick }: Bench): Promise<Figure[]> {
  await admin.flushall();
  const server = await ServerProcess.start(new URL('../support/http-server.js', import.meta.url), [
    engine.url,
    String(pods),
  ]);
  const store = new BenchStore(engine.url, { prefix: 'voice:' });
  const load = httpLoad();
  try {
    await untilAvailable(store, pods);
    const { first, second, ratio, spread } = await compare(
      async (ms) => {
        const rate = await load.run(server.url, '/api/v1/allocate', connections, ms);
        await releaseAll(store);
        return rate;
      },
      (ms) => load.run(server.url, '/bench/empty', connections, ms),
      { rounds: quick ? 3 : 7, roundMs: 1000 },
    );
    return [
      {
        id: 'http.allocate',
        label: `allocate over HTTP, ${connections} at once, against an empty handler`,
        value: ratio,
        unit: 'x',
        target: { atLeast: 0.65 },
        note: `${number(first)}/s to ${number(second)}/s by ${load.name}, rounds ${spread.map(number).join('..')}`,
      },
    ];
  } finally {
    store.close();
    await server.stop();
  }
}

async function releaseAll(store: BenchStore): Promise<void> {
  const sids = new Set<string>();
  let cursor: string | undefined = '0';
  while (cursor !== undefined) {
    const page = await store.calls.calls(gold, cursor, 1000);
    for (const { callSid } of page.items) sids.add(callSid);
    cursor = page.cursor;
  }
  // wrk disconnects during its last requests; the router releases those pods.
  await forEach(sids, 64, (sid) =>
    store.calls.release(sid).catch((error: unknown) => {
      if (!(error instanceof AppError) || error.code !== 'call_not_found') throw error;
    }),
  );
}
