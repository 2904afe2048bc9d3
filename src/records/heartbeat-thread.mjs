/**
 * Sends heartbeats from a thread with its own connection, so that a blocked event loop does not stop them. Plain
 * JavaScript: the thread starts from this file, without a build.
 *
 * Receives { config, worker, intervalMs } as workerData. Posts 'beat', 'lost' (the worker's row is deleted) or { error }:
 * one missed heartbeat loses nothing.
 */
import { parentPort, workerData } from 'node:worker_threads';
import pg from 'pg';

const { config, worker, intervalMs } = workerData;
/** For one heartbeat: at least 2 s, also with a short interval. */
const timeoutMs = Math.max(intervalMs, 2000);
/** @type {pg.Client | undefined} */
let client;

async function connect() {
  const fresh = new pg.Client({ ...config, connectionTimeoutMillis: timeoutMs, query_timeout: timeoutMs });
  fresh.on('error', () => {
    if (client === fresh) client = undefined;
  });
  await fresh.connect();
  client = fresh;
  return fresh;
}

async function beat() {
  try {
    const { rowCount } = await (client ?? (await connect())).query(
      'UPDATE smart_router.workers SET heartbeat_at = now() WHERE id = $1',
      [worker],
    );
    parentPort?.postMessage(rowCount === 1 ? 'beat' : 'lost');
  } catch (error) {
    const broken = client;
    client = undefined;
    void broken?.end().catch(() => {});
    parentPort?.postMessage({ error: error instanceof Error ? error.message : String(error) });
  }
}

let isBeating = false;
const timer = setInterval(async () => {
  if (isBeating) return;
  isBeating = true;
  await beat();
  isBeating = false;
}, intervalMs);

parentPort?.once('message', () => {
  clearInterval(timer);
  void (client?.end() ?? Promise.resolve()).finally(() => process.exit());
});
