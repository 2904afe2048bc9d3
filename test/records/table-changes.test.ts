/** Tables that change while workers run, and two tables under one workflow name. */
import { expect, it } from 'vitest';
import { describeOnePostgres } from '../support/postgres.js';
import { pagesWorkflow, recovers, startable, teamTable } from './fixture.js';

describeOnePostgres('two programs with one workflow name', (postgres) => {
  it('and two tables: the second one is refused while the first one is alive', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 2);
    await pool.query(
      'CREATE TABLE pages_v2 (LIKE pages INCLUDING ALL); INSERT INTO pages_v2 SELECT * FROM pages',
    );
    const first = startable(postgres, { pool, workflows: [pagesWorkflow()] });
    const second = () => startable(postgres, { pool, workflows: [pagesWorkflow({ table: 'pages_v2' })] });
    await first.runOnce();
    const problem =
      /^workflow pages: a live worker \(.+, pid \d+\) processes the table public\.pages under this name, not public\.pages_v2; use another name, or stop that worker first$/;
    await expect(second().start()).rejects.toMatchObject({ problems: [expect.stringMatching(problem)] });
    const recovery = recovers(postgres, { pool, workflows: [pagesWorkflow({ table: 'pages_v2' })] });
    await expect(recovery.runOnce()).rejects.toMatchObject({ problems: [expect.stringMatching(problem)] });
    expect(await startable(postgres, { pool, workflows: [pagesWorkflow()] }).runOnce()).toMatchObject({
      claimed: 0,
    });
    await first.stop();
    await pool.query('DELETE FROM smart_router.workers');
    expect(await second().runOnce()).toMatchObject({ completed: 2 });
  });

  it('that start at once on two tables: one of them is refused', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 0);
    await pool.query('CREATE TABLE pages_v2 (LIKE pages INCLUDING ALL)');
    const starts = ['pages', 'pages_v2'].map((table) =>
      startable(postgres, { pool, workflows: [pagesWorkflow({ table })] }).start(),
    );
    const results = (await Promise.allSettled(starts)).map(({ status }) => status);
    expect(results.sort()).toEqual(['fulfilled', 'rejected']);
  });

  it('may use a table that was renamed, or that replaced the one of the first', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 1);
    const workflows = [pagesWorkflow()];
    await startable(postgres, { pool, workflows }).runOnce();
    await pool.query('ALTER TABLE pages RENAME TO old; CREATE TABLE pages (LIKE old INCLUDING ALL)');
    await pool.query("INSERT INTO pages (url) VALUES ('new')");
    expect(await startable(postgres, { pool, workflows }).runOnce()).toMatchObject({ completed: 1 });
    await pool.query("ALTER TABLE pages RENAME TO renamed; UPDATE renamed SET status = 'Queued'");
    const renamed = startable(postgres, { pool, workflows: [pagesWorkflow({ table: 'renamed' })] });
    expect(await renamed.runOnce()).toMatchObject({ completed: 1 });
  });
});
