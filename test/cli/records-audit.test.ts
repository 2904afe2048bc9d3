/** Who did what to records from a script: with --json one line on stderr, like those of a router. */
import { hostname, userInfo } from 'node:os';
import type { Pool } from 'pg';
import { beforeEach, expect, it } from 'vitest';
import { describeOnePostgres } from '../support/postgres.js';
import { addJob, jobsTable, recordsModule } from '../support/records-module.js';
import { documentOf, runner } from './support.js';

const bare = runner(() => 'http://127.0.0.1:1');
const actor = `${userInfo().username}@${hostname()}`;

describeOnePostgres('the audit line of records', (postgres) => {
  let pool: Pool;
  let module: string;
  beforeEach(async () => {
    pool = postgres.pool();
    await jobsTable(pool);
    module = recordsModule();
    await run('records migrate');
    await run('records status');
  });
  const run = (args: string, env: NodeJS.ProcessEnv = {}) =>
    bare(args, { env: { DATABASE_URL: postgres.url, RECORDS_MODULE: module, ...env } });
  const linesOf = (stderr: string) =>
    stderr
      .split('\n')
      .filter((line) => line.startsWith('{'))
      .map((line) => JSON.parse(line));

  it('says who reset which workflow, and how many records', async () => {
    await addJob(pool, 'ok', { status: 'Processing', ago: '3 h' });
    const { code, stderr } = await run('records reset jobs --apply --json');
    expect(code).toBe(0);
    expect(linesOf(stderr)).toEqual([
      {
        level: 'info',
        time: expect.stringMatching(/^\d{4}-.*Z$/),
        audit: true,
        action: 'records.reset',
        what: 'jobs',
        outcome: 'done',
        requeued: 1,
        failed: 0,
        held: 0,
        skipped: 0,
        actor,
        msg: 'audit: records.reset done',
      },
    ]);
  });

  it('is not in the way of --json, and is there for a retry', async () => {
    const id = await addJob(pool, 'ok', { status: 'Failed' });
    const done = await run(`records retry jobs --ids ${id} --apply --json`);
    expect(documentOf(done)).toMatchObject({ success: true, requeued: 1 });
    expect(linesOf(done.stderr)).toMatchObject([
      { audit: true, action: 'records.retry', requeued: 1, actor },
    ]);
  });

  it('says when nothing became of it, and why', async () => {
    const away = new URL(postgres.url);
    away.port = '1';
    const failed = await run('records reset jobs --apply --json', { DATABASE_URL: away.href });
    expect(failed.code).toBe(6);
    expect(linesOf(failed.stderr)).toMatchObject([
      { outcome: 'failed', code: 'database_unavailable', actor },
    ]);
    const refused = await run('records retry jobs --ids x --apply --json');
    expect(refused.code).toBe(2);
    expect(linesOf(refused.stderr)).toMatchObject([{ outcome: 'refused', code: 'invalid_request', actor }]);
  });

  it('is not in the output for people', async () => {
    await addJob(pool, 'ok', { status: 'Processing', ago: '3 h' });
    expect(await run('records reset jobs --apply')).toMatchObject({ code: 0, stderr: '' });
    const refused = await run('records retry jobs --ids x --apply');
    expect(linesOf(refused.stderr)).toEqual([]);
  });

  it('is not written for a dry run', async () => {
    await addJob(pool, 'ok', { status: 'Processing', ago: '3 h' });
    expect((await run('records reset jobs')).stderr).toBe('');
  });
});
