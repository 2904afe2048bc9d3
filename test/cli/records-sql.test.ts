/** `smart-router records sql`: what it prints is all that an installation without our process needs. */
import { execFile } from 'node:child_process';
import { chmodSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { Pool } from 'pg';
import { describe, expect, it } from 'vitest';
import { applyMigrations } from '../../src/records/migrate.js';
import { migrations } from '../../src/workflows/migrations.generated.js';
import { temporaryFolder } from '../records/fixture.js';
import { findOnPath } from '../support/engines.js';
import { describePostgres } from '../support/postgres.js';
import { documentOf, runner } from './support.js';

const run = runner(() => 'http://127.0.0.1:1');
const printed = async (options = '') => {
  const { code, stdout, stderr } = await run(`records sql${options}`);
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  return stdout;
};
const stick = (pool: Pool) =>
  pool.query(
    "INSERT INTO pages (url, page_processing_status, updated_at) VALUES ('u', 'Processing', now() - interval '2 hours')",
  );
const stateOf = async (pool: Pool) =>
  (await pool.query("SELECT page_processing_status::text AS state FROM pages WHERE url = 'u'")).rows.map(
    ({ state }) => state,
  );

describePostgres('records sql, run as it is printed', (postgres) => {
  async function installed(): Promise<Pool> {
    const pool = postgres.pool();
    await applyMigrations(pool, 'workflows', migrations);
    await pool.query(await printed());
    return pool;
  }

  it('the function resets stuck rows', async () => {
    const pool = await installed();
    await stick(pool);
    const { rows } = await pool.query(
      "SELECT outcome FROM smart_router.reset_stuck('pages', 'page_processing_status')",
    );
    expect(rows).toEqual([{ outcome: 'requeued' }]);
    expect(await stateOf(pool)).toEqual(['Queued']);
  });

  it('the trigger resets stuck rows on a write, and can be installed twice', async () => {
    const pool = await installed();
    const trigger = await printed(' --trigger');
    await stick(pool);
    await pool.query(trigger);
    await pool.query(trigger);
    await pool.query("INSERT INTO pages (url) VALUES ('other')");
    expect(await stateOf(pool)).toEqual(['Queued']);
  });

  it('the lines for pg_cron are jobs whose commands reset', async () => {
    const pool = await installed();
    // pg_cron's own function of this name: schedule(job_name text, schedule text, command text) returns bigint.
    await pool.query(`
      CREATE SCHEMA cron; CREATE TABLE cron.job (command text);
      CREATE FUNCTION cron.schedule(job_name text, schedule text, command text) RETURNS bigint LANGUAGE sql AS
        'INSERT INTO cron.job VALUES ($3); SELECT 1::bigint'`);
    await pool.query(await printed(' --cron'));
    await stick(pool);
    for (const { command } of (await pool.query('SELECT command FROM cron.job')).rows)
      await pool.query(command);
    expect(await stateOf(pool)).toEqual(['Queued']);
  });

  const itPsql = findOnPath('psql') ? it : it.skip;
  itPsql('the script does it from a shell (needs psql)', async () => {
    const pool = await installed();
    await stick(pool);
    const path = join(temporaryFolder(), 'zombie-cleanup.sh');
    writeFileSync(path, await printed(' --script'));
    chmodSync(path, 0o755);
    const env = { PATH: process.env.PATH ?? '', DATABASE_URL: postgres.url };
    const { stdout } = await promisify(execFile)(path, ['pages', 'page_processing_status'], { env });
    expect(stdout).toBe('pages: reset 1 stuck records\n');
    expect(await stateOf(pool)).toEqual(['Queued']);
  });
});

describe('records sql', () => {
  it('has its own help', async () => {
    const { code, stdout } = await run('records sql --help');
    expect(code).toBe(0);
    expect(stdout).toContain('Usage: smart-router records sql [options]');
    for (const option of ['--trigger', '--cron', '--script']) expect(stdout).toContain(option);
  });

  it('prints one thing at a time, as text or as a document', async () => {
    expect(await run('records sql --cron --script')).toMatchObject({ code: 2 });
    expect(documentOf(await run('records sql --cron --json'))).toEqual({
      success: true,
      file: 'pg_cron.sql',
      text: await printed(' --cron'),
    });
  });
});
