/** Every request to the database ends with a reply or an error within its deadline. */
import { expect, it } from 'vitest';
import { systemClock } from '../../src/clock.js';
import { migrateRecords } from '../../src/main/workflows.js';
import { migrate, weeklyReport } from '../../src/records/index.js';
import { RecordOperations } from '../../src/records/operations.js';
import { Reporter } from '../../src/records/reporter.js';
import { Sessions } from '../../src/records/sessions.js';
import { openTable } from '../../src/records/table.js';
import type { Workflow } from '../../src/records/workflow.js';
import { describeOnePostgres } from '../support/postgres.js';
import { tcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';
import { memoryLog, pagesWorkflow, teamTable } from './fixture.js';

describeOnePostgres('a database without a free session', (postgres) => {
  it('fails every operation with that reason', async () => {
    await teamTable(postgres.pool(), 0);
    const pool = postgres.pool({ max: 1 });
    const hog = await pool.connect();
    const { log } = memoryLog();
    const workflows = [pagesWorkflow()];
    const operations = new RecordOperations({ pool, workflows, stuckAfterMs: 3_600_000, log });
    const reporter = new Reporter({ pool, clock: systemClock, log, source: 'test' });
    const asked = await Promise.allSettled([
      operations.inspect('pages'),
      operations.history('pages'),
      operations.reset('pages', { dryRun: true }),
      operations.reset('pages', { dryRun: true, ids: ['x'] }),
      migrate(pool),
      migrateRecords(pool, { withWorkflows: true }),
      weeklyReport(pool),
      reporter.runOnce(),
    ]);
    hog.release();
    for (const answer of asked) expect(answer).toMatchObject({ status: 'rejected' });
    for (const answer of asked)
      expect(String((answer as PromiseRejectedResult).reason)).toContain(
        'no connection was free within 5000 ms',
      );
  });

  it('is not mistaken for one that rejects a time zone or value', async () => {
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

describeOnePostgres('a statement that failed', (postgres) => {
  it('holds no row locks once its error is thrown', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 10);
    const other = await pool.connect();
    const sessions = new Sessions({ pool, clock: systemClock });
    for (let i = 0; i < 3; i++) {
      // Freeing the memory of the array makes the rollback slow.
      const statement = `DO $$ DECLARE large text[]; BEGIN
        UPDATE pages SET url = url;
        large := ARRAY(SELECT repeat('x', 1000) FROM generate_series(1, 100000));
        PERFORM FROM no_such_table;
      END $$`;
      await expect(sessions.query(statement)).rejects.toThrow('no_such_table');
      expect((await other.query('SELECT FROM pages FOR UPDATE SKIP LOCKED')).rowCount).toBe(10);
    }
    other.release();
  });
});

describeOnePostgres('a statement that timed out', (postgres) => {
  it('is cancelled in the database', async () => {
    const pool = postgres.pool();
    const sessions = new Sessions({ pool, clock: systemClock, queryTimeoutMs: 300 });
    await expect(sessions.query('SELECT pg_sleep(3600)', [])).rejects.toThrow('Query read timeout');
    const running = "SELECT FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(3600)' AND state = 'active'";
    await until(async () => (await pool.query(running)).rowCount === 0, 'the database has stopped it');
  });
});
