/** `smart-router records ...` on a real database, without any router. */
import type { Pool } from 'pg';
import { beforeEach, describe, expect, it } from 'vitest';
import { describeOnePostgres } from '../support/postgres.js';
import { pgBouncer, pgBouncerAvailable } from '../support/postgres-bouncer.js';
import { addJob, jobOf, jobsTable, recordsModule } from '../support/records-module.js';
import { documentOf, runner, useBinary } from './support.js';

const binary = useBinary();
const bare = runner(binary, () => 'http://127.0.0.1:1');

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
  /** Somebody works on it, or did: the worker's last heartbeat was so long ago. */
  const claim = (id: string, heartbeatAgo: string) =>
    pool.query(
      `WITH w AS (INSERT INTO smart_router.workers (process, host, pid, heartbeat_at)
         VALUES (gen_random_uuid(), 'worker-1', 7, now() - $2::interval) RETURNING id)
       INSERT INTO smart_router.claims (workflow, record_id, token, worker, claimed_at, timeout_ms, trace)
       SELECT f.id, $1, nextval('smart_router.tokens'), w.id, now() - interval '70 s', 300000, 'doing it'
       FROM w, smart_router.workflows AS f`,
      [id, heartbeatAgo],
    );

  it('migrate creates what is missing, once', async () => {
    const { code, stdout, stderr } = await run('records migrate');
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout).toMatch(/^applied 001_claims$/m);
    expect(await run('records migrate')).toMatchObject({ code: 0, stdout: 'up to date\n' });
    expect(documentOf(await run('records migrate --json'))).toEqual({ success: true, applied: [], kept: [] });
  });

  it('migrate makes the tables of the shipped workflows, and keeps a table that was there', async () => {
    await pool.query('CREATE TABLE pages (id uuid PRIMARY KEY)');
    const { stdout } = await run('records migrate', { RECORDS_WORKFLOWS: 'wf6,wf7', RECORDS_MODULE: '' });
    expect(stdout).toMatch(/^applied 001_sitemap_files$/m);
    expect(stdout).toContain('kept    pages: it was there before\n');
    expect((await pool.query('SELECT * FROM pages')).fields.map(({ name }) => name)).toEqual(['id']);
  });

  it('list shows the numbers of every workflow', async () => {
    await run('records migrate');
    await addJob(pool, 'ok', { ago: '5 m' });
    await addJob(pool, 'ok', { status: 'Failed' });
    await addJob(pool, 'ok', { status: 'Processing' });
    await addJob(pool, 'ok', { status: 'Processing', ago: '3 h' });
    const { code, stdout, stderr } = await run('records list');
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout).toMatch(/^WORKFLOW +QUEUED +PROCESSING +STUCK +FAILED +OLDEST QUEUED +OLDEST STUCK$/m);
    expect(stdout).toMatch(/^jobs +1 +2 +1 +1 +5m \d+s +3h 0m$/m);
    expect(documentOf(await run('records list --json'))).toMatchObject({
      success: true,
      workflows: [{ name: 'jobs', queued: 1, processing: 2, stuck: 1, failed: 1 }],
    });
  });

  it('stuck shows age, reason, worker and what was being done, the oldest first', async () => {
    await run('records list');
    expect(await run('records stuck')).toMatchObject({ code: 2 });
    await run('records migrate');
    expect(await run('records stuck')).toMatchObject({ code: 0, stdout: 'nothing is stuck\n' });
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

  it('report says what was brought back in a week or in the time that is named, as Markdown or JSON', async () => {
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

  it('reset is a dry run until --apply, and leaves what somebody works on', async () => {
    await run('records migrate');
    await run('records list');
    const old = await addJob(pool, 'ok', { status: 'Processing', ago: '3 h' });
    const live = await addJob(pool, 'ok', { status: 'Processing', ago: '3 h' });
    await claim(live, '1 s');
    const dry = await run('records reset jobs');
    expect(dry.code).toBe(0);
    expect(dry.stdout).toContain('A dry run: 1 queued again. Nothing was changed; --apply does it.\n');
    expect((await jobOf(pool, old)).status).toBe('Processing');
    const done = await run('records reset jobs --apply');
    expect(done).toMatchObject({ code: 0, stderr: '' });
    expect(done.stdout).toContain('Done: 1 queued again.\n');
    expect((await jobOf(pool, old)).status).toBe('Queued');
    expect((await jobOf(pool, live)).status).toBe('Processing');
    expect(await run('records reset jobs --apply')).toMatchObject({ stdout: 'nothing is stuck\n' });
  });

  it('reset --ids exits 5 if one of them was left alone, and 0 in a dry run', async () => {
    await run('records migrate');
    await run('records list');
    const fresh = await addJob(pool, 'ok', { status: 'Processing' });
    const live = await addJob(pool, 'ok', { status: 'Processing' });
    await claim(live, '1 s');
    const ids = `${fresh},${live}`;
    const dry = await run(`records reset jobs --ids ${ids}`);
    expect(dry.code).toBe(0);
    expect(dry.stdout).toContain('1 queued again, 1 left alone');
    const done = await run(`records reset jobs --ids ${ids} --apply`);
    expect(done).toMatchObject({ code: 5, stderr: 'smart-router: 1 of 2 records left alone\n' });
    expect(done.stdout).toMatch(new RegExp(`^${live} .*live claim +left alone`, 'm'));
    expect((await jobOf(pool, fresh)).status).toBe('Queued');
    expect((await jobOf(pool, live)).status).toBe('Processing');
    expect(documentOf(await run(`records reset jobs --ids ${live} --apply --json`))).toMatchObject({
      success: false,
      code: 'records_skipped',
      skipped: 1,
      records: [{ id: live, outcome: 'skipped', reason: 'live_claim' }],
    });
  });

  it('retry queues failed records again, and needs --ids', async () => {
    await run('records migrate');
    const id = await addJob(pool, 'ok', { status: 'Failed' });
    expect(await run('records retry jobs')).toMatchObject({ code: 2 });
    expect((await run(`records retry jobs --ids ${id}`)).stdout).toContain('A dry run: 1 queued again.');
    expect((await jobOf(pool, id)).status).toBe('Failed');
    expect(await run(`records retry jobs --ids ${id} --apply`)).toMatchObject({ code: 0 });
    expect((await jobOf(pool, id)).status).toBe('Queued');
  });

  it('inspect shows the times and advises the missing index', async () => {
    await run('records migrate');
    expect((await run('records inspect jobs')).stdout).toMatch(/^timeout +5m$/m);
    await pool.query('DROP INDEX jobs_status_updated_at_idx');
    const { code, stdout } = await run('records inspect jobs');
    expect(code).toBe(0);
    expect(stdout).toMatch(
      /^advice +no index finds what is 'Queued': .*CREATE INDEX CONCURRENTLY ON "jobs" \("updated_at"\) WHERE "status" = 'Queued'/m,
    );
    expect(documentOf(await run('records inspect jobs --json'))).toMatchObject({
      success: true,
      name: 'jobs',
      timeout_ms: 300_000,
      advice: [expect.stringContaining('CREATE INDEX')],
    });
  });

  it('exits 4 for a workflow that is not there, and 2 for an id that cannot be', async () => {
    await run('records migrate');
    for (const command of ['stuck', 'reset', 'inspect'])
      expect(await run(`records ${command} nothing`)).toMatchObject({
        code: 4,
        stderr: 'smart-router: there is no workflow "nothing": known are jobs\n',
      });
    expect(await run('records reset jobs --ids x')).toMatchObject({ code: 2 });
  });

  it('list tells of a table that does not fit, and shows the others', async () => {
    await run('records migrate', { RECORDS_WORKFLOWS: 'wf6' });
    await pool.query('DROP TABLE jobs');
    const { code, stdout, stderr } = await run('records list', { RECORDS_WORKFLOWS: 'wf6' });
    expect(code).toBe(0);
    expect(stdout).toMatch(/^sitemap-import +0 +0 +0 +0 +- +-$/m);
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

    it('names what does not fit, what is slow, and a user who may not create the schema', async () => {
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

    it('fails for a database that is away, and for a module that is not there', async () => {
      await postgres.stop();
      expect((await doctor()).get('database')).toMatchObject({
        status: 'fail',
        message: expect.stringMatching(/^cannot use postgres:\/\/postgres:\*+@.*: connection refused/),
      });
      expect((await doctor({ RECORDS_MODULE: 'nowhere.mjs' })).get('workflows')).toMatchObject({
        status: 'fail',
        message: 'RECORDS_MODULE nowhere.mjs: there is no such file',
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

  it('exits 6 for a database that is away, without its password', async () => {
    await postgres.stop();
    const { code, stderr } = await run('records list');
    expect(code).toBe(6);
    expect(stderr).toMatch(
      /^smart-router: the database cannot be used: .* It is at postgres:\/\/postgres:\*+@/,
    );
    expect(documentOf(await run('records list --json'))).toMatchObject({
      success: false,
      code: 'database_unavailable',
    });
  });
});

describe('records without a database to go to', () => {
  it.each([
    [{}, 'smart-router: DATABASE_URL is not set: it says where the records are\n'],
    [{ DATABASE_URL: 'embedded' }, /^smart-router: DATABASE_URL=embedded is a database beside a router/],
    [{ DATABASE_URL: 'mysql://x/y' }, /^smart-router: DATABASE_URL must be embedded, or a URL/],
    [
      { DATABASE_URL: 'postgres://127.0.0.1:1/x', RECORDS_MODULE: 'nowhere.mjs' },
      'smart-router: RECORDS_MODULE nowhere.mjs: there is no such file\n',
    ],
  ])('exits 2 with %o', async (env, message) => {
    // What is wrong elsewhere does not matter here.
    const { code, stderr } = await bare('records list', { env: { ...env, HTTP_PORT: 'x' } });
    expect(code).toBe(2);
    expect(stderr).toMatch(message);
  });
});
