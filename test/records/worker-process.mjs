/**
 * A program of a team, as a process of its own: one loop and one recovery over `pages`. Told by its first argument,
 * as JSON: { url, deadAfter, heartbeat, batchSize, usesTx, hangs, diesAt, maxResets, spoolFolder, limit, retry }. Runs
 * from dist, as programs do.
 */
import pg from 'pg';
import { pino } from 'pino';
import { createRecordLoop, createRecovery, defineWorkflow } from '../../dist/records/index.js';

const told = JSON.parse(process.argv[2] ?? '{}');
const log = pino({ level: 'warn', base: { pid: process.pid } });
const pool = new pg.Pool({ connectionString: told.url, max: 6 });
let n = 0;
const workflow = defineWorkflow({
  name: 'pages',
  table: 'pages',
  status: {
    column: 'status',
    queued: 'Queued',
    processing: 'Processing',
    completed: 'Completed',
    failed: 'Failed',
  },
  error: 'error',
  touchedAt: 'updated_at',
  batchSize: told.batchSize,
  concurrency: 10,
  timeout: '30s',
  stuck: { maxResets: told.maxResets ?? 10 },
  limit: told.limit,
  retry: told.retry,
  async process(record, ctx) {
    n += 1;
    if (told.limit) return watched(record);
    if (told.hangs) {
      ctx.trace(`hangs at ${record.url}`);
      await new Promise(() => {});
    }
    if (told.diesAt !== undefined) {
      // Its neighbours are at work by then.
      await new Promise((resolve) => setTimeout(resolve, 20));
      if (record.url === told.diesAt) process.kill(process.pid, 'SIGKILL');
    }
    await new Promise((resolve) => setTimeout(resolve, n % 3));
    if (told.usesTx && n % 10 === 0)
      await ctx.tx((client) => client.query('INSERT INTO effects VALUES ($1, $2)', [record.id, process.pid]));
  },
});
/**
 * Holds a lock of its session while it runs, so that the database itself knows which handlers are alive: it ends with the
 * process. Notes each run with the number of handlers of its customer, and the first run of every third record fails.
 *
 * @param {Record<string, any>} record
 */
async function watched({ id, customer, url }) {
  const client = new pg.Client({ connectionString: told.url });
  await client.connect();
  try {
    await client.query('SELECT pg_advisory_lock_shared(77, $1)', [customer]);
    const { rows } = await client.query(
      `INSERT INTO runs (page, at_once) SELECT $1, count(*) FROM pg_locks
       WHERE locktype = 'advisory' AND classid = 77 AND objid = $2 AND granted
       RETURNING (SELECT count(*) FROM runs AS r WHERE r.page = $1)::int AS before`,
      [id, customer],
    );
    await new Promise((resolve) => setTimeout(resolve, 5));
    if (rows[0].before === 0 && Number(url.split('/').at(-1)) % 3 === 0)
      throw new Error('the first run fails');
  } finally {
    await client.end();
  }
}

const options = { pool, workflows: [workflow], log };
const loop = createRecordLoop({
  ...options,
  heartbeat: { every: told.heartbeat },
  poll: 200,
  sessionTimeout: 2000,
  spoolFolder: told.spoolFolder,
});
const recovery = createRecovery({ ...options, deadAfter: told.deadAfter, fastEvery: told.deadAfter / 4 });

for (;;) {
  try {
    await loop.start();
    await recovery.start();
    break;
  } catch (error) {
    log.warn({ err: error }, 'the database is not there yet');
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}
process.once('SIGTERM', async () => {
  await recovery.stop();
  await loop.stop();
  await pool.end();
});
console.log('ready to be stopped');
