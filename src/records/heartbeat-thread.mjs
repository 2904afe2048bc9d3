/**
 * A thread of its own with a connection of its own: whatever keeps the program's event loop busy, its worker stays
 * alive in the eyes of the database. Plain JavaScript, because threads are started from the file as it is.
 *
 * Told: { config, worker, intervalMs }. Tells: 'beat', 'lost' (the database has no such worker: everybody thinks that
 * it is dead), or { error }. An error is only told: one missed heartbeat loses nothing.
 */
import { parentPort, workerData } from 'node:worker_threads';
import pg from 'pg';

const { config, worker, intervalMs } = workerData;
/** A heartbeat that gets no answer is given up before the next but one, yet never in haste. */
const patienceMs = Math.max(intervalMs, 2000);
/** @type {pg.Client | undefined} */
let client;

async function connect() {
  const fresh = new pg.Client({ ...config, connectionTimeoutMillis: patienceMs, query_timeout: patienceMs });
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
