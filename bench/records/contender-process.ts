/**
 * One worker process of one contender. Its arguments are the contender, the address and the number of records. It sends
 * a message when it has started, and its number of finished jobs. Each contender runs in its fastest documented configuration, with a pool of 25 where it has
 * one, and does nothing with its jobs.
 */
import { Pool } from 'pg';
import { pino } from 'pino';
import { createRecordLoop, defineWorkflow, type WorkflowDefinition } from '../../src/records/index.js';

const [contender = '', databaseUrl = '', redisUrl = ''] = process.argv.slice(2);
const pool = new Pool({ connectionString: databaseUrl, max: 25 });
pool.on('error', () => {});
let done = 0;
let startCpu = process.cpuUsage();
let stop: () => Promise<void> = async () => {};

async function ours(more: Partial<WorkflowDefinition> = {}): Promise<void> {
  const workflow = defineWorkflow({
    name: 'bench',
    table: 'bench_records',
    status: {
      column: 'status',
      queued: 'Queued',
      processing: 'Processing',
      completed: 'Completed',
      failed: 'Failed',
    },
    error: 'error',
    touchedAt: 'updated_at',
    ...more,
    batchSize: 500,
    concurrency: 24,
    process: () => {
      done += 1;
    },
  });
  const loop = createRecordLoop({
    pool,
    workflows: [workflow],
    log: pino({ level: 'warn' }, pino.destination(2)),
  });
  await loop.start();
  stop = () => loop.stop();
}

const starts: Record<string, () => Promise<void>> = {
  limited: () => ours({ limit: { key: 'customer_id', max: 2 } }),
  ours,
  default_fillfactor: ours,

  async graphile() {
    const { run, Logger } = await import('graphile-worker');
    const runner = await run({
      pgPool: pool,
      noHandleSignals: true,
      logger: new Logger(() => () => {}),
      taskList: {
        bench: () => {
          done += 1;
        },
      },
      preset: {
        worker: {
          concurrentJobs: 24,
          maxPoolSize: 25,
          localQueue: { size: 500, refetchDelay: { durationMs: 10 } },
          completeJobBatchDelay: 0,
          failJobBatchDelay: 0,
        },
      },
    });
    stop = () => runner.stop();
  },

  async pgboss() {
    const { default: PgBoss } = await import('pg-boss');
    const boss = new PgBoss({ connectionString: databaseUrl, max: 25, supervise: false, schedule: false });
    // Without a listener an error of its maintenance would end the process and the comparison.
    boss.on('error', (error) => console.error(`pg-boss: ${error.message}`));
    await boss.start();
    // Several workers with large batches: version 10 has no local concurrency of its own.
    for (let i = 0; i < 8; i++) {
      const worker = await boss.work(
        'bench',
        { batchSize: 500, pollingIntervalSeconds: 0.5 },
        async (jobs) => {
          done += jobs.length;
          // It fetches the next batch at once, without the rest of its interval.
          boss.notifyWorker(worker);
        },
      );
    }
    stop = () => boss.stop({ graceful: false });
  },

  async bullmq() {
    const { Worker } = await import('bullmq');
    const { hostname, port } = new URL(redisUrl);
    const worker = new Worker(
      'bench',
      async () => {
        done += 1;
      },
      { connection: { host: hostname, port: Number(port) }, concurrency: 32, removeOnComplete: { count: 0 } },
    );
    worker.on('error', (error) => console.error(`BullMQ: ${error.message}`));
    stop = () => worker.close();
  },
};

process.on('message', async (message) => {
  if (message === 'start') {
    startCpu = process.cpuUsage();
    await starts[contender]?.();
    process.send?.({ started: true });
  } else if (message === 'count') {
    const { user, system } = process.cpuUsage(startCpu);
    process.send?.({ done, cpuUs: user + system });
  } else {
    await stop();
    await pool.end();
    process.exit();
  }
});
process.once('disconnect', () => process.exit());
process.send?.({ ready: true });
