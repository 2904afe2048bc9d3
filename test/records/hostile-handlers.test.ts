/** Session state that a handler sets in `ctx.tx` ends with its transaction. */
import type { Pool, PoolClient } from 'pg';
import { describe, expect, it } from 'vitest';
import { describeOnePostgres } from '../support/postgres.js';
import { pgBouncer, pgBouncerAvailable } from '../support/postgres-bouncer.js';
import { pagesWorkflow, startable, statuses, teamTable } from './fixture.js';

const stateful: Record<string, string> = {
  'SET search_path': "SET search_path TO 'nowhere'",
  'set_config for the session': "SELECT set_config('search_path', 'nowhere', false)",
  'SET ROLE': 'SET ROLE pg_monitor',
  // Long enough for the statement that resets it, on any machine.
  'SET statement_timeout': "SELECT 1; /* ; */ SET statement_timeout = '1min'",
  'a temporary table': 'CREATE TEMP TABLE pages (id integer)',
  'a session advisory lock': 'SELECT pg_advisory_lock(17)',
  LISTEN: 'LISTEN somewhere',
  PREPARE: 'PREPARE mine AS SELECT 1',
  'a cursor with hold': 'DECLARE mine CURSOR WITH HOLD FOR SELECT 1',
};

/** What a session has beyond a new one. */
async function leftovers(pool: Pool): Promise<Record<string, unknown>> {
  const { rows } =
    await pool.query(`SELECT current_setting('search_path') AS search_path, current_user <> session_user AS role,
    current_setting('statement_timeout') AS statement_timeout, to_regclass('pg_temp.pages') AS temp,
    (SELECT count(*)::int FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()) AS locks,
    (SELECT count(*)::int FROM pg_listening_channels()) AS channels,
    (SELECT count(*)::int FROM pg_prepared_statements) AS prepared, (SELECT count(*)::int FROM pg_cursors WHERE is_holdable) AS cursors`);
  return rows[0];
}

const clean = {
  ...{ search_path: '"$user", public', role: false, statement_timeout: '0', temp: null },
  ...{ locks: 0, channels: 0, prepared: 0, cursors: 0 },
};

/** One handler spoils its connection and succeeds or fails, the next one needs a good one. */
async function spoil(pool: Pool, loop: ReturnType<typeof startable>, admin: Pool): Promise<void> {
  expect(await loop.runOnce()).toMatchObject({ claimed: 2, completed: 1, failed: 1 });
  expect(await leftovers(pool)).toEqual(clean);
  await admin.query("INSERT INTO pages (url) VALUES ('later')");
  expect(await loop.runOnce()).toMatchObject({ claimed: 1, completed: 1 });
}

const spoiling = (statement: string) =>
  pagesWorkflow({
    concurrency: 1,
    process: ({ url }, ctx) =>
      ctx.tx(async (client) => {
        if (url === 'later') return;
        await client.query(statement);
        if (url.endsWith('/2')) throw new Error('no');
      }),
  });

describeOnePostgres('on one connection', (postgres) => {
  it.each(Object.entries(stateful))('%s ends with the transaction', async (_, statement) => {
    const admin = postgres.pool();
    await teamTable(admin, 2);
    const pool = postgres.pool({ max: 1 });
    await spoil(pool, startable(postgres, { pool, workflows: [spoiling(statement)] }), admin);
  });

  it('statements without session state keep the connection', async () => {
    const admin = postgres.pool();
    await teamTable(admin, 1);
    const pool = postgres.pool({ max: 1 });
    const pid = async () => (await pool.query('SELECT pg_backend_pid() AS pid')).rows[0].pid;
    const workflow = pagesWorkflow({
      process: ({ id }, ctx) =>
        ctx.tx(async (client) => {
          await client.query("SET LOCAL search_path TO 'nowhere'");
          await client.query("SELECT set_config('app.user', $1, true)", [id]);
          await client.query("UPDATE public.pages SET url = 'it''s; LISTEN x' WHERE id = $1", [id]);
          await client.query({ name: 'mine', text: 'SELECT $1::text', values: ['a'] });
          await client.query('SAVEPOINT s');
          await client.query('ROLLBACK TO s');
        }),
    });
    const loop = startable(postgres, { pool, workflows: [workflow] });
    const before = await pid();
    expect(await loop.runOnce()).toMatchObject({ completed: 1 });
    expect(await pid()).toBe(before);
  });

  it('a connection whose session state a trigger changed is replaced after its first error', async () => {
    const admin = postgres.pool();
    await teamTable(admin, 1);
    await admin.query(`
      CREATE FUNCTION spoil() RETURNS trigger LANGUAGE plpgsql AS $$
      BEGIN PERFORM set_config('role', 'pg_monitor', false); RETURN new; END $$;
      CREATE TRIGGER spoil BEFORE UPDATE ON pages FOR EACH ROW WHEN (new.status = 'Completed') EXECUTE FUNCTION spoil()`);
    const pool = postgres.pool({ max: 1 });
    const loop = startable(postgres, { pool, workflows: [pagesWorkflow()] });
    expect(await loop.runOnce()).toMatchObject({ completed: 1 });
    await admin.query("INSERT INTO pages (url) VALUES ('later')");
    // The claim fails with `permission denied`; the second try, of single rows, has a new connection.
    expect(await loop.runOnce()).toMatchObject({ completed: 1 });
  });

  it('names of table and types do not depend on the search path', async () => {
    const admin = postgres.pool();
    await teamTable(admin, 1);
    await admin.query(
      "CREATE SCHEMA other; CREATE TABLE other.pages (LIKE pages INCLUDING DEFAULTS); INSERT INTO other.pages VALUES (gen_random_uuid(), 'x')",
    );
    const pool = postgres.pool({ max: 1 });
    const loop = startable(postgres, { pool, workflows: [pagesWorkflow()] });
    expect(await loop.runOnce()).toMatchObject({ completed: 1 });
    await pool.query('SET search_path TO other');
    await admin.query("INSERT INTO pages (url) VALUES ('later')");
    expect(await loop.runOnce()).toMatchObject({ completed: 1 });
    expect(await statuses(admin)).toEqual({ Completed: 2 });
    const { rows } = await admin.query('SELECT status FROM other.pages');
    expect(rows).toEqual([{ status: 'Queued' }]);
  });
});

describeOnePostgres('the transaction of ctx.tx', (postgres) => {
  it('rejects BEGIN, COMMIT and ROLLBACK of the handler', async () => {
    const statements = [
      'COMMIT',
      'ROLLBACK',
      'BEGIN',
      'end',
      '-- done\n abort;',
      "SELECT 1; COMMIT; SELECT ';'",
    ];
    const pool = postgres.pool({ max: 1 });
    await teamTable(pool, statements.length);
    await pool.query('CREATE TABLE effects (n integer)');
    const workflow = pagesWorkflow({
      process: (_, ctx) =>
        ctx.tx(async (client) => {
          await client.query('INSERT INTO effects VALUES (1)');
          await client.query(statements.pop() ?? '');
        }),
    });
    const loop = startable(postgres, { pool, workflows: [workflow] });
    expect(await loop.runOnce()).toMatchObject({ failed: 6 });
    const refused = "SELECT FROM pages WHERE error LIKE 'ctx.tx begins and ends the transaction itself: %'";
    expect((await pool.query(refused)).rowCount).toBe(6);
    expect((await pool.query('SELECT FROM effects')).rowCount).toBe(0);
  });

  it('rejects statements of a handler that keeps the client', async () => {
    const pool = postgres.pool({ max: 1 });
    await teamTable(pool, 2);
    let kept: PoolClient | undefined;
    const workflow = pagesWorkflow({
      concurrency: 1,
      process: (_, ctx) =>
        ctx.tx(async (client) => {
          client.release();
          if (kept) await kept.query('SELECT 1');
          kept = client;
        }),
    });
    const loop = startable(postgres, { pool, workflows: [workflow] });
    expect(await loop.runOnce()).toMatchObject({ completed: 1, failed: 1 });
    const { rows } = await pool.query("SELECT error FROM pages WHERE status = 'Failed'");
    expect(rows[0].error).toContain('ctx.tx has ended');
  });
});

const bouncer = pgBouncerAvailable();
(bouncer === true ? describe : describe.skip)(
  `through PgBouncer${bouncer === true ? '' : ` (${bouncer})`}`,
  () => {
    describeOnePostgres('in transaction mode', (postgres) => {
      it.each(Object.entries(stateful))('%s ends with the transaction', async (_, statement) => {
        const admin = postgres.pool();
        await teamTable(admin, 2);
        const { url } = await pgBouncer(postgres, { poolSize: 1 });
        const pool = postgres.pool({ connectionString: url });
        const direct = { connection: { connectionString: postgres.url } };
        const loop = startable(postgres, { pool, workflows: [spoiling(statement)], heartbeat: direct });
        await spoil(pool, loop, admin);
      });
    });
  },
);
