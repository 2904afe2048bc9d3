/**
 * A process that works on records, as a team's own program would: job loop and recovery of the two shipped workflows,
 * with times short enough to watch. What it needs comes in its first message, for an argument or a variable with a
 * password could be read by others. It ends with the demo, also when the demo is killed and can tell nobody.
 */
import pg from 'pg';
import { pino } from 'pino';
import { systemClock } from '../../clock.js';
import { createRecordLoop, createRecovery, defineWorkflow } from '../../records/index.js';
import { pageCuration } from '../../workflows/page-curation.js';
import { sitemapImport } from '../../workflows/sitemap-import.js';

export interface WorkerSetup {
  url: string;
  /** Under which the database knows its connections. */
  name: string;
  /** Where every site of the demo answers. */
  webHost: string;
  spoolFolder: string;
  heartbeatMs: number;
  deadAfterMs: number;
  sweepMs: number;
  /** Longest silence of a site. */
  silenceMs: number;
}

process.once('disconnect', () => process.kill(process.pid, 'SIGKILL'));
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
  const { url, name, webHost, spoolFolder, heartbeatMs, deadAfterMs, sweepMs, silenceMs } = setup;
  const pool = new pg.Pool({
    connectionString: url,
    max: 8,
    connectionTimeoutMillis: 5000,
    // Whatever the shell says about databases of its own.
    ssl: false,
    application_name: name,
  });
  const fetching = {
    clock: systemClock,
    allowPrivateAddresses: [webHost],
    resolve: (
      _name: string,
      _options: unknown,
      found: (error: null, addresses: { address: string; family: number }[]) => void,
    ) => found(null, [{ address: webHost, family: 4 }]),
    silenceMs,
  };
  const workflows = [
    defineWorkflow(sitemapImport({ ...fetching, batchSize: 2, concurrency: 2 })),
    // So few at once that there is always something to do, and to lose.
    defineWorkflow(pageCuration({ ...fetching, batchSize: 4, concurrency: 2 })),
  ];
  const log = pino({ level: 'error' }, pino.destination(2));
  const shared = { pool, workflows, log };
  const loop = createRecordLoop({
    ...shared,
    spoolFolder,
    poll: 400,
    heartbeat: { every: heartbeatMs },
  });
  const recovery = createRecovery({ ...shared, deadAfter: deadAfterMs, fastEvery: sweepMs });
  await Promise.all([loop.start(), recovery.start()]);
}
