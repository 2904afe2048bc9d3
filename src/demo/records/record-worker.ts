/**
 * A process that works on records as a team's own program would: job loop and recovery of the two shipped workflows,
 * with times short enough to watch. Its setup arrives as the first message, because other users could read a password
 * in an argument.
 */
import '../parent-watch.js';
import pg from 'pg';
import { pino } from 'pino';
import { stopSignals } from '../../clock.js';
import { createRecordLoop, createRecovery } from '../../records/index.js';
import { demoWorkflows } from './workflows.js';

export interface WorkerSetup {
  url: string;
  /** The application name of its connections. */
  name: string;
  spoolFolder: string;
  heartbeatMs: number;
  deadAfterMs: number;
  sweepMs: number;
  siteTimeoutMs: number;
}

// parent-watch.ts has unreferenced the channel, but the setup is still to come.
process.channel?.ref();
// Signals of a terminal reach all processes; the demo decides when its workers end, and sends them SIGTERM.
for (const signal of stopSignals) if (signal !== 'SIGTERM') process.on(signal, () => {});

process.once('message', (setup: WorkerSetup) => {
  work(setup).then(
    () => process.send?.('up'),
    (error: unknown) => {
      console.error(error instanceof Error ? error.message : error);
      process.exit(1);
    },
  );
});

async function work(setup: WorkerSetup): Promise<void> {
  const { url, name, spoolFolder, heartbeatMs, deadAfterMs, sweepMs, siteTimeoutMs } = setup;
  const pool = new pg.Pool({
    connectionString: url,
    max: 8,
    connectionTimeoutMillis: 5000,
    // Overrides PGSSLMODE of the user's shell.
    ssl: false,
    application_name: name,
  });
  const workflows = demoWorkflows({
    silenceMs: siteTimeoutMs,
    sitemaps: { batchSize: 2, concurrency: 2 },
    // So few that a killed worker always holds some and others are left to do.
    pages: { batchSize: 4, concurrency: 2 },
  });
  const log = pino({ level: 'error' }, pino.destination(2));
  const shared = { pool, workflows, log };
  const loop = createRecordLoop({
    ...shared,
    spoolFolder,
    poll: 400,
    heartbeat: { every: heartbeatMs },
  });
  const recovery = createRecovery({
    ...shared,
    deadAfter: deadAfterMs,
    fastEvery: sweepMs,
    // Leaves unclaimed records to the routers or to a visitor.
    stuckAfter: '24h',
  });
  await Promise.all([loop.start(), recovery.start()]);
}
