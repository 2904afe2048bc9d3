/** From the insert of one record to the start of its handler, on an idle system: by notification, not by polling. */
import { Pool } from 'pg';
import { pino } from 'pino';
import { createRecordLoop, defineWorkflow, migrate, notify } from '../../src/records/index.js';
import { median, percentile } from '../support/measure.js';
import { type Figure, number } from '../support/report.js';
import type { RecordsBench } from './bench.js';
import { pause } from './throughput.js';

export async function latency({ pool, databaseUrl, quick }: RecordsBench): Promise<Figure[]> {
  await migrate(pool);
  await pool.query(`CREATE TABLE lone (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    status text NOT NULL DEFAULT 'Queued', error text, updated_at timestamptz NOT NULL DEFAULT now())`);
  await pool.query('CREATE INDEX ON lone (status, updated_at)');
  const samples = quick ? 100 : 500;
  let begun: () => void = () => {};
  const workflow = defineWorkflow({
    name: 'lone',
    table: 'lone',
    status: {
      column: 'status',
      queued: 'Queued',
      processing: 'Processing',
      completed: 'Completed',
      failed: 'Failed',
    },
    error: 'error',
    touchedAt: 'updated_at',
    process: () => begun(),
  });
  const own = new Pool({ connectionString: databaseUrl, max: 10 });
  own.on('error', () => {});
  const loop = createRecordLoop({
    pool: own,
    workflows: [workflow],
    poll: '1h',
    log: pino({ level: 'silent' }),
  });
  await loop.start();
  await pause(500);
  const [ours, graphile] = [
    await measure(samples, async (started) => {
      begun = started;
      await pool.query('INSERT INTO lone DEFAULT VALUES');
      await notify(pool, 'lone');
    }),
    await ofGraphile(pool, databaseUrl, samples),
  ];
  await loop.stop();
  await own.end();
  return [
    {
      id: 'latency.p50',
      label: 'insert to start, p50: ours against graphile-worker',
      value: median(ours) / median(graphile),
      unit: 'times',
      note: `ours p50 ${number(median(ours))} ms, p99 ${number(percentile(ours, 99))} ms; graphile-worker p50 ${number(median(graphile))} ms, p99 ${number(percentile(graphile, 99))} ms`,
    },
  ];
}

async function measure(samples: number, insert: (started: () => void) => Promise<void>): Promise<number[]> {
  const times: number[] = [];
  for (let i = 0; i < samples; i++) {
    const startMs = performance.now();
    await new Promise<void>((resolve, reject) => {
      const lost = setTimeout(() => reject(new Error('a record was not begun within 30 s')), 30_000);
      insert(() => {
        times.push(performance.now() - startMs);
        clearTimeout(lost);
        resolve();
      }).catch(reject);
    });
    await pause(5);
  }
  return times;
}

async function ofGraphile(pool: Pool, databaseUrl: string, samples: number): Promise<number[]> {
  const { run, Logger, quickAddJob } = await import('graphile-worker');
  let begun: () => void = () => {};
  const own = new Pool({ connectionString: databaseUrl, max: 10 });
  own.on('error', () => {});
  const logger = new Logger(() => () => {});
  const runner = await run({
    pgPool: own,
    noHandleSignals: true,
    logger,
    taskList: { lone: () => begun() },
    concurrency: 10,
  });
  await quickAddJob({ pgPool: pool, logger }, 'lone', {});
  await pause(500);
  const times = await measure(samples, async (started) => {
    begun = started;
    await pool.query("SELECT graphile_worker.add_job('lone')");
  });
  await runner.stop();
  await own.end().catch(() => {});
  return times;
}
