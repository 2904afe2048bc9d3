/** Whoever asks the database gets an answer, or is told that there is none: nobody waits for ever. */
import { expect, it } from 'vitest';
import { systemClock } from '../../src/clock.js';
import { migrateRecords } from '../../src/main/workflows.js';
import { Desk } from '../../src/records/by-hand.js';
import { migrate, weeklyReport } from '../../src/records/index.js';
import { Reporter } from '../../src/records/report-schedule.js';
import { Sessions } from '../../src/records/sessions.js';
import { openTable } from '../../src/records/table.js';
import type { Workflow } from '../../src/records/workflow.js';
import { describeOnePostgres } from '../support/postgres.js';
import { tcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';
import { memoryLog, pagesWorkflow, teamTable } from './fixture.js';

describeOnePostgres('a database that gives no session', (postgres) => {
  it('is told as such by everything that asks it', { timeout: 40_000 }, async () => {
    await teamTable(postgres.pool(), 0);
    const pool = postgres.pool({ max: 1 });
    const hog = await pool.connect();
    const { log } = memoryLog();
    const workflows = [pagesWorkflow()];
    const desk = new Desk({ pool, workflows, stuckAfterMs: 3_600_000, log });
    const reporter = new Reporter({ pool, clock: systemClock, log, source: 'test' });
    const asked = await Promise.allSettled([
      desk.look('pages'),
      desk.history('pages'),
      desk.reset('pages', { dryRun: true }),
      desk.reset('pages', { dryRun: true, ids: ['x'] }),
      migrate(pool),
      migrateRecords(pool, { withWorkflows: true }),
      weeklyReport(pool),
      reporter.runOnce(),
    ]);
    hog.release();
    for (const answer of asked) expect(answer).toMatchObject({ status: 'rejected' });
    for (const answer of asked)
      expect(String((answer as PromiseRejectedResult).reason)).toContain('none was free within 5000 ms');
  });

  it('is never taken for one that knows no such time zone or value', async () => {
    const admin = postgres.pool();
    await teamTable(admin, 0);
    await admin.query('ALTER TABLE pages ALTER status DROP DEFAULT, ALTER status TYPE text');
    await admin.query('ALTER TABLE pages ALTER updated_at TYPE timestamp');
    const proxy = await tcpProxy(postgres.port);
    const url = postgres.url.replace(`:${postgres.port}/`, `:${proxy.port}/`);
    const pool = postgres.pool({ connectionString: url });
    for (const question of ['AT TIME ZONE', 'AS fits']) {
      const db = {
        query: async (text: string, values?: unknown[]) => {
          if (text.includes(question)) await proxy.down();
          return pool.query(text, values);
        },
      };
      await expect(openTable(db as never, pagesWorkflow() as Workflow)).rejects.not.toMatchObject({
        name: 'ConfigError',
      });
      await proxy.up();
    }
  });
});

describeOnePostgres('a statement that nobody waits for any more', (postgres) => {
  it('is ended in the database too', async () => {
    const pool = postgres.pool();
    const sessions = new Sessions({ pool, clock: systemClock, queryTimeoutMs: 300 });
    await expect(sessions.query('SELECT pg_sleep(3600)', [])).rejects.toThrow('Query read timeout');
    const running = "SELECT FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(3600)' AND state = 'active'";
    await until(async () => (await pool.query(running)).rowCount === 0, 'the database has stopped it');
  });
});
