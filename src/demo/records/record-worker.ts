/**
 * A process that works on records, as a team's own program would: job loop and recovery of the two shipped workflows,
 * with times short enough to watch. What it needs comes in its first message, for an argument with a password could
 * be read by others. It ends with the demo, also when the demo is killed and can tell nobody.
 */
import pg from 'pg';
import { pino } from 'pino';
import { createRecordLoop, createRecovery } from '../../records/index.js';
import { demoWorkflows } from './workflows.js';

export interface WorkerSetup {
  url: string;
  /** Under which the database knows its connections. */
  name: string;
  spoolFolder: string;
  heartbeatMs: number;
  deadAfterMs: number;
  sweepMs: number;
  /** Longest silence of a site. */
  silenceMs: number;
}

const end = () => process.kill(process.pid, 'SIGKILL');
process.once('disconnect', end);
// It may have broken while everything above was loaded.
if (!process.connected) end();
// Ctrl-C reaches everybody on a terminal; when we end is for the demo to decide.
process.on('SIGINT', () => {});

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
  const { url, name, spoolFolder, heartbeatMs, deadAfterMs, sweepMs, silenceMs } = setup;
  const pool = new pg.Pool({
    connectionString: url,
    max: 8,
    connectionTimeoutMillis: 5000,
    // Whatever the shell says about databases of its own.
    ssl: false,
    application_name: name,
  });
  const workflows = demoWorkflows({
    silenceMs,
    sitemaps: { batchSize: 2, concurrency: 2 },
    // So few at once that there is always something to do, and to lose.
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
    // What others have left in Processing is for the routers to bring back, or for a person.
    stuckAfter: '24h',
  });
  await Promise.all([loop.start(), recovery.start()]);
}
