/**
 * A program of a team, as a process of its own: one loop and one recovery over `pages`. Told by its first argument,
 * as JSON: { url, deadAfter, heartbeat, batchSize, usesTx, hangs, diesAt, maxResets, spoolFolder }. Runs from dist,
 * as programs do.
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
  async process(record, ctx) {
    n += 1;
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
