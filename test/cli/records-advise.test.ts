/** `smart-router records advise`: with a router that has seen records, without one, and what the database alone tells. */
import type { Pool } from 'pg';
import { beforeEach, expect, it } from 'vitest';
import { describeOnePostgres } from '../support/postgres.js';
import { jobsTable, recordsModule } from '../support/records-module.js';
import { until } from '../support/until.js';
import { documentOf, runner, startTestRouter, useStore } from './support.js';

const store = useStore();
const bare = runner(() => 'http://127.0.0.1:1');

describeOnePostgres('records advise', (postgres) => {
  let pool: Pool;
  let env: Record<string, string>;
  beforeEach(async () => {
    pool = postgres.pool();
    await jobsTable(pool);
    env = { DATABASE_URL: postgres.url, RECORDS_MODULE: recordsModule() };
    await bare('records migrate', { env });
  });
  const advise = (more = '', extra: Record<string, string> = {}) =>
    bare(`records advise jobs${more}`, { env: { ...env, ...extra } });

  it('takes the p99 of a running router, and says which times it would set and why', async () => {
    const router = await startTestRouter(await store.emptied(), env);
    postgres.onEnd(() => router.stop());
    await pool.query("INSERT INTO jobs (what) SELECT 'ok' FROM generate_series(1, 150)");
    const url = { SMART_ROUTER_URL: router.url };
    await until(
      async () => documentOf(await advise(' --json', url)).processing_p99_seconds !== null,
      'a hundred records have been seen',
    );
    const { code, stdout, stderr } = await advise('', url);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout).toContain(`the router at ${router.url}, and the database\n`);
    // More than 1s if the machine was busy.
    expect(stdout).toMatch(/^timeout +30s instead of 5m: 99 of 100 records take up to \ds; three times/m);
    expect(stdout).toMatch(/^stuck\.after +1h, keep it: it only concerns rows that other programs set/m);
    expect(documentOf(await advise(' --json', url))).toMatchObject({
      success: true,
      name: 'jobs',
      timeout_ms: 300_000,
      suggested_timeout_ms: 30_000,
      suggested_stuck_after_ms: 3_600_000,
    });
  });

  it('without a router prints that, and the figures of the database', async () => {
    const first = await advise();
    expect(first.code).toBe(0);
    expect(first.stdout).toMatch(
      /^source +the database only: cannot reach the router at http:\/\/127\.0\.0\.1:1: /m,
    );
    expect(first.stdout).toMatch(/^timeout +5m, keep it: no observation speaks against it$/m);
    await pool.query(`
      INSERT INTO smart_router.resets (workflow, record_id, reason, outcome, resets)
      SELECT f.id, i::text, CASE WHEN i < 3 THEN 'timed_out' ELSE 'unclaimed' END, 'requeued', 0
      FROM smart_router.workflows AS f, generate_series(1, 4) AS i`);
    const { stdout } = await advise();
    expect(stdout).toMatch(/^timeout +10m instead of 5m: 2 records timed out in the last 7 days/m);
    expect(stdout).toMatch(
      /^stuck\.after +1h, keep it: rows of other programs recovered in the last 7 days: 2;/m,
    );
  });

  it('refuses a wrong address and an unknown workflow', async () => {
    expect(await advise(' --url nonsense')).toMatchObject({ code: 2 });
    expect(await bare('records advise nothing', { env })).toMatchObject({ code: 4 });
  });
});
