/** Tables that do not keep the status: claiming slows down, and the log says why. Tables with columns named as ours. */
import { readdirSync, readFileSync } from 'node:fs';
import type { Pool } from 'pg';
import { expect, it } from 'vitest';
import { migrate } from '../../src/records/index.js';
import type { WorkflowDefinition } from '../../src/records/workflow.js';
import { ManualClock } from '../support/manual-clock.js';
import { describeOnePostgres } from '../support/postgres.js';
import { until } from '../support/until.js';
import {
  deadWorker,
  type Page,
  page,
  pagesWorkflow,
  recovers,
  resetsOf,
  startable,
  statuses,
  storeOf,
  teamTable,
} from './fixture.js';

const refusing = 'table does not keep the status written to it';

/** `body` runs for each row that is updated. */
const trigger = (pool: Pool, when: 'BEFORE' | 'AFTER', condition: string, body: string) =>
  pool.query(`
    CREATE FUNCTION hostile() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN ${body}; RETURN new; END $$;
    CREATE TRIGGER hostile ${when} UPDATE ON pages FOR EACH ROW WHEN (${condition}) EXECUTE FUNCTION hostile()`);
const claimed = "old.status = 'Queued' AND new.status = 'Processing'";
const restore = "UPDATE pages SET status = 'Queued' WHERE id = new.id";

describeOnePostgres('a trigger', (postgres) => {
  const counted = (more: Partial<WorkflowDefinition<Page>> = {}) => {
    const runs: string[] = [];
    const workflow = pagesWorkflow({
      process: ({ url }) => {
        runs.push(url);
      },
      ...more,
    });
    return { runs, workflow };
  };

  it.each([
    ['before', 'BEFORE', 'new.status := old.status'],
    ['before, by keeping the row', 'BEFORE', 'RETURN NULL'],
    ['after', 'AFTER', restore],
  ] as const)(
    'that undoes the claim (%s) starts no handler, and stops no other workflow',
    async (_, when, body) => {
      const pool = postgres.pool();
      await teamTable(pool, 3);
      await pool.query(
        'CREATE TABLE others (LIKE pages INCLUDING ALL); INSERT INTO others SELECT * FROM pages',
      );
      await trigger(pool, when, claimed, body);
      const { runs, workflow } = counted();
      const other = pagesWorkflow({ name: 'others', table: 'others' });
      const loop = startable(postgres, { pool, workflows: [workflow, other], poll: 5 });
      await loop.start();
      await until(() => loop.log.said(refusing).length > 0, 'it says so');
      const done = "SELECT FROM others WHERE status = 'Completed'";
      await until(async () => (await pool.query(done)).rowCount === 3, 'the other workflow runs');
      await until(() => loop.log.said('claim failed').length >= 2, 'it tries again');
      expect(runs).toEqual([]);
      expect(loop.log.said(refusing)).toMatchObject([{ level: 50, workflow: 'pages' }]);
      await pool.query('DROP TRIGGER hostile ON pages');
      await until(async () => (await statuses(pool)).Completed === 3, 'it resumes after DROP TRIGGER');
      expect(runs).toHaveLength(3);
    },
  );

  it.each([
    ['before', 'BEFORE', 'new.status := old.status'],
    ['after', 'AFTER', restore],
  ] as const)('that undoes the claim of one record (%s) stops that record only', async (_, when, body) => {
    const pool = postgres.pool();
    await teamTable(pool, 3);
    await trigger(pool, when, `${claimed} AND new.url LIKE '%/2'`, body);
    const { runs, workflow } = counted();
    const loop = startable(postgres, { pool, workflows: [workflow] });
    expect(await loop.runOnce()).toMatchObject({ claimed: 2, completed: 2 });
    expect(await loop.runOnce()).toMatchObject({ claimed: 0 });
    expect(runs).not.toContain('https://example.com/2');
    expect(loop.log.said('skipped for an hour')).toHaveLength(1);
  });

  it.each(['Processing', 'Queued'])('that sets a finished record back to %s is reported', async (status) => {
    const pool = postgres.pool();
    await teamTable(pool, 3);
    await trigger(pool, 'BEFORE', "new.status = 'Completed'", `new.status := '${status}'`);
    const { runs, workflow } = counted();
    const clock = new ManualClock();
    const loop = startable(postgres, { pool, workflows: [workflow], clock });
    // One batch: a loop could claim the records again before it has looked at their status.
    expect(await loop.runOnce()).toMatchObject({ claimed: 3, completed: 0 });
    expect(loop.log.said(refusing)).toMatchObject([{ reason: `a trigger set the status back to ${status}` }]);
    expect(loop.log.said('ZOMBIE RECORD ALERT')).toHaveLength(status === 'Processing' ? 3 : 0);
    await loop.start();
    await until(() => clock.sleepsMs.includes(1000), 'the next claim waits for a second');
    expect(runs).toHaveLength(3);
  });

  it('that keeps stuck records in Processing causes no resets', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 1);
    await deadWorker(pool);
    await trigger(pool, 'BEFORE', "new.status = 'Queued'", 'new.status := old.status');
    const recovery = recovers(postgres, { pool, workflows: [pagesWorkflow()] });
    expect(await recovery.runOnce()).toMatchObject({ requeued: 0 });
    expect(await resetsOf(pool)).toEqual([]);
  });
});

describeOnePostgres('a finish that changes nothing', (postgres) => {
  it.each([
    ['the row was deleted', 'DELETE FROM pages'],
    ['another program set the status to Failed', "UPDATE pages SET status = 'Failed'"],
    [
      'a trigger or a rule keeps the row unchanged',
      `CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
       CREATE TRIGGER keep BEFORE UPDATE ON pages FOR EACH ROW EXECUTE FUNCTION keep()`,
    ],
  ])('logs the reason: %s', async (reason, change) => {
    const pool = postgres.pool();
    await teamTable(pool, 1);
    const workflow = pagesWorkflow({
      process: async () => {
        await pool.query(change);
      },
    });
    const loop = startable(postgres, { pool, workflows: [workflow] });
    const isStuck = reason.startsWith('a trigger');
    expect(await loop.runOnce()).toMatchObject({
      completed: 0,
      rejected: isStuck ? 0 : 1,
      abandoned: isStuck ? 1 : 0,
    });
    expect(loop.log.said('changed nothing although the claim held')).toMatchObject([
      { msg: expect.stringContaining(reason) },
    ]);
  });

  it('logs that row-level security prevents it', async () => {
    const admin = postgres.pool();
    await teamTable(admin, 1);
    await admin.query(`
      CREATE ROLE worker LOGIN PASSWORD 'w';
      GRANT USAGE ON SCHEMA smart_router TO worker;
      GRANT ALL ON ALL TABLES IN SCHEMA smart_router TO worker;
      GRANT ALL ON ALL SEQUENCES IN SCHEMA smart_router TO worker;
      GRANT ALL ON pages TO worker`);
    postgres.onEnd(() => admin.query('DROP OWNED BY worker; DROP ROLE worker'));
    const url = new URL(postgres.url);
    Object.assign(url, { username: 'worker', password: 'w' });
    const pool = postgres.pool({ connectionString: url.href });
    const workflow = pagesWorkflow({
      process: async () => {
        await admin.query(
          `ALTER TABLE pages ENABLE ROW LEVEL SECURITY; CREATE POLICY look ON pages FOR SELECT USING (true)`,
        );
      },
    });
    const loop = startable(postgres, { pool, workflows: [workflow] });
    expect(await loop.runOnce()).toMatchObject({ abandoned: 1 });
    expect(loop.log.said('ZOMBIE RECORD ALERT')).toMatchObject([
      { msg: expect.stringContaining('row-level security does not let this role change the row') },
    ]);
    expect(await page(admin)).toMatchObject({ status: 'Processing' });
    await loop.stop();
    const problems = async () =>
      (await startable(postgres, { pool, workflows: [workflow] })
        .start()
        .catch((error: unknown) => error)) as Error;
    expect((await problems()).message).toBe(
      'workflow pages: row-level security of "pages" lets role worker update no row: add a policy, or ALTER ROLE worker BYPASSRLS',
    );
    await admin.query("CREATE POLICY mine ON pages USING (status <> 'Processing')");
    expect((await problems()).message).toContain(
      'workflow pages: the policy mine of "pages" depends on status',
    );
    await admin.query('DROP POLICY mine ON pages; CREATE POLICY mine ON pages USING (url IS NOT NULL)');
    expect(await problems()).toBeUndefined();
  });
});

describeOnePostgres('a table that cannot be written', (postgres) => {
  it('is refused at the start', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 0);
    await pool.query(`
      CREATE TABLE computed (id integer PRIMARY KEY, done boolean, at timestamptz,
        status text GENERATED ALWAYS AS (CASE WHEN done THEN 'Completed' ELSE 'Queued' END) STORED);
      CREATE RULE quiet AS ON UPDATE TO pages DO INSTEAD NOTHING`);
    const { error, ...computed } = {
      ...pagesWorkflow(),
      name: 'computed',
      table: ['computed'],
      touchedAt: 'at',
    };
    const workflows = [
      pagesWorkflow(),
      { ...computed, error: undefined, order: [{ column: 'at', rest: '' }] },
    ];
    const refused = startable(postgres, { pool, workflows }).start();
    await expect(refused).rejects.toThrow(
      [
        'workflow pages: "pages" has the rule quiet for UPDATE: drop it, or replace it with a trigger',
        'workflow computed: column status of "computed" is a generated column: it cannot be written',
      ].join('\n'),
    );
  });
});

describeOnePostgres('a column with any name that our statements use', (postgres) => {
  /** Texts that are inserted into other statements. */
  const parts = ['judge', 'limitedByIndex', 'limitedByScan', 'pick', 'pickLimited'];
  const systemColumns = ['ctid', 'xmin'];

  it('changes no statement, and no statement needs a column named `id`', async () => {
    const pool = postgres.pool({ max: 1 });
    await migrate(pool);
    const folder = 'src/records/queries';
    const text = readdirSync(folder).map((file) => readFileSync(`${folder}/${file}`, 'utf8'));
    const words = new Set(
      text
        .join('\n')
        .replaceAll(/--.*/g, '')
        .match(/\b[a-z][a-z_]+\b/g),
    );
    const names = [...words].filter((word) => !systemColumns.includes(word));
    const own =
      'our_id uuid PRIMARY KEY, our_state text, our_error text, our_time timestamptz, our_key bigint';
    // No operator compares this type with any that our statements use.
    const others = names.map((name) => `"${name}" money[]`).join(', ');
    await pool.query(`CREATE TABLE plain (${own}); CREATE TABLE full_of_names (${own}, ${others})`);
    for (const table of ['plain', 'full_of_names'])
      for (const policy of ['requeue', 'fail', 'hold'] as const) {
        const { queries } = (
          await storeOf(
            pool,
            pagesWorkflow({
              ...{ table, id: 'our_id', error: 'our_error', touchedAt: 'our_time', stuck: { policy } },
              status: {
                column: 'our_state',
                ...{ queued: 'Queued', processing: 'Processing', completed: 'Completed', failed: 'Failed' },
              },
              limit: { key: 'our_key', max: 2 },
              retry: { max: 3 },
            }),
          )
        ).table;
        for (const [name, sql] of Object.entries(queries).filter(([name]) => !parts.includes(name)))
          await expect(pool.query(`PREPARE statement AS ${sql}`), `${name} of ${table}`)
            .resolves.toBeDefined()
            .then(() => pool.query('DEALLOCATE statement'));
      }
  });
});
