/** Faults of tables, databases and other programs that must not stop the recovery. */
import type { Pool } from 'pg';
import { expect, it } from 'vitest';
import { inspect, migrate } from '../../src/records/index.js';
import { defineWorkflow } from '../../src/records/workflow.js';
import { describeBothPostgres, describeOnePostgres } from '../support/postgres.js';
import { until } from '../support/until.js';
import {
  deadWorker,
  foreign,
  gate,
  pagesWorkflow,
  recovers,
  resetsOf,
  startable,
  statuses,
  storeOf,
  teamTable,
} from './fixture.js';

const stuckPages = (pool: Pool, rows: number) =>
  pool.query(
    `INSERT INTO pages (url, status, updated_at)
     SELECT 'stuck ' || i, 'Processing', now() - interval '2 h' FROM generate_series(1, $1) AS i`,
    [rows],
  );

describeBothPostgres('the recovery is not stopped by', (postgres) => {
  it('a row with an infinite timestamp', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 0);
    await foreign(pool, 120);
    await pool.query(
      "INSERT INTO pages (url, status, updated_at) VALUES ('p', 'Processing', '-infinity'), ('q', 'Queued', '-infinity')",
    );
    expect(await inspect(pool, pagesWorkflow())).toMatchObject({ stuck: 2, queued: 1 });
    const recovery = recovers(postgres, { pool, workflows: [pagesWorkflow()] });
    expect(await recovery.runOnce({ dryRun: true })).toMatchObject({ requeued: 2 });
    expect(await recovery.runOnce()).toMatchObject({ requeued: 2, held: 0 });
    expect(await statuses(pool)).toEqual({ Queued: 3 });
  });

  it('claims of an earlier table of the same name with other ids', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 2);
    const claims = await deadWorker(pool);
    await pool.query(
      "UPDATE smart_router.claims SET record_id = '17', token = NULL, held_at = now() WHERE record_id = $1",
      [claims[0]?.id],
    );
    await pool.query(
      "INSERT INTO smart_router.claims (workflow, record_id, token, worker, claimed_at, timeout_ms) SELECT workflow, '18', token, worker, claimed_at, timeout_ms FROM smart_router.claims WHERE token IS NOT NULL",
    );
    await foreign(pool, 120);
    const recovery = recovers(postgres, { pool, workflows: [pagesWorkflow()] });
    expect(await recovery.runOnce()).toMatchObject({ requeued: 2 });
    expect(await statuses(pool)).toEqual({ Queued: 2, Processing: 1 });
    expect(await inspect(pool, pagesWorkflow())).toMatchObject({ stuck: 0 });
  });

  it('a table with rows in child tables', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 0, { index: false });
    await pool.query(`
      CREATE TABLE archive (PRIMARY KEY (id)) INHERITS (pages);
      INSERT INTO archive (url, status, updated_at)
      SELECT repeat('x', 1900), CASE WHEN i % 500 = 0 THEN 'Processing' ELSE 'Completed' END::page_status, now() - interval '2 h'
      FROM generate_series(1, 9000) AS i`);
    const recovery = recovers(postgres, { pool, workflows: [pagesWorkflow()] });
    expect(await recovery.runOnce()).toMatchObject({ requeued: 18 });
  });

  it.each([true, false])('10,000 rows locked by another transaction (index: %s)', async (index) => {
    const pool = postgres.pool();
    await teamTable(pool, 0, { index });
    await stuckPages(pool, 10_200);
    const other = await postgres.client();
    await other.query('BEGIN');
    await other.query('SELECT FROM (SELECT FROM pages ORDER BY ctid LIMIT 10100 FOR UPDATE) AS locked');
    const recovery = recovers(postgres, { pool, workflows: [pagesWorkflow()] });
    expect(await recovery.runOnce()).toMatchObject({ requeued: 100 });
    await other.query('ROLLBACK');
    expect(await recovery.runOnce()).toMatchObject({ requeued: 10_100 });
  });

  it('5,000 locked claims of dead workers', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 120);
    const claims = await deadWorker(pool);
    await pool.query(
      "UPDATE smart_router.claims SET claimed_at = claimed_at - interval '1 s' WHERE record_id = ANY ($1)",
      [claims.slice(0, 100).map(({ id }) => id)],
    );
    const other = await postgres.client();
    await other.query('BEGIN');
    await other.query('SELECT FROM pages WHERE id = ANY ($1) FOR UPDATE', [
      claims.slice(0, 100).map(({ id }) => id),
    ]);
    const recovery = recovers(postgres, { pool, workflows: [pagesWorkflow()], batchSize: 5 });
    expect(await recovery.runOnce()).toMatchObject({ requeued: 20 });
    await other.query('ROLLBACK');
    expect(await recovery.runOnce()).toMatchObject({ requeued: 100 });
  });

  it('a trigger that keeps rows unchanged without an error', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 2);
    await deadWorker(pool, { most: 1 });
    await stuckPages(pool, 10_001);
    await pool.query(`
      CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
      CREATE TRIGGER keep BEFORE UPDATE ON pages FOR EACH ROW WHEN (old.url <> 'stuck 5') EXECUTE FUNCTION keep()`);
    const recovery = recovers(postgres, { pool, workflows: [pagesWorkflow()] });
    expect(await recovery.runOnce()).toMatchObject({ requeued: 1, failed: 0 });
    // Nothing is said to have happened that did not.
    expect(await resetsOf(pool)).toHaveLength(1);
    expect(await statuses(pool)).toEqual({ Queued: 2, Processing: 10_001 });
  });

  it('ids with their own collation', async () => {
    const pool = postgres.pool();
    await migrate(pool);
    await pool.query(`
      CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
      CREATE TABLE exact (id text COLLATE "C" PRIMARY KEY, status text, at timestamptz);
      CREATE TABLE loose (id text COLLATE loose PRIMARY KEY, status text, at timestamptz);
      INSERT INTO exact SELECT 'id ' || i, 'Processing', now() - interval '2 h' FROM generate_series(1, 12000) AS i;
      INSERT INTO loose SELECT * FROM exact`);
    const workflow = (table: string) =>
      defineWorkflow({
        ...{ name: table, table, touchedAt: 'at', batchSize: 1000, process: () => {} },
        status: { column: 'status', queued: 'Queued', processing: 'Processing', completed: 'C', failed: 'F' },
      });
    for (const table of ['exact', 'loose']) {
      const recovery = recovers(postgres, { pool, workflows: [workflow(table)] });
      expect(await recovery.runOnce()).toMatchObject({ requeued: 12_000 });
      const store = await storeOf(pool, workflow(table) as never);
      const plan = async (sql: string, args: unknown[]) =>
        JSON.stringify((await pool.query(`EXPLAIN (FORMAT JSON) ${sql}`, args)).rows);
      expect(await plan(store.table.queries.listUnclaimed, [store.table.workflowId, 10_000, 1, 0])).toContain(
        'record_id = ',
      );
      const loop = startable(postgres, { pool, workflows: [workflow(table)] });
      expect(await loop.runOnce()).toMatchObject({ claimed: 1000, completed: 1000 });
    }
  });
});

describeBothPostgres('a claim', (postgres) => {
  it('skips records that pause after a reset', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 60_000);
    const store = await storeOf(pool);
    await pool.query(
      `INSERT INTO smart_router.claims (workflow, record_id, resets, not_before)
       SELECT $1, id::text, 2, now() + interval '1 h' FROM pages`,
      [store.table.workflowId],
    );
    await pool.query("INSERT INTO pages (url) SELECT 'free' FROM generate_series(1, 3)");
    await pool.query('ANALYZE pages; ANALYZE smart_router.claims');
    // As little memory as a database may give: a list of all that wait does not fit into it.
    const modest = postgres.pool({ options: '-c work_mem=64kB' });
    const loop = startable(postgres, { pool: modest, workflows: [pagesWorkflow()] });
    expect(await loop.runOnce()).toMatchObject({ claimed: 3, completed: 3 });
  });

  it('accepts an id column with the name of our own column', async () => {
    const pool = postgres.pool();
    await migrate(pool);
    await pool.query(`
      CREATE TABLE odd (record_id text PRIMARY KEY, workflow text DEFAULT 'Queued', worker text, token timestamptz DEFAULT now());
      INSERT INTO odd VALUES ('a'), ('b c''"'), ('__proto__')`);
    const workflow = defineWorkflow({
      ...{ name: 'odd', table: 'odd', id: 'record_id', touchedAt: 'token', error: 'worker' },
      status: {
        column: 'workflow',
        queued: 'Queued',
        processing: 'Processing',
        completed: 'Done',
        failed: 'Failed',
      },
      process: ({ record_id }) => {
        if (record_id !== 'a') throw new Error(`no ${record_id}`);
      },
    });
    const loop = startable(postgres, { pool, workflows: [workflow] });
    expect(await loop.runOnce()).toMatchObject({ claimed: 3, completed: 1, failed: 2 });
    await pool.query("UPDATE odd SET workflow = 'Processing', token = now() - interval '2 h'");
    const recovery = recovers(postgres, { pool, workflows: [workflow] });
    expect(await recovery.runOnce({ dryRun: true })).toMatchObject({ requeued: 3 });
    expect(await recovery.runOnce()).toMatchObject({ requeued: 3 });
  });
});

describeOnePostgres('the order', (postgres) => {
  it('by a column named id that is not the id column is kept', async () => {
    const pool = postgres.pool();
    await migrate(pool);
    await pool.query(`
      CREATE TABLE tasks (key text PRIMARY KEY, id integer, status text DEFAULT 'Queued', at timestamptz DEFAULT now());
      INSERT INTO tasks (key, id) VALUES ('a', 3), ('b', 2), ('c', 1)`);
    const seen: string[] = [];
    const workflow = defineWorkflow({
      ...{ name: 'tasks', table: 'tasks', id: 'key', touchedAt: 'at', orderBy: 'id', concurrency: 1 },
      status: {
        column: 'status',
        queued: 'Queued',
        processing: 'Processing',
        completed: 'Done',
        failed: 'Failed',
      },
      process: ({ key }) => {
        seen.push(key);
      },
    });
    await startable(postgres, { pool, workflows: [workflow] }).runOnce();
    expect(seen).toEqual(['c', 'b', 'a']);
  });
});

describeBothPostgres('a database with serializable isolation', (postgres) => {
  it('is migrated by ten processes at once', async () => {
    const pool = postgres.pool({ max: 10, options: '-c default_transaction_isolation=serializable' });
    const all = await Promise.all(Array.from({ length: 10 }, () => migrate(pool)));
    expect(all.filter(({ applied }) => applied.length > 0)).toHaveLength(1);
  });

  it('processes every record once despite conflicts in our statements and in ctx.tx', {
    timeout: 70_000,
  }, async () => {
    const pool = postgres.pool();
    await teamTable(pool, 80);
    await pool.query('CREATE TABLE effects (page uuid, earlier bigint)');
    const serializable = { max: 12, options: '-c default_transaction_isolation=serializable' };
    let runs = 0;
    const workflow = pagesWorkflow({
      batchSize: 20,
      concurrency: 3,
      process: ({ id }, ctx) =>
        ctx
          .tx(async (client) => {
            runs += 1;
            const { rows } = await client.query('SELECT count(*) AS n FROM effects');
            await client.query('INSERT INTO effects VALUES ($1, $2)', [id, rows[0].n]);
          })
          .catch((error: unknown) => {
            throw new Error('wrapped', { cause: error });
          }),
    });
    const loops = [0, 1].map(() =>
      startable(postgres, { pool: postgres.pool(serializable), workflows: [workflow], poll: 10 }),
    );
    await Promise.all(loops.map((loop) => loop.start()));
    const ended = async () => {
      const { Completed = 0, Failed = 0 } = await statuses(pool);
      return Completed + Failed === 80;
    };
    await until(ended, 'all are done', 60_000);
    expect(await statuses(pool)).toEqual({ Completed: 80 });
    expect(runs).toBeGreaterThan(80);
    const { rows } = await pool.query(
      'SELECT count(DISTINCT page)::int AS pages, count(*)::int AS n FROM effects',
    );
    expect(rows).toEqual([{ pages: 80, n: 80 }]);
    expect(loops.flatMap(({ log }) => log.said('could not be'))).toEqual([]);
  });

  it('runs ctx.tx again after a deadlock', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 2);
    await pool.query('CREATE TABLE locks (n integer PRIMARY KEY); INSERT INTO locks VALUES (1), (2)');
    const both = gate();
    let first = 0;
    const workflow = pagesWorkflow({
      process: (_, ctx) => {
        const mine = ++first;
        return ctx.tx(async (client) => {
          await client.query('SELECT FROM locks WHERE n = $1 FOR UPDATE', [mine]);
          if (mine === 2) both.open();
          await both.opened;
          await client.query('SELECT FROM locks WHERE n = $1 FOR UPDATE', [3 - mine]);
        });
      },
    });
    const loop = startable(postgres, { pool, workflows: [workflow] });
    expect(await loop.runOnce()).toMatchObject({ completed: 2 });
  });
});
