/** `smart-router records ...` on a real database, without any router. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Pool } from 'pg';
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { describeOnePostgres } from '../support/postgres.js';
import { pgBouncer, pgBouncerAvailable } from '../support/postgres-bouncer.js';
import { addJob, jobOf, jobsTable, recordsModule } from '../support/records-module.js';
import { documentOf, processRunner, useBinary } from './support.js';

const binary = useBinary();
const bare = processRunner(binary, () => 'http://127.0.0.1:1');

describeOnePostgres('records', (postgres) => {
  let pool: Pool;
  let module: string;
  beforeEach(async () => {
    pool = postgres.pool();
    await jobsTable(pool);
    module = recordsModule();
  });
  const run = (args: string, env: NodeJS.ProcessEnv = {}) =>
    bare(args, { env: { DATABASE_URL: postgres.url, RECORDS_MODULE: module, ...env } });
  /** A claim of a worker whose last heartbeat is this old. */
  const claim = (id: string, heartbeatAgo: string) =>
    pool.query(
      `WITH w AS (INSERT INTO smart_router.workers (process, host, pid, heartbeat_at)
         VALUES (gen_random_uuid(), 'worker-1', 7, now() - $2::interval) RETURNING id)
       INSERT INTO smart_router.claims (workflow, record_id, token, worker, claimed_at, timeout_ms, trace)
       SELECT f.id, $1, nextval('smart_router.tokens'), w.id, now() - interval '70 s', 300000, 'doing it'
       FROM w, smart_router.workflows AS f`,
      [id, heartbeatAgo],
    );

  it('migrate creates missing tables once', async () => {
    const { code, stdout, stderr } = await run('records migrate');
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout).toMatch(/^applied 001_claims$/m);
    expect(await run('records migrate')).toMatchObject({ code: 0, stdout: 'up to date\n' });
    expect(documentOf(await run('records migrate --json'))).toEqual({ success: true, applied: [], kept: [] });
  });

  it('migrate creates the tables of the shipped workflows only on request, and keeps one that exists', async () => {
    await pool.query('CREATE TABLE pages (id uuid PRIMARY KEY)');
    await run('records migrate', { RECORDS_WORKFLOWS: 'wf6,wf7' });
    const found = await pool.query("SELECT to_regclass('sitemap_files') AS found");
    expect(found.rows).toEqual([{ found: null }]);
    const { stdout, stderr } = await run('records migrate --with-workflows');
    expect(stdout).toMatch(/^applied 001_sitemap_files$/m);
    expect(stdout).toContain('kept    pages: it existed already\n');
    // Both shipped workflows write to that table, so neither can run on it.
    const isOther = 'This is another table of the same name, and it is never changed: rename it, or take';
    expect(stderr.match(/^warning: workflow .*$/gm)).toEqual([
      expect.stringMatching(
        `^warning: workflow sitemap-import: column .* does not exist. ${isOther} sitemap-import out of RECORDS_WORKFLOWS.$`,
      ),
      expect.stringMatching(
        `^warning: workflow page-curation: column .*; column .* does not exist in "pages". ${isOther} page-curation out`,
      ),
    ]);
    expect((await pool.query('SELECT * FROM pages')).fields.map(({ name }) => name)).toEqual(['id']);
  });

  it('status shows the numbers of every workflow', async () => {
    await run('records migrate');
    await addJob(pool, 'ok', { ago: '5 m' });
    await addJob(pool, 'ok', { status: 'Failed' });
    await addJob(pool, 'ok', { status: 'Processing' });
    await addJob(pool, 'ok', { status: 'Processing', ago: '3 h' });
    const { code, stdout, stderr } = await run('records status');
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout).toMatch(
      /^WORKFLOW +QUEUED +PROCESSING +STUCK +HELD +FAILED +OLDEST QUEUED +OLDEST STUCK$/m,
    );
    expect(stdout).toMatch(/^jobs +1 +2 +1 +0 +1 +5m \d+s +3h 0m$/m);
    expect(documentOf(await run('records status --json'))).toMatchObject({
      success: true,
      workflows: [{ name: 'jobs', queued: 1, processing: 2, stuck: 1, held: 0, failed: 1 }],
    });
  });

  it('stuck shows age, reason, worker and last note, the oldest first', async () => {
    await run('records status');
    expect(await run('records stuck')).toMatchObject({ code: 2 });
    await run('records migrate');
    expect(await run('records stuck')).toMatchObject({ code: 0, stdout: 'no stuck records\n' });
    const old = await addJob(pool, 'ok', { status: 'Processing', ago: '3 h' });
    const dead = await addJob(pool, 'ok', { status: 'Processing' });
    await claim(dead, '1 min');
    const { stdout } = await run('records stuck jobs');
    const rows = stdout.split('\n').slice(2, 4);
    expect(rows[0]).toMatch(new RegExp(`^${old} +3h 0m +unclaimed +queued +0 +- +-$`));
    expect(rows[1]).toMatch(new RegExp(`^${dead} +1m \\d+s +dead worker +queued +0 +worker-1 7 +doing it$`));
    expect(stdout).toContain('\n2 records\n');
    expect((await run('records stuck --limit 1')).stdout).toContain('\n1 of 2 records shown\n');
    expect(documentOf(await run('records stuck --json'))).toMatchObject({
      workflows: [{ workflow: 'jobs', total: 2, records: [{ id: old }, { id: dead, trace: 'doing it' }] }],
    });
  });

  it('report lists recovered records of a week or a given time, as Markdown or JSON', async () => {
    expect(await run('records report')).toMatchObject({ code: 2 });
    await run('records migrate');
    await pool.query(`
      WITH f AS (INSERT INTO smart_router.workflows (name) VALUES ('jobs') RETURNING id)
      INSERT INTO smart_router.resets (workflow, record_id, at, reason, outcome, resets, stuck_seconds, trace)
      SELECT f.id, r.id, r.at::timestamptz, 'dead_worker', 'requeued', 1, 70, 'doing it'
      FROM f, (VALUES ('1', now() - interval '1 day'), ('2', '2026-01-05T00:00Z'), ('3', '2026-01-06T08:30Z')) AS r (id, at)`);
    const { code, stdout, stderr } = await run('records report');
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout).toMatch(/^# Stuck records, \d{4}-\d\d-\d\d to \d{4}-\d\d-\d\d\n/);
    expect(stdout).toMatch(/^\| jobs \| 1 \| 0 \| 1 \|/m);
    const records = async (options: string) =>
      documentOf(await run(`records report ${options} --json`)) as { records: number; since: string };
    expect(await records('--until 2026-01-12')).toMatchObject({ success: true, records: 2, byHand: 0 });
    expect(await records('--since 2026-01-06T10:30+02:00 --until 2026-01-07')).toMatchObject({ records: 1 });
    expect(await records('--since 2026-01-06T08:30:01 --until 2026-01-07')).toMatchObject({
      records: 0,
      since: '2026-01-06T08:30:01.000Z',
    });
    expect(await run('records report --since 2026-01-12 --until 2026-01-05')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('--since must be before --until'),
    });
    for (const time of ['yesterday', '2026-02-30', '2026-01-05T25:00', '7'])
      expect(await run(`records report --until ${time}`)).toMatchObject({
        code: 2,
        stderr: expect.stringContaining('It must be a time like 2026-11-09'),
      });
  });

  it('reset is a dry run until --apply, and skips records of live workers', async () => {
    await run('records migrate');
    await run('records status');
    const old = await addJob(pool, 'ok', { status: 'Processing', ago: '3 h' });
    const live = await addJob(pool, 'ok', { status: 'Processing', ago: '3 h' });
    await claim(live, '1 s');
    const dry = await run('records reset jobs');
    expect(dry.code).toBe(0);
    expect(dry.stdout).toContain('Dry run: 1 requeued. Nothing was changed; --apply does it.\n');
    expect((await jobOf(pool, old)).status).toBe('Processing');
    const done = await run('records reset jobs --apply');
    expect(done.code).toBe(0);
    expect(done.stdout).toContain('Done: 1 requeued.\n');
    expect((await jobOf(pool, old)).status).toBe('Queued');
    expect((await jobOf(pool, live)).status).toBe('Processing');
    expect(await run('records reset jobs --apply')).toMatchObject({ stdout: 'no stuck records\n' });
  });

  it('reset --ids exits 5 if one was skipped, and 0 in a dry run', async () => {
    await run('records migrate');
    await run('records status');
    const fresh = await addJob(pool, 'ok', { status: 'Processing' });
    const live = await addJob(pool, 'ok', { status: 'Processing' });
    await claim(live, '1 s');
    const ids = `${fresh},${live}`;
    const dry = await run(`records reset jobs --ids ${ids}`);
    expect(dry.code).toBe(0);
    expect(dry.stdout).toContain('1 requeued, 1 skipped');
    const done = await run(`records reset jobs --ids ${ids} --apply`);
    expect(done.code).toBe(5);
    expect(done.stderr).toMatch(/^smart-router: 1 of 2 records skipped$/m);
    expect(done.stdout).toMatch(new RegExp(`^${live} .*live claim +skipped`, 'm'));
    expect((await jobOf(pool, fresh)).status).toBe('Queued');
    expect((await jobOf(pool, live)).status).toBe('Processing');
    expect(documentOf(await run(`records reset jobs --ids ${live} --apply --json`))).toMatchObject({
      success: false,
      code: 'records_skipped',
      skipped: 1,
      records: [{ id: live, outcome: 'skipped', reason: 'live_claim' }],
    });
  });

  it('a dry run counts all records, and lists a thousand', async () => {
    await run('records migrate');
    await run('records status');
    await pool.query(`
      INSERT INTO jobs (what, status, updated_at)
      SELECT 'ok', 'Processing', now() - interval '2 hours' FROM generate_series(1, 2500)`);
    // Two are past their resets, one waits for a person already.
    await pool.query(`
      INSERT INTO smart_router.claims (workflow, record_id, resets, held_at)
      SELECT f.id, j.id::text, 3, CASE WHEN j.id = 3 THEN now() END
      FROM smart_router.workflows AS f, jobs AS j WHERE j.id <= 3`);
    const counts = { requeued: 2497, failed: 2, held: 1, skipped: 0, total: 2500 };
    const dry = documentOf(await run('records reset jobs --json')) as { records: unknown[] };
    expect(dry).toMatchObject({ ...counts, dry_run: true });
    expect(dry.records).toHaveLength(1000);
    const said = '2497 requeued, 2 failed, 1 held for a person (name them with --ids)';
    const { stdout } = await run('records reset jobs');
    expect(stdout).toContain('1000 of 2500 records shown\n');
    expect(stdout).toContain(`Dry run: ${said}. Nothing was changed; --apply does it.\n`);
    expect((await run('records status')).stdout).toMatch(/^jobs +0 +2500 +2500 +1 +0 /m);
    const done = documentOf(await run('records reset jobs --apply --json')) as { records: unknown[] };
    expect(done).toMatchObject({ ...counts, dry_run: false });
    expect(done.records).toHaveLength(1000);
    const { rows } = await pool.query('SELECT status, count(*)::int AS n FROM jobs GROUP BY 1 ORDER BY 1');
    expect(rows).toEqual([
      { status: 'Failed', n: 2 },
      { status: 'Processing', n: 1 },
      { status: 'Queued', n: 2497 },
    ]);
    expect((await run('records reset jobs --apply')).stdout).toContain(
      'Done: 0 requeued, 1 held for a person',
    );
    // By id there are never more than are listed.
    const ids = Array.from({ length: 1001 }, (_, i) => i + 1).join(',');
    expect(await run(`records retry jobs --ids ${ids}`)).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('ids must name 1 to 1000 records, got 1001'),
    });
  });

  it('reset leaves what a living worker has held for too long, unless it is named', async () => {
    await run('records migrate');
    await run('records status');
    const late = await addJob(pool, 'ok', { status: 'Processing' });
    await claim(late, '1 s');
    await pool.query("UPDATE smart_router.claims SET claimed_at = now() - interval '10 minutes'");
    expect((await run('records status')).stdout).toMatch(/^jobs +0 +1 +1 /m);
    const left = '1 skipped (past the timeout, but the worker is alive: name them with --ids)';
    const dry = await run('records reset jobs');
    expect(dry.stdout).toContain(`Dry run: 0 requeued, ${left}.`);
    expect(dry.stdout).toMatch(new RegExp(`^${late} .*live claim +skipped`, 'm'));
    const done = await run('records reset jobs --apply');
    expect(done.code).toBe(0);
    expect(done.stdout).toContain(`Done: 0 requeued, ${left}.`);
    expect((await jobOf(pool, late)).status).toBe('Processing');
    expect((await run(`records reset jobs --ids ${late}`)).stdout).toContain('Dry run: 1 requeued.');
    expect(await run(`records reset jobs --ids ${late} --apply`)).toMatchObject({ code: 0 });
    expect((await jobOf(pool, late)).status).toBe('Queued');
  });

  it('failed lists records with error and time, the newest first', async () => {
    await run('records migrate');
    expect(await run('records failed')).toMatchObject({ code: 0, stdout: 'no failed records\n' });
    const old = await addJob(pool, 'ok', { status: 'Failed', ago: '3 h' });
    const recent = await addJob(pool, 'ok', { status: 'Failed', ago: '5 m' });
    await pool.query("UPDATE jobs SET error = E'no luck\\nat all' WHERE id = $1", [recent]);
    const { code, stdout, stderr } = await run('records failed jobs');
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout).toMatch(
      new RegExp(
        `^jobs\\nRECORD +FAILED +ERROR\\n${recent} +5m \\d+s ago +no luck at all\\n${old} +3h 0m ago +-\\n\\n2 records\\n$`,
      ),
    );
    expect((await run('records failed --limit 1')).stdout).toContain('\n1 of 2 records shown\n');
    expect(documentOf(await run('records failed --json --limit 1'))).toEqual({
      success: true,
      workflows: [
        {
          workflow: 'jobs',
          total: 2,
          records: [
            {
              ...{ id: recent, error: 'no luck\nat all' },
              ...{ failed_seconds: expect.any(Number), retry_seconds: null },
            },
          ],
        },
      ],
    });
    expect(await run('records failed nothing')).toMatchObject({ code: 4 });
  });

  it('retry --all queues all failed records again, in batches, after a dry run that counts them', async () => {
    await run('records migrate');
    await pool.query(
      `INSERT INTO jobs (what, status, updated_at)
       SELECT 'ok', 'Failed', CASE WHEN n % 3 > 0 THEN now() - interval '1 h' END FROM generate_series(1, 2100) AS n`,
    );
    const held = await addJob(pool, 'ok', { status: 'Failed', ago: '2 h' });
    const done = await addJob(pool, 'ok', { status: 'Completed' });
    await run('records status');
    await claim(held, '1 s');
    const count = async (status: string) =>
      Number((await pool.query('SELECT count(*) FROM jobs WHERE status = $1', [status])).rows[0]?.count);
    const dry = await run('records retry jobs --all');
    expect(dry.stdout).toMatch(/^Dry run: 210[01] requeued.*--apply does it\.$/m);
    expect(await count('Failed')).toBe(2101);
    const applied = await run('records retry jobs --all --apply');
    expect(applied).toMatchObject({ code: 0, stderr: '' });
    expect(applied.stdout).toMatch(/^Done: 2100 requeued, 1 skipped\.$/m);
    expect([
      await count('Queued'),
      (await jobOf(pool, held)).status,
      (await jobOf(pool, done)).status,
    ]).toEqual([2100, 'Failed', 'Completed']);
    expect(await run('records retry jobs --all --ids 1')).toMatchObject({ code: 2 });
  });

  it('status without RECORDS_MODULE says what to do about the missing tables', async () => {
    await run('records migrate');
    const shipped = { RECORDS_MODULE: '', RECORDS_WORKFLOWS: 'wf6,wf7' };
    const { code, stderr } = await run('records status', shipped);
    expect(code).toBe(2);
    expect(stderr).toContain('table "sitemap_files" does not exist');
    expect(stderr).toContain('set RECORDS_MODULE to the file that exports their workflows');
    await pool.query('CREATE TABLE pages (id integer PRIMARY KEY)');
    await run('records migrate --with-workflows');
    const own = await run('records status', shipped);
    expect(own).toMatchObject({ code: 0, stderr: expect.stringContaining('set RECORDS_MODULE to the file') });
    const none = await run('records status', { RECORDS_MODULE: '' });
    expect(none.stdout).toMatch(/^no workflows\. .*RECORDS_MODULE/);
  });

  it('retry queues failed records again, and needs --ids or --all', async () => {
    await run('records migrate');
    const id = await addJob(pool, 'ok', { status: 'Failed' });
    expect(await run('records retry jobs')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('`smart-router records failed jobs` lists them'),
    });
    expect((await run(`records retry jobs --ids ${id}`)).stdout).toContain('Dry run: 1 requeued.');
    expect((await jobOf(pool, id)).status).toBe('Failed');
    expect(await run(`records retry jobs --ids ${id} --apply`)).toMatchObject({ code: 0 });
    expect((await jobOf(pool, id)).status).toBe('Queued');
  });

  it('inspect shows the times and advises the missing index', async () => {
    await run('records migrate');
    const { stdout: first } = await run('records inspect jobs');
    expect(first).toMatch(/^timeout +5m$/m);
    expect(first).toMatch(/^table +"jobs", status "status"$/m);
    await pool.query('DROP INDEX jobs_status_updated_at_idx');
    const { code, stdout } = await run('records inspect jobs');
    expect(code).toBe(0);
    expect(stdout).toMatch(
      /^advice +no index finds rows in 'Queued': .*CREATE INDEX CONCURRENTLY ON "jobs" \("updated_at"\) WHERE "status" = 'Queued'/m,
    );
    expect(documentOf(await run('records inspect jobs --json'))).toMatchObject({
      success: true,
      name: 'jobs',
      timeout_ms: 300_000,
      advice: [expect.stringContaining('CREATE INDEX')],
    });
  });

  it('names the GRANT that a role lacks', async () => {
    await run('records migrate');
    const id = await addJob(pool, 'ok', { status: 'Processing', ago: '3 h' });
    const role = `few_${process.pid}`;
    await pool.query(`CREATE ROLE ${role} LOGIN PASSWORD 'pass'`);
    postgres.onEnd(() => pool.query(`DROP OWNED BY ${role}; DROP ROLE ${role}`));
    const url = new URL(postgres.url);
    url.username = role;
    url.password = 'pass';
    const env = { DATABASE_URL: url.href };
    const grant = 'GRANT USAGE ON SCHEMA smart_router TO <role>';
    expect(await run('records status', env)).toMatchObject({
      code: 6,
      stderr: expect.stringContaining(`permission denied for schema smart_router: ${grant}`),
    });
    await pool.query(`
      GRANT USAGE ON SCHEMA smart_router TO ${role};
      GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA smart_router TO ${role};
      GRANT USAGE ON ALL SEQUENCES IN SCHEMA smart_router TO ${role};
      GRANT SELECT ON jobs TO ${role}`);
    // Enough to look.
    expect((await run('records reset jobs', env)).stdout).toContain('Dry run: 1 requeued.');
    expect(await run('records reset jobs --apply', env)).toMatchObject({
      code: 2,
      stderr: expect.stringContaining(
        `smart-router: workflow jobs: role ${role} may not UPDATE "jobs": GRANT UPDATE ON "jobs" TO ${role}\n`,
      ),
    });
    expect(await run(`records reset jobs --ids ${id} --apply`, env)).toMatchObject({
      code: 6,
      stderr: expect.stringContaining(
        'permission denied for table jobs: GRANT SELECT, UPDATE ON jobs TO <role>',
      ),
    });
  });

  it('names the command that shows where a module has a syntax error', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'records-module-'));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const path = join(folder, 'broken.mjs');
    writeFileSync(path, 'export const workflows = [{');
    expect(await run('records status', { RECORDS_MODULE: path })).toMatchObject({
      code: 2,
      stderr: `smart-router: RECORDS_MODULE ${path}: cannot be loaded: Unexpected end of input; \`node ${path}\` shows where\n`,
    });
  });

  it('exits 4 for a workflow that is not there, and 2 for an id that cannot be', async () => {
    await run('records migrate');
    for (const command of ['stuck', 'reset', 'inspect'])
      expect(await run(`records ${command} nothing`)).toMatchObject({
        code: 4,
        stderr: 'smart-router: there is no workflow "nothing": the workflows are jobs\n',
      });
    expect(await run('records reset jobs --ids x')).toMatchObject({ code: 2 });
  });

  it('status warns about an unusable table, and shows the others', async () => {
    await run('records migrate --with-workflows');
    await pool.query('DROP TABLE jobs');
    const { code, stdout, stderr } = await run('records status', { RECORDS_WORKFLOWS: 'wf6' });
    expect(code).toBe(0);
    expect(stdout).toMatch(/^sitemap-import +0 +0 +0 +0 +0 +- +-$/m);
    expect(stderr).toContain('warning: workflow jobs: table "jobs" does not exist');
  });

  describe('doctor', () => {
    const doctor = async (env: NodeJS.ProcessEnv = {}) => {
      const more = { POD_SOURCE: 'static', STATIC_PODS: 'a', REDIS_URL: 'embedded', ...env };
      const { checks } = documentOf(await run('doctor --json', more)) as {
        checks: { name: string; status: string; message: string; hint?: string }[];
      };
      return new Map(checks.map((check) => [check.name, check]));
    };

    it('finds the database, its version, its schema, the tables and the wake-up', async () => {
      const before = await doctor();
      expect(before.get('database schema')).toMatchObject({
        status: 'warn',
        message: expect.stringContaining('001_claims'),
      });
      expect(before.get('workflows')?.status).toBe('skip');
      await run('records migrate');
      const after = await doctor();
      expect(after.get('database')).toMatchObject({ status: 'ok' });
      expect(after.get('database')?.message).not.toContain(new URL(postgres.url).password);
      for (const name of ['database version', 'database schema', 'workflow jobs', 'database wake-up'])
        expect([name, after.get(name)?.status]).toEqual([name, 'ok']);
      // It only looked.
      expect((await pool.query('SELECT FROM smart_router.workflows')).rowCount).toBe(0);
    });

    it('says that nothing is created where no workflow is set', async () => {
      const found = await doctor({ RECORDS_MODULE: '' });
      expect(found.get('workflows')).toMatchObject({
        status: 'warn',
        message: 'no workflow is set: the router creates nothing in this database',
        hint: expect.stringContaining('RECORDS_MODULE'),
      });
      expect(found.has('database schema')).toBe(false);
    });

    it('fails a shipped workflow that serve turns off, in one line with what to do', async () => {
      await run('records migrate');
      const shipped = { RECORDS_MODULE: '', RECORDS_WORKFLOWS: 'wf6,wf7' };
      expect((await doctor(shipped)).get('workflow sitemap-import')).toMatchObject({
        message: 'table "sitemap_files" does not exist',
        hint: expect.stringContaining('records migrate --with-workflows'),
      });
      await pool.query('CREATE TABLE pages (id uuid PRIMARY KEY)');
      await run('records migrate --with-workflows');
      const found = await doctor(shipped);
      // Its own table fits, but it also writes the pages that it finds.
      expect(found.get('workflow sitemap-import')).toMatchObject({
        status: 'fail',
        message: expect.stringMatching(/^column .* of relation "pages" does not exist$/),
        hint: expect.stringContaining('another table of the same name'),
      });
      expect(found.get('workflow page-curation')?.message.match(/does not exist in "pages"/g)).toHaveLength(
        3,
      );
      expect((await pool.query('SELECT FROM smart_router.workflows')).rowCount).toBe(0);
    });

    it('reports unusable tables, missing indexes, and a user without CREATE', async () => {
      await pool.query('DROP INDEX jobs_status_updated_at_idx');
      const role = `records_${process.pid}`;
      await pool.query(`CREATE ROLE ${role} LOGIN PASSWORD 'pass'`);
      postgres.onEnd(() => pool.query(`DROP OWNED BY ${role}; DROP ROLE ${role}`));
      const url = new URL(postgres.url);
      url.username = role;
      url.password = 'pass';
      expect((await doctor({ DATABASE_URL: url.href })).get('database schema')).toMatchObject({
        status: 'fail',
        hint: expect.stringContaining(`more rights than ${role}`),
      });
      await run('records migrate');
      expect((await doctor()).get('workflow jobs')).toMatchObject({
        status: 'warn',
        message: expect.stringContaining('CREATE INDEX'),
      });
      await pool.query('ALTER TABLE jobs DROP COLUMN error');
      expect((await doctor()).get('workflow jobs')).toMatchObject({
        status: 'fail',
        message: 'column "error" (error) does not exist in "jobs"',
      });
    });

    it('fails for an unreachable database, and for a missing module', async () => {
      await postgres.stop();
      expect((await doctor()).get('database')).toMatchObject({
        status: 'fail',
        message: expect.stringMatching(/^cannot use postgres:\/\/postgres:\*+@.*: connection refused/),
      });
      expect((await doctor({ RECORDS_MODULE: 'nowhere.mjs' })).get('workflows')).toMatchObject({
        status: 'fail',
        message: 'RECORDS_MODULE nowhere.mjs: no such file',
      });
    });

    const bouncer = pgBouncerAvailable();
    const through = bouncer === true ? it : it.skip;
    through(
      `knows PgBouncer by the number of its session${bouncer === true ? '' : ` [${bouncer}]`}`,
      async () => {
        await run('records migrate');
        const { url } = await pgBouncer(postgres);
        const checks = await doctor({ DATABASE_URL: url });
        expect(checks.get('database wake-up')).toMatchObject({
          status: 'warn',
          message: expect.stringContaining('PgBouncer'),
        });
        expect(checks.get('workflow jobs')?.status).toBe('ok');
      },
    );
  });

  it('exits 6 for an unreachable database, without printing its password', async () => {
    await postgres.stop();
    const { code, stderr } = await run('records status');
    expect(code).toBe(6);
    expect(stderr).toMatch(/^smart-router: cannot use the database: .* It is at postgres:\/\/postgres:\*+@/);
    expect(documentOf(await run('records status --json'))).toMatchObject({
      success: false,
      code: 'database_unavailable',
    });
  });
});

describe('records without a database to go to', () => {
  it.each([
    [
      {},
      /^smart-router: DATABASE_URL is not set: it names the database with the records; and cannot reach the router at http:\/\/127\.0\.0\.1:1: /,
    ],
    [
      { DATABASE_URL: 'embedded' },
      /^smart-router: DATABASE_URL=embedded is a database inside a router; and cannot reach the router at /,
    ],
    [{ DATABASE_URL: 'mysql://x/y' }, /^smart-router: DATABASE_URL must be embedded, or a URL/],
    [
      { DATABASE_URL: 'postgres://127.0.0.1:1/x', RECORDS_MODULE: 'nowhere.mjs' },
      'smart-router: RECORDS_MODULE nowhere.mjs: no such file\n',
    ],
  ])('exits 2 with %o', async (env, message) => {
    // Other invalid variables do not matter here.
    const { code, stderr } = await bare('records status', { env: { ...env, HTTP_PORT: 'x' } });
    expect(code).toBe(2);
    expect(stderr).toMatch(message);
  });
});
