/** `smart-router records ...` where no database is named: what only looks asks a router that has one. */
import type { Pool } from 'pg';
import { beforeEach, describe, expect, it } from 'vitest';
import type { RunningRouter } from '../../src/main/router.js';
import { describeOnePostgres } from '../support/postgres.js';
import { addJob, jobsTable, limitedSource, recordsModule } from '../support/records-module.js';
import { until } from '../support/until.js';
import { documentOf, runner, startTestRouter, useStore } from './support.js';

const store = useStore();
let router: RunningRouter;
const run = runner(() => router.url);

describeOnePostgres('records of a router', (postgres) => {
  let pool: Pool;
  let stuck: string;
  beforeEach(async () => {
    pool = postgres.pool();
    await jobsTable(pool);
    router = await startTestRouter(await store.emptied(), {
      DATABASE_URL: postgres.url,
      RECORDS_MODULE: recordsModule(),
    });
    postgres.onEnd(() => router.stop());
    await until(
      async () => {
        const { loops } = (await (await fetch(`${router.url}/api/v1/status`)).json()) as {
          loops: { name: string; rounds: number }[];
        };
        return loops.some(({ name, rounds }) => name === 'records-slow-sweep' && rounds === 1);
      },
      'the first slow sweep is over, and the next is far',
      60_000,
    );
    await addJob(pool, 'ok', { status: 'Failed' });
    stuck = await addJob(pool, 'ok', { status: 'Processing', ago: '3 h' });
  }, 90_000);

  it('are shown by status, stuck and inspect without DATABASE_URL', async () => {
    const status = await run('records status');
    expect(status).toMatchObject({ code: 0, stderr: '' });
    expect(status.stdout).toMatch(/^jobs +0 +1 +1 +0 +1 +- +3h 0m$/m);
    expect(documentOf(await run('records status --json'))).toMatchObject({
      success: true,
      workflows: [{ name: 'jobs', stuck: 1, failed: 1 }],
    });
    for (const args of ['records stuck', 'records stuck jobs --limit 1']) {
      const { code, stdout } = await run(args);
      expect(code).toBe(0);
      expect(stdout).toMatch(
        new RegExp(`^jobs\\nRECORD .*\\n${stuck} +3h 0m +unclaimed +queued +0 +- +-\\n`),
      );
      expect(stdout).toContain('\n1 record\n');
    }
    expect(documentOf(await run('records stuck --json'))).toMatchObject({
      workflows: [{ workflow: 'jobs', total: 1, records: [{ id: stuck, reason: 'unclaimed' }] }],
    });
    const failed = await run('records failed');
    expect(failed).toMatchObject({ code: 0, stderr: '' });
    expect(failed.stdout).toMatch(/^jobs\nRECORD .*\n\d+ +\d+s ago +-\n\n1 record\n$/);
    const inspected = await run('records inspect jobs');
    expect(inspected.stdout).toMatch(/^records +0 queued, 1 processing, 1 failed$/m);
    expect(inspected.stdout).toMatch(/^stuck +1, the oldest for 3h 0m$/m);
    expect(inspected.stdout).toMatch(
      /^source +the router at http:.*; set DATABASE_URL for table and times$/m,
    );
    for (const args of ['records inspect unknown', 'records stuck unknown'])
      expect(await run(args), args).toMatchObject({ code: 4, stdout: '' });
  });

  it('are those of --url also where a database is named', async () => {
    const env = {
      DATABASE_URL: 'postgres://127.0.0.1:1/nowhere',
      RECORDS_WORKFLOWS: 'wf7',
      SMART_ROUTER_URL: 'http://127.0.0.1:1',
    };
    expect(await run(['records', 'stuck', '--url', router.url], { env })).toMatchObject({
      code: 0,
      stdout: expect.stringContaining('unclaimed'),
    });
    expect(await run('records stuck', { env })).toMatchObject({ code: 6 });
  });
});

describeOnePostgres('records with a limit and retries', (postgres) => {
  it('are shown with what they wait for, and retried at once', async () => {
    const pool = postgres.pool();
    await jobsTable(pool);
    const env = { DATABASE_URL: postgres.url, RECORDS_MODULE: recordsModule(limitedSource) };
    const inDatabase = (args: string) => run(args, { env });
    await inDatabase('records migrate');
    const waits = await addJob(pool, 'ok');
    await addJob(pool, 'ok', { status: 'Failed' });
    expect((await inDatabase('records status')).stdout).toMatch(
      /OLDEST STUCK +WAIT FOR RETRY +NEXT RETRY +KEYS AT LIMIT\njobs +1 +0 +0 +0 +1 +\d+s +- +0 +- +0\n/,
    );
    await pool.query(
      `INSERT INTO smart_router.claims (workflow, record_id, token, attempts, not_before, limit_key)
       SELECT id, record_id, token, 1, not_before, limit_key FROM smart_router.workflows,
         (VALUES ($1, NULL, now() + interval '90 s', NULL), ('other', 1, NULL, 7)) AS c (record_id, token, not_before, limit_key)`,
      [waits],
    );
    expect((await inDatabase('records status')).stdout).toMatch(/^jobs +1 +0 +0 +0 +1 .* 1 +1m \d+s +1$/m);
    const inspected = (await inDatabase('records inspect jobs')).stdout;
    expect(inspected).toMatch(/^retries +1 record waiting, the first in 1m \d+s$/m);
    expect(inspected).toMatch(/^limit +1 key at the limit$/m);
    const failed = await inDatabase('records failed');
    expect(failed.stdout).toMatch(
      /^RECORD +FAILED +RETRY IN +ERROR\n\d+ .* - +-\n\d+ .* 1m \d+s +-\n\n2 records$/m,
    );
    expect(await inDatabase(`records retry jobs --ids ${waits} --apply`)).toMatchObject({ code: 0 });
    expect((await inDatabase('records status')).stdout).toMatch(/^jobs +1 +0 +0 +0 +1 .* 0 +- +1$/m);
  });
});

describe('records where neither a database nor a router is', () => {
  const away = runner(() => 'http://127.0.0.1:1');

  it('names both, and exits 2; a router that was named is missing with 6', async () => {
    const { code, stderr } = await away('records stuck');
    expect(code).toBe(2);
    expect(stderr).toMatch(
      /^smart-router: DATABASE_URL is not set: .*; and cannot reach the router at http:\/\/127\.0\.0\.1:1: connection refused\./,
    );
    expect(stderr.trim().split('\n')).toHaveLength(1);
    expect(await away('records stuck --url http://127.0.0.1:2')).toMatchObject({ code: 6 });
  });

  it('says where a router does what changes records', async () => {
    const { code, stderr } = await away('records reset jobs');
    expect(code).toBe(2);
    expect(stderr).toBe(
      'smart-router: DATABASE_URL is not set: it names the database with the records. A router with a database can do it: open http://127.0.0.1:1/#/records, or POST http://127.0.0.1:1/api/v1/records/WORKFLOW/reset (docs/api.md)\n',
    );
  });
});
