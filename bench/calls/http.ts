/** Allocate over HTTP against an empty handler of the same server: what the store costs on top of the server. */
import { fork } from 'node:child_process';
import { AppError } from '../../src/errors.js';
import { httpLoad } from '../support/http-load.js';
import { compare, forEach } from '../support/measure.js';
import { type Figure, number } from '../support/report.js';
import type { Bench } from '../support/run.js';
import { BenchStore, gold } from '../support/store.js';

const connections = 64;
/** More than one round allocates: every request takes a pod of its own. */
const pods = 60_000;

export async function http({ engine, admin, quick }: Bench): Promise<Figure[]> {
  await admin.flushall();
  const server = await startServer(engine.url);
  const store = new BenchStore(engine.url, { prefix: 'voice:' });
  const load = httpLoad();
  try {
    await untilRegistered(store);
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
    server.stop();
  }
}

async function startServer(redisUrl: string): Promise<{ url: string; stop(): void }> {
  // The log goes where a container's would: it is written, and nobody here reads it.
  const child = fork(new URL('../support/http-server.js', import.meta.url), [redisUrl, String(pods)], {
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
  });
  const url = await new Promise<string>((resolve, reject) => {
    child.once('message', (message: { url: string }) => resolve(message.url));
    child.once('error', reject);
    child.once('exit', (code) => reject(new Error(`the server ended with ${code} before it listened`)));
  });
  return { url, stop: () => child.disconnect() };
}

/** The server's leader registers its pods after it has begun to listen. */
async function untilRegistered(store: BenchStore): Promise<void> {
  const deadline = performance.now() + 120_000;
  for (;;) {
    const { pools } = await store.calls.snapshot();
    if (pools.some(({ pool, available }) => pool === gold && available === pods)) return;
    if (performance.now() > deadline)
      throw new Error(`the server did not register its ${pods} pods in 120 s`);
    await new Promise((resolve) => setTimeout(resolve, 100));
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
  // wrk leaves in the middle of its last requests; the router gives those pods back by itself.
  await forEach(sids, 64, (sid) =>
    store.calls.release(sid).catch((error: unknown) => {
      if (!(error instanceof AppError) || error.code !== 'call_not_found') throw error;
    }),
  );
}
