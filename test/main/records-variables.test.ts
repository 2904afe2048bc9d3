/** Every ZOMBIE_* variable of `serve`, from the outside: a real process with the variable, and its effect on a table. */
import type { Pool } from 'pg';
import { expect, it, onTestFinished } from 'vitest';
import { routerEnv, start, useBinary, useStore } from '../cli/support.js';
import { describeOnePostgres } from '../support/postgres.js';
import { addJob, jobOf, jobsTable, recordsModule } from '../support/records-module.js';
import { until } from '../support/until.js';

const binary = useBinary();
const store = useStore();

describeOnePostgres('serve', (postgres) => {
  /** Resolves when the router has logged a line with this text; to that line. */
  const serve = async (pool: Pool, env: NodeJS.ProcessEnv, text: string) => {
    await jobsTable(pool);
    const records = {
      REDIS_URL: await store.emptied(),
      DATABASE_URL: postgres.url,
      RECORDS_MODULE: recordsModule(),
    };
    const ids = {
      old: await addJob(pool, 'ok', { status: 'Processing', ago: '6 min' }),
      young: await addJob(pool, 'ok', { status: 'Processing', ago: '4 min' }),
    };
    const started = start(binary, ['serve'], { env: { ...routerEnv, ...records, ...env } });
    onTestFinished(async () => {
      started.child.kill('SIGKILL');
      await started.ended;
    });
    let output = '';
    started.child.stdout?.on('data', (chunk: string) => {
      output += chunk;
    });
    await started.shows(text);
    const line = await until(
      () => output.split('\n').find((one) => one.includes(text) && one.endsWith('}')),
      'the whole line is there',
    );
    return { ...ids, line: JSON.parse(line) as Record<string, unknown> };
  };
  const statusOf = async (pool: Pool, id: string) => (await jobOf(pool, id)).status;

  it('resets rows older than ZOMBIE_STUCK_THRESHOLD_MINUTES, every ZOMBIE_CLEANUP_INTERVAL_MINUTES', async () => {
    const pool = postgres.pool();
    const env = { ZOMBIE_STUCK_THRESHOLD_MINUTES: '5', ZOMBIE_CLEANUP_INTERVAL_MINUTES: '7' };
    const { old, young, line } = await serve(pool, env, 'record recovery started');
    expect(line).toMatchObject({ stuck_after_minutes: 5, slow_sweep_minutes: 7 });
    await until(
      async () => (await statusOf(pool, old)) === 'Completed',
      'the old one is reset and processed',
    );
    expect(await statusOf(pool, young)).toBe('Processing');
  });

  it('resets nothing with ZOMBIE_CLEANUP_ENABLED=false, and still counts stuck rows', async () => {
    const pool = postgres.pool();
    const env = { ZOMBIE_CLEANUP_ENABLED: 'false', ZOMBIE_STUCK_THRESHOLD_MINUTES: '5' };
    const { old, line } = await serve(pool, env, 'smart-router is listening');
    const stuck = async () => {
      const answer = await fetch(`${line.url}/api/v1/status`);
      const { records } = (await answer.json()) as {
        records: { cleanup: boolean; workflows: { stuck: number | null }[] };
      };
      return records.workflows[0]?.stuck === 1 && records;
    };
    expect(await until(stuck, 'it is counted')).toMatchObject({ cleanup: false });
    expect(await statusOf(pool, old)).toBe('Processing');
  });
});
