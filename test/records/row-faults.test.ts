/** A row that the database refuses with any error stops neither its batch nor its workflow. */
import { randomBytes } from 'node:crypto';
import type { Pool } from 'pg';
import { expect, it } from 'vitest';
import { describeOnePostgres } from '../support/postgres.js';
import { SkippingClock } from '../support/skipping-clock.js';
import { until } from '../support/until.js';
import {
  deadWorker,
  gate,
  type Page,
  pagesWorkflow,
  recovers,
  resetsOf,
  startable,
  statuses,
  teamTable,
  temporaryFolder,
} from './fixture.js';

/** Fails an UPDATE of the page with the number 7, by a statement of PL/pgSQL. */
async function refuse(pool: Pool, when: string, statement: string): Promise<void> {
  await pool.query(`
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN IF new.url LIKE '%/7' AND ${when} THEN ${statement}; END IF; RETURN new; END $$;
    CREATE TRIGGER refuse BEFORE UPDATE ON pages FOR EACH ROW EXECUTE FUNCTION refuse()`);
}

/** Errors that a trigger raises, and errors that happen in it. */
const statements = [
  "RAISE EXCEPTION 'rule' USING ERRCODE = 'U0001'",
  "RAISE EXCEPTION 'rule' USING ERRCODE = '42501'",
  "RAISE EXCEPTION 'rule' USING ERRCODE = '54000'",
  'PERFORM FROM no_such_table',
];

describeOnePostgres('a row that the database refuses', (postgres) => {
  it.each(statements)('to claim is skipped, and the others are claimed: %s', async (statement) => {
    const pool = postgres.pool();
    await teamTable(pool, 10);
    await refuse(pool, "new.status = 'Processing'", statement);
    const loop = startable(postgres, { pool, workflows: [pagesWorkflow()] });
    expect(await loop.runOnce()).toMatchObject({ claimed: 9, completed: 9 });
    const { rows } = await pool.query<Page>("SELECT id FROM pages WHERE status = 'Queued'");
    expect(loop.log.said('skipped for an hour')).toMatchObject([{ record: rows[0]?.id }]);
  });

  it.each(statements)('to finish does not block the others: %s', async (statement) => {
    const pool = postgres.pool();
    await teamTable(pool, 10);
    await refuse(pool, "new.status = 'Completed'", statement);
    const loop = startable(postgres, { pool, workflows: [pagesWorkflow()] });
    expect(await loop.runOnce()).toMatchObject({ completed: 9, failed: 1, spooled: 0 });
    const { rows } = await pool.query<Page>("SELECT * FROM pages WHERE status = 'Failed'");
    expect(rows).toMatchObject([{ error: expect.stringMatching('The outcome was refused: ') }]);
  });

  it.each(statements)('to recover is held, and the others are recovered: %s', async (statement) => {
    const pool = postgres.pool();
    await teamTable(pool, 10);
    await deadWorker(pool);
    await refuse(pool, "new.status = 'Queued'", statement);
    const recovery = recovers(postgres, { pool, workflows: [pagesWorkflow()] });
    expect(await recovery.runOnce()).toMatchObject({ requeued: 9, held: 1 });
    expect(recovery.log.said('held for a person')).toHaveLength(1);
  });

  it('to release is left to the sweep', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 10);
    await refuse(pool, "new.status = 'Queued'", "RAISE EXCEPTION 'rule' USING ERRCODE = 'U0001'");
    const busy = gate();
    const begun = gate();
    const process = () => {
      begun.open();
      return busy.opened;
    };
    const workflows = [pagesWorkflow({ concurrency: 1, orderBy: 'url', process })];
    const loop = startable(postgres, { pool, workflows, spoolFolder: temporaryFolder() });
    await loop.start();
    await begun.opened;
    const stopped = loop.stop();
    await until(() => loop.log.said('claims not released').length > 0, 'the release fails');
    busy.open();
    await stopped;
    // Signed off: it owes nothing.
    expect((await pool.query('SELECT FROM smart_router.workers')).rowCount).toBe(0);
    const recovery = recovers(postgres, { pool, workflows });
    expect(await recovery.runOnce()).toMatchObject({ requeued: 8, held: 1 });
  });

  it('alone, for a reason that may concern every row, is found by the next record', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 0);
    await pool.query("INSERT INTO pages (url) VALUES ('x/7')");
    await refuse(pool, "new.status IN ('Completed', 'Failed')", 'PERFORM FROM no_such_table');
    const workflows = [pagesWorkflow()];
    const clock = new SkippingClock();
    const loop = startable(postgres, { pool, workflows, spoolFolder: temporaryFolder(), poll: 20, clock });
    const passes = (test: () => Promise<boolean> | boolean) => () => {
      clock.skip(500);
      return test();
    };
    await loop.start();
    await until(
      passes(() => loop.log.said('cannot be written').length > 0),
      'writing fails',
    );
    await pool.query("INSERT INTO pages (url) VALUES ('x/8'), ('x/9')");
    await until(
      passes(async () => (await statuses(pool)).Completed === 2),
      'the others are processed',
    );
    await until(
      passes(() => loop.log.said('ZOMBIE RECORD ALERT').length === 1),
      'the row is found',
    );
  });

  it('because its id is too long for our index is set to Failed', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 3);
    await pool.query('ALTER TABLE pages ALTER id DROP DEFAULT, ALTER id TYPE text');
    // The longest one that the index of the table takes; ours has another column.
    const long = randomBytes(1346).toString('hex');
    await pool.query("INSERT INTO pages (id, url) VALUES ($1, 'long')", [long]);
    const loop = startable(postgres, { pool, workflows: [pagesWorkflow()] });
    expect(await loop.runOnce()).toMatchObject({ claimed: 3, completed: 3 });
    const { rows } = await pool.query<Page>("SELECT * FROM pages WHERE url = 'long'");
    expect(rows).toMatchObject([
      { status: 'Failed', error: expect.stringMatching(/^The record cannot be claimed: .*claims_pkey/) },
    ]);
    expect(loop.log.said('set to Failed')).toMatchObject([{ record: long }]);
    // The sweep cannot note that it holds the record.
    await pool.query("UPDATE pages SET status = 'Processing', updated_at = now() - interval '2 hours'");
    const recovery = recovers(postgres, { pool, workflows: [pagesWorkflow()] });
    expect(await recovery.runOnce()).toMatchObject({ requeued: 3 });
    expect(recovery.log.said('it cannot be held either')).toMatchObject([{ record: long }]);
    expect(await resetsOf(pool)).toHaveLength(3);
  });

  it('like every other one is not skipped: the cause is the table', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 30);
    await pool.query("UPDATE pages SET url = 'x/7'");
    await refuse(pool, "new.status = 'Processing'", 'PERFORM FROM no_such_table');
    const loop = startable(postgres, { pool, workflows: [pagesWorkflow()] });
    await expect(loop.runOnce()).rejects.toThrow('no_such_table');
    expect(loop.log.said('skipped for an hour')).toEqual([]);
    await pool.query('DROP TRIGGER refuse ON pages');
    expect(await loop.runOnce()).toMatchObject({ completed: 30 });
  });
});
