/** The clean-up without our process: the function, the statement for pg_cron, the script for cron, the trigger. Guarantee 10c without a router. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import type { Pool } from 'pg';
import { describe, expect, it } from 'vitest';
import { silentLogger } from '../../src/observe/log.js';
import { createRecordLoop, createRecovery, migrate } from '../../src/records/index.js';
import { applyMigrations } from '../../src/records/migrate.js';
import { migrations } from '../../src/workflows/migrations.generated.js';
import { pagesWorkflow, statuses, teamTable } from '../records/fixture.js';
import { findOnPath } from '../support/engines.js';
import { describeBothPostgres } from '../support/postgres.js';
import { until } from '../support/until.js';
import { readText, root } from './manifests.js';

const install = readText('deploy/postgres/zombie_cleanup.sql');
const run = promisify(execFile);

/** The status of a plain table is a text: its values must be named. */
const values = ", processing => 'Processing', queued => 'Queued', failed => 'Failed'";

/** A team's table where nothing of ours is installed but the function. */
async function plainTable(pool: Pool, more = ''): Promise<void> {
  await pool.query(`
    CREATE TABLE pages (id bigint PRIMARY KEY, status text NOT NULL, error text, updated_at timestamptz${more});
    CREATE INDEX ON pages (status, updated_at)`);
  await pool.query(install);
}

const stuckRows = (pool: Pool, from: number, to: number, age = '2 hours', status = 'Processing') =>
  pool.query(
    `INSERT INTO pages (id, status, updated_at) SELECT i, $3, now() - $4::interval FROM generate_series($1::int, $2) AS i`,
    [from, to, status, age],
  );

async function reset(pool: Pool, more = '', named = values): Promise<Record<string, string>> {
  const { rows } = await pool.query(
    `SELECT record_id, outcome FROM smart_router.reset_stuck('pages', 'status', error_column => 'error'${named}${more})`,
  );
  return Object.fromEntries(rows.map(({ record_id, outcome }) => [record_id, outcome]));
}

describeBothPostgres('smart_router.reset_stuck, alone', (postgres) => {
  it('resets rows stuck for over an hour and nothing else', async () => {
    const pool = postgres.pool();
    await plainTable(pool);
    await stuckRows(pool, 1, 2);
    await stuckRows(pool, 3, 3, '59 minutes');
    await stuckRows(pool, 4, 4, '2 hours', 'Completed');
    await stuckRows(pool, 5, 5, '2 hours', 'Queued');
    expect(await reset(pool)).toEqual({ 1: 'requeued', 2: 'requeued' });
    const { rows } = await pool.query(
      "SELECT id, status, error, updated_at > now() - interval '1 minute' AS fresh FROM pages ORDER BY id",
    );
    const auto = { status: 'Queued', error: 'Auto-reset from stuck Processing state', fresh: true };
    expect(rows).toEqual([
      { id: '1', ...auto },
      { id: '2', ...auto },
      { id: '3', status: 'Processing', error: null, fresh: false },
      { id: '4', status: 'Completed', error: null, fresh: false },
      { id: '5', status: 'Queued', error: null, fresh: false },
    ]);
    expect(await reset(pool)).toEqual({});
  });

  it('a dry run shows the same rows and changes nothing', async () => {
    const pool = postgres.pool();
    await plainTable(pool);
    await stuckRows(pool, 1, 3);
    expect(await reset(pool, ', dry_run => true')).toEqual({ 1: 'requeued', 2: 'requeued', 3: 'requeued' });
    expect(await statuses(pool)).toEqual({ Processing: 3 });
  });

  it('never resets more than a batch, oldest first', async () => {
    const pool = postgres.pool();
    await plainTable(pool);
    await stuckRows(pool, 1, 10);
    await stuckRows(pool, 11, 15, '3 hours');
    expect(Object.keys(await reset(pool, ', batch => 5'))).toEqual(['11', '12', '13', '14', '15']);
    expect(Object.keys(await reset(pool, ', batch => 100'))).toHaveLength(10);
  });

  it('locked rows are skipped without waiting', async () => {
    const pool = postgres.pool();
    await plainTable(pool);
    await stuckRows(pool, 1, 3);
    const other = await postgres.client();
    await other.query('BEGIN');
    await other.query('SELECT FROM pages WHERE id = 2 FOR UPDATE');
    expect(await reset(pool)).toEqual({ 1: 'requeued', 3: 'requeued' });
    await other.query('ROLLBACK');
    expect(await reset(pool)).toEqual({ 2: 'requeued' });
  });

  it('several at once reset each row once', async () => {
    const pool = postgres.pool();
    await plainTable(pool);
    await stuckRows(pool, 1, 500);
    const results = await Promise.all(Array.from({ length: 5 }, () => reset(pool, ', batch => 200')));
    const ids = results.flatMap((result) => Object.keys(result));
    expect(new Set(ids).size).toBe(ids.length);
    expect((await statuses(pool)).Queued).toBe(ids.length);
  });

  it('works with enums, odd names, timestamps without a zone, and no error column', async () => {
    const pool = postgres.pool({ options: '-c TimeZone=America/New_York' });
    await pool.query(install);
    await pool.query(`
      CREATE SCHEMA "Team"; CREATE TYPE "Team"."State" AS ENUM ('waiting', 'at work', 'done');
      CREATE TABLE "Team"."Pages" ("Key" uuid PRIMARY KEY DEFAULT gen_random_uuid(), "State" "Team"."State", "Touched" timestamp);
      INSERT INTO "Team"."Pages" ("State", "Touched") VALUES
        ('at work', (now() AT TIME ZONE 'UTC') - interval '61 minutes'),
        ('at work', (now() AT TIME ZONE 'UTC') - interval '59 minutes')`);
    const { rows } = await pool.query(`
      SELECT * FROM smart_router.reset_stuck('"Team"."Pages"', 'State', 'Touched', id_column => 'Key',
        processing => 'at work', queued => 'waiting')`);
    expect(rows).toHaveLength(1);
    const { rows: after } = await pool.query(
      `SELECT "State"::text AS state, (now() AT TIME ZONE 'UTC') - "Touched" < interval '1 minute' AS fresh FROM "Team"."Pages" ORDER BY 1 DESC`,
    );
    expect(after).toEqual([
      { state: 'waiting', fresh: true },
      { state: 'at work', fresh: false },
    ]);
  });

  it('a row without a timestamp is skipped unless null_is_stuck', async () => {
    const pool = postgres.pool();
    await plainTable(pool);
    await pool.query("INSERT INTO pages (id, status) VALUES (1, 'Processing')");
    expect(await reset(pool)).toEqual({});
    expect(await reset(pool, ', null_is_stuck => true')).toEqual({ 1: 'requeued' });
  });

  it('a wrong column or batch is refused by name', async () => {
    const pool = postgres.pool();
    await plainTable(pool);
    await expect(reset(pool, ", touched_column => 'nope'")).rejects.toThrow(
      'column nope does not exist in pages',
    );
    await expect(pool.query("SELECT smart_router.reset_stuck('pages', 'state')")).rejects.toThrow(
      'column state does not exist in pages',
    );
    await expect(reset(pool, ', batch => 0')).rejects.toThrow('batch must be at least 1');
  });

  it('an enum must have the values, with Processing, Queued and Failed as defaults', async () => {
    const pool = postgres.pool();
    await pool.query(install);
    await pool.query(`
      CREATE TYPE state AS ENUM ('Processing', 'waiting', 'Error');
      CREATE TABLE pages (id bigint PRIMARY KEY, status state, error text, updated_at timestamptz)`);
    await pool.query("INSERT INTO pages VALUES (1, 'Processing', NULL, now() - interval '2 hours')");
    await expect(reset(pool, '', '')).rejects.toThrow(
      "'Queued' (queued) is not a value of status in pages; the values are 'Processing', 'waiting', 'Error'",
    );
    await migrate(pool);
    await pool.query("INSERT INTO smart_router.workflows (name) VALUES ('pages')");
    await expect(reset(pool, ", workflow => 'pages', queued => 'waiting'", '')).rejects.toThrow(
      "'Failed' (failed) is not a value of status in pages",
    );
    expect(await statuses(pool)).toEqual({ Processing: 1 });
    expect(await reset(pool, ", queued => 'waiting'", '')).toEqual({ 1: 'requeued' });
    expect(await statuses(pool)).toEqual({ waiting: 1 });
  });

  it('a text column needs all values, and a dry run reports an unused one', async () => {
    const pool = postgres.pool();
    await plainTable(pool);
    await stuckRows(pool, 1, 1);
    for (const named of ['', ", processing => 'Processing'", ", queued => 'Queued'"])
      await expect(reset(pool, '', named)).rejects.toThrow('column status of pages is not an enum');
    await expect(reset(pool, ", processing => 'x', queued => 'x'", '')).rejects.toThrow(
      'processing and queued must differ',
    );
    expect(await statuses(pool)).toEqual({ Processing: 1 });
    const client = await postgres.client();
    const told: string[] = [];
    client.on('notice', ({ message = '' }) => told.push(message));
    const dry = () =>
      client.query(
        `SELECT smart_router.reset_stuck('pages', 'status', processing => 'Processing', queued => 'new', dry_run => true)`,
      );
    await dry();
    expect(told).toEqual(["no row of pages is 'new': check that this is the value for queued"]);
    await stuckRows(pool, 2, 2, '1 minute', 'new');
    await dry();
    expect(told).toHaveLength(1);
  });

  it('takes columns by stored name and by SQL name, and lists the existing ones', async () => {
    const pool = postgres.pool();
    await pool.query(install);
    await pool.query(`
      CREATE TABLE pages ("Key" bigint PRIMARY KEY, "State" text, state text, "Touched At" timestamptz);
      INSERT INTO pages VALUES (1, 'busy', 'x', now() - interval '2 hours')`);
    const call = (columns: string) =>
      pool.query(
        `SELECT * FROM smart_router.reset_stuck('pages', ${columns}, processing => 'busy', queued => 'new', dry_run => true)`,
      );
    for (const columns of [
      `'State', 'Touched At', id_column => 'Key'`,
      `'"State"', '"Touched At"', id_column => '"Key"'`,
    ])
      expect((await call(columns)).rows).toMatchObject([{ record_id: '1' }]);
    // As SQL reads it, that is another column.
    expect((await call(`'STATE', 'Touched At', id_column => 'Key'`)).rows).toEqual([]);
    await expect(call(`'State', 'touched_at', id_column => 'Key'`)).rejects.toThrow(
      'column touched_at does not exist in pages (touched_column); the columns are "Key", "State", state, "Touched At"',
    );
    await expect(call(`'State', 'state', id_column => 'Key'`)).rejects.toThrow('must be a timestamp');
  });

  it('can be installed twice, before or after our schema', async () => {
    const pool = postgres.pool();
    await pool.query(install);
    await pool.query(install);
    expect((await migrate(pool)).applied).toContain('001_claims');
    await pool.query(install);
  });
});

describeBothPostgres('smart_router.reset_stuck beside the router', (postgres) => {
  /** Two records of a live worker, and two stuck ones without a claim. */
  async function workedOn() {
    const pool = postgres.pool();
    await teamTable(pool, 2);
    await pool.query(install);
    let finish = () => {};
    const gate = new Promise<void>((resolve) => {
      finish = resolve;
    });
    const workflow = pagesWorkflow({ process: () => gate });
    const loop = createRecordLoop({ pool, workflows: [workflow], log: silentLogger });
    postgres.onEnd(() => {
      finish();
      return loop.stop();
    });
    const work = loop.runOnce();
    await until(async () => (await statuses(pool)).Processing === 2, 'claimed');
    const { rows } = await pool.query<{ id: string }>('SELECT id::text FROM pages');
    await pool.query(
      "INSERT INTO pages (url, status, updated_at) VALUES ('a', 'Processing', now()), ('b', 'Processing', now())",
    );
    await pool.query("UPDATE pages SET updated_at = now() - interval '2 hours'");
    return { pool, work, finish: () => finish(), held: rows.map(({ id }) => id) };
  }

  it.each(['', ", workflow => 'pages'"])(
    'a record of a live worker is skipped, and finishes (%j)',
    async (more) => {
      const { pool, work, finish, held } = await workedOn();
      const done = await reset(pool, more);
      expect(Object.keys(done)).toHaveLength(2);
      expect(Object.keys(done).filter((id) => held.includes(id))).toEqual([]);
      finish();
      expect(await work).toMatchObject({ completed: 2, rejected: 0 });
    },
  );

  it('a record of a dead worker is reset, and its late finish is rejected', async () => {
    const { pool, work, finish, held } = await workedOn();
    await pool.query("UPDATE smart_router.workers SET heartbeat_at = now() - interval '3 minutes'");
    expect(Object.keys(await reset(pool))).toHaveLength(2);
    const done = await reset(pool, ", workflow => 'pages'");
    expect(Object.keys(done).sort()).toEqual([...held].sort());
    finish();
    expect(await work).toMatchObject({ completed: 0, rejected: 2 });
    const { rows } = await pool.query(
      'SELECT reason, outcome, token IS NOT NULL AS had_token FROM smart_router.resets',
    );
    expect(rows).toEqual([
      { reason: 'dead_worker', outcome: 'requeued', had_token: true },
      { reason: 'dead_worker', outcome: 'requeued', had_token: true },
    ]);
    const next = createRecordLoop({ pool, workflows: [pagesWorkflow()], log: silentLogger });
    expect(await next.runOnce()).toMatchObject({ claimed: 4, completed: 4 });
    await next.stop();
  });

  it('resets count with those of the router, and past the budget the record is Failed', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 1);
    await pool.query(install);
    const recovery = createRecovery({ pool, workflows: [pagesWorkflow()], log: silentLogger });
    const stick = () =>
      pool.query("UPDATE pages SET status = 'Processing', updated_at = now() - interval '2 hours'");
    await stick();
    expect(await recovery.runOnce()).toMatchObject({ requeued: 1 });
    for (const outcome of ['requeued', 'requeued', 'failed']) {
      await stick();
      expect(Object.values(await reset(pool, ", workflow => 'pages'"))).toEqual([outcome]);
    }
    const { rows } = await pool.query('SELECT status::text, error FROM pages');
    expect(rows).toEqual([{ status: 'Failed', error: 'Stuck in Processing state after 3 resets' }]);
    const { rows: resets } = await pool.query('SELECT resets FROM smart_router.resets ORDER BY id');
    expect(resets.map((row) => row.resets)).toEqual([0, 1, 2, 3]);
    expect((await pool.query('SELECT FROM smart_router.claims')).rowCount).toBe(0);
  });

  it('a record held for a person stays held', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 1);
    await pool.query(install);
    await pool.query("UPDATE pages SET status = 'Processing', updated_at = now() - interval '2 hours'");
    const workflow = pagesWorkflow({ stuck: { policy: 'hold' } });
    expect(await createRecovery({ pool, workflows: [workflow], log: silentLogger }).runOnce()).toMatchObject({
      held: 1,
    });
    expect(await reset(pool, ", workflow => 'pages'")).toEqual({});
    expect(await reset(pool)).toEqual({});
  });

  it('does nothing while the router’s own sweep runs', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 1);
    await pool.query(install);
    await pool.query("INSERT INTO smart_router.workflows (name) VALUES ('pages')");
    await pool.query("UPDATE pages SET status = 'Processing', updated_at = now() - interval '2 hours'");
    const sweep = await postgres.client();
    await sweep.query('BEGIN');
    for (const sweeping of ['fast', 'slow']) {
      await sweep.query(
        `SELECT pg_advisory_xact_lock(hashtext('smart_router.${sweeping}_sweep'), id) FROM smart_router.workflows`,
      );
      expect(await reset(pool, ", workflow => 'pages'")).toEqual({});
      await sweep.query('COMMIT');
      await sweep.query('BEGIN');
    }
    // The names are those of the router.
    expect(readText('src/records/live-table.ts')).toMatch(/smart_router\.\$\{[^}]*'fast' : 'slow'\}_sweep/);
    expect(Object.values(await reset(pool, ", workflow => 'pages'"))).toEqual(['requeued']);
    await expect(reset(pool, ", workflow => 'pagse'")).rejects.toThrow('unknown workflow pagse');
  });
});

describeBothPostgres('the statement for pg_cron', (postgres) => {
  it('is accepted by cron.schedule, and its commands clean both workflows', async () => {
    const pool = postgres.pool();
    await applyMigrations(pool, 'workflows', migrations);
    await pool.query(install);
    // pg_cron's own function of this name: schedule(job_name text, schedule text, command text) returns bigint.
    await pool.query(`
      CREATE SCHEMA cron; CREATE TABLE cron.job (jobname text PRIMARY KEY, schedule text, command text);
      CREATE FUNCTION cron.schedule(job_name text, schedule text, command text) RETURNS bigint LANGUAGE sql AS
        'INSERT INTO cron.job VALUES ($1, $2, $3); SELECT 1::bigint'`);
    await pool.query(readText('deploy/postgres/pg_cron.sql'));
    await pool.query(`
      INSERT INTO sitemap_files (domain, url, sitemap_import_status, updated_at) VALUES ('d', 'u', 'Processing', now() - interval '2 hours');
      INSERT INTO pages (url, page_processing_status, updated_at) VALUES ('u', 'Processing', now() - interval '2 hours')`);
    const { rows } = await pool.query('SELECT schedule, command FROM cron.job');
    expect(rows.map(({ schedule }) => schedule)).toEqual(['*/15 * * * *', '*/15 * * * *']);
    for (const { command } of rows) expect((await pool.query(command)).rows).toEqual([{ count: '1' }]);
    const { rows: after } = await pool.query(`
      SELECT sitemap_import_status::text AS status, sitemap_import_error AS error FROM sitemap_files
      UNION ALL SELECT page_processing_status::text, page_processing_error FROM pages`);
    const auto = { status: 'Queued', error: 'Auto-reset from stuck Processing state' };
    expect(after).toEqual([auto, auto]);
  });
});

const psql = findOnPath('psql');
const describePsql = psql ? describe : describe.skip;

describePsql('the cron script (needs psql)', () => {
  describeBothPostgres('zombie-cleanup.sh', (postgres) => {
    const script = (args: string[], env: Record<string, string> = {}) =>
      run(`${root}deploy/postgres/zombie-cleanup.sh`, args, {
        env: {
          PATH: process.env.PATH ?? '',
          DATABASE_URL: postgres.url,
          PROCESSING: 'Processing',
          QUEUED: 'Queued',
          ...env,
        },
      });

    it('resets everything in batches, prints how many, and then nothing', async () => {
      const pool = postgres.pool();
      await plainTable(pool);
      await stuckRows(pool, 1, 25);
      const dry = await script(['--dry-run', 'pages', 'status', 'error']);
      expect(dry.stdout).toBe('pages: 25 stuck records would be reset (at most 1000 are checked)\n');
      expect(await statuses(pool)).toEqual({ Processing: 25 });
      const { stdout } = await script(['pages', 'status', 'error'], { ZOMBIE_BATCH: '10' });
      expect(stdout).toBe('pages: reset 25 stuck records\n');
      expect(await statuses(pool)).toEqual({ Queued: 25 });
      expect((await script(['pages', 'status', 'error'])).stdout).toBe('');
    });

    it('takes the threshold and the columns from the environment', async () => {
      const pool = postgres.pool();
      await plainTable(pool, ', touched timestamp');
      await pool.query(
        "INSERT INTO pages (id, status, touched) VALUES (1, 'Processing', (now() AT TIME ZONE 'UTC') - interval '10 minutes')",
      );
      const env = { TOUCHED_COLUMN: 'touched', ZOMBIE_STUCK_THRESHOLD_MINUTES: '11' };
      expect((await script(['pages', 'status'], env)).stdout).toBe('');
      const sooner = await script(['pages', 'status'], { ...env, ZOMBIE_STUCK_THRESHOLD_MINUTES: '9' });
      expect(sooner.stdout).toBe('pages: reset 1 stuck records\n');
    });

    it('takes the values of the status from the environment, and names missing ones', async () => {
      const pool = postgres.pool();
      await plainTable(pool);
      await stuckRows(pool, 1, 2, '2 hours', 'busy');
      await expect(script(['pages', 'status'], { PROCESSING: '', QUEUED: '' })).rejects.toMatchObject({
        stderr: expect.stringContaining('name them all'),
      });
      const { stdout } = await script(['pages', 'status'], { PROCESSING: 'busy', QUEUED: "it's new" });
      expect(stdout).toBe('pages: reset 2 stuck records\n');
      expect(await statuses(pool)).toEqual({ "it's new": 2 });
    });

    it('fails for a missing table, and never reads names as SQL', async () => {
      const pool = postgres.pool();
      await plainTable(pool);
      await expect(script(['nope', 'status'])).rejects.toMatchObject({
        code: 3,
        stderr: expect.stringContaining('relation "nope" does not exist'),
      });
      await expect(script(["pages'; DROP TABLE pages; --", 'status'])).rejects.toMatchObject({ code: 3 });
      expect(await statuses(pool)).toEqual({});
      await expect(script(['pages'])).rejects.toMatchObject({ code: 2 });
    });
  });
});

describeBothPostgres('the trigger', (postgres) => {
  const attach = readText('deploy/postgres/trigger.sql');

  async function withTrigger() {
    const pool = postgres.pool();
    await applyMigrations(pool, 'workflows', migrations);
    await pool.query(install);
    await pool.query(attach);
    // The first touch has been; the next look is due.
    await pool.query("INSERT INTO pages (url, page_processing_status) VALUES ('first', 'Completed')");
    await pool.query("UPDATE smart_router.touches SET at = now() - interval '2 minutes'");
    await pool.query('ALTER TABLE pages DISABLE TRIGGER reset_stuck');
    await pool.query(
      "INSERT INTO pages (url, page_processing_status, updated_at) SELECT 'stuck ' || i, 'Processing', now() - interval '2 hours' FROM generate_series(1, 150) AS i",
    );
    await pool.query('ALTER TABLE pages ENABLE TRIGGER reset_stuck');
    return pool;
  }
  const queued = async (pool: Pool) =>
    (await pool.query("SELECT FROM pages WHERE page_processing_status = 'Queued'")).rowCount;
  const touch = (pool: Pick<Pool, 'query'>) =>
    pool.query("UPDATE pages SET title = 'touched' WHERE url = 'first'");

  it('a write to the table resets up to a hundred stuck rows, once a minute', async () => {
    const pool = await withTrigger();
    await touch(pool);
    expect(await queued(pool)).toBe(100);
    await touch(pool);
    expect(await queued(pool)).toBe(100);
    await pool.query("UPDATE smart_router.touches SET at = now() - interval '2 minutes'");
    await touch(pool);
    expect(await queued(pool)).toBe(150);
  });

  it('two writers do not wait for each other', async () => {
    const pool = await withTrigger();
    const other = await postgres.client();
    await other.query('BEGIN');
    await touch(other);
    await pool.query("INSERT INTO pages (url) VALUES ('later')");
    await other.query('ROLLBACK');
    expect(await queued(pool)).toBe(1);
  });

  it('a write never fails because of it', async () => {
    const pool = await withTrigger();
    await pool.query('ALTER TABLE pages RENAME updated_at TO changed_at');
    await touch(pool);
    expect((await pool.query("SELECT FROM pages WHERE title = 'touched'")).rowCount).toBe(1);
    expect(await queued(pool)).toBe(0);
  });
});
