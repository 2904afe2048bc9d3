/** Records over HTTP, on a router that processes them, with a real database behind it. */
import { execFileSync } from 'node:child_process';
import type { Pool } from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { LoopState } from '../../src/loop.js';
import { Plane } from '../../src/main/records-plane.js';
import type { StartOptions } from '../../src/main/router.js';
import { type Engine, findOnPath, startPreferred } from '../support/engines.js';
import { describeOnePostgres } from '../support/postgres.js';
import { addJob, jobOf, jobsTable, limitedSource, recordsModule } from '../support/records-module.js';
import { startTestRouter, type TestRouter } from '../support/router.js';
import { until } from '../support/until.js';

let engine: Engine;
let router: TestRouter;
beforeAll(async () => {
  engine = await startPreferred();
});
afterAll(() => engine.stop());

const value = (text: string, series: string) => {
  const line = text.split('\n').find((each) => each.startsWith(`${series} `));
  return line === undefined ? undefined : Number(line.slice(series.length + 1));
};

describeOnePostgres('records over HTTP', (postgres) => {
  let pool: Pool;
  beforeEach(async () => {
    pool = postgres.pool();
    await jobsTable(pool);
  });
  const start = (env: Record<string, string> = {}) => startWith(env, { openRecords: Plane.create });
  /** With records in a process of their own, which takes 0.5 s of CPU. */
  const startAsServed = () => startWith({}, {});
  const startWith = async (env: Record<string, string>, options: Pick<StartOptions, 'openRecords'>) => {
    const records = { DATABASE_URL: postgres.url, RECORDS_MODULE: recordsModule() };
    router = await startTestRouter(engine.url, { ...records, ...env }, options);
    // Before the database of the test goes.
    postgres.onEnd(() => router.stop());
    return router;
  };
  const state = async () => (await router.get('/status')).body.records;
  const untilOpen = () => until(async () => (await state()).error === null, 'the database is open');
  const finished = (id: string, status: string) =>
    until(async () => (await jobOf(pool, id)).status === status, `job ${id} is ${status}`);

  it('has the numbers of every workflow, and the state in /status', async () => {
    await startAsServed();
    const done = await addJob(pool, 'ok');
    const failed = await addJob(pool, 'fail');
    await finished(done, 'Completed');
    await finished(failed, 'Failed');
    await until(async () => {
      const { loops } = (await router.get('/status')).body;
      return loops.some((loop: LoopState) => loop.name === 'records-slow-sweep' && loop.rounds === 1);
    }, 'the first slow sweep is over, and the next is far');
    await addJob(pool, 'ok', { status: 'Processing', ago: '2 h' });
    expect((await jobOf(pool, failed)).error).toBe('no luck');
    const { status, body } = await router.get('/records');
    expect(status).toBe(200);
    expect(body.workflows).toEqual([
      {
        name: 'jobs',
        queued: 0,
        processing: 1,
        stuck: 1,
        held: 0,
        failed: 1,
        oldest_queued_seconds: null,
        oldest_stuck_seconds: expect.any(Number),
        waiting_for_retry: null,
        next_retry_seconds: null,
        keys_at_limit: null,
        processing_p99_seconds: null,
        advice: [],
      },
    ]);
    expect(body.workflows[0].oldest_stuck_seconds).toBeGreaterThanOrEqual(7200);
    const { records, loops } = (await router.get('/status')).body;
    expect(records).toMatchObject({
      database: 'up',
      paused: false,
      braked: false,
      cleanup: true,
      error: null,
    });
    expect(loops.map(({ name }: { name: string }) => name)).toEqual(
      expect.arrayContaining(['reconcile', 'records-fast-sweep', 'records-slow-sweep']),
    );
  });

  it('lists stuck records with their age, their reason and what they were doing', async () => {
    await start({ ZOMBIE_CLEANUP_ENABLED: 'false' });
    const id = await addJob(pool, 'ok', { status: 'Processing', ago: '3 h' });
    await untilOpen();
    const { status, body } = await router.get('/records/jobs/stuck');
    expect(status).toBe(200);
    expect(body).toEqual({
      workflow: 'jobs',
      total: 1,
      records: [
        {
          id,
          outcome: 'requeued',
          reason: 'unclaimed',
          resets: 0,
          stuck_seconds: expect.any(Number),
          worker: null,
          trace: null,
        },
      ],
    });
    expect((await router.get('/records/jobs/stuck?limit=0')).status).toBe(400);
    expect((await router.get('/status')).body.records.cleanup).toBe(false);
  });

  it('resets stuck records, after a dry run that is the default', async () => {
    await start({ ZOMBIE_CLEANUP_ENABLED: 'false' });
    const id = await addJob(pool, 'ok', { status: 'Processing', ago: '3 h' });
    await untilOpen();
    for (const ask of [
      () => router.ask('/records/jobs/reset', { method: 'POST' }),
      () => router.post('/records/jobs/reset', {}),
      () => router.post('/records/jobs/reset', { dry_run: true, ids: [id] }),
    ]) {
      const { status, body } = await ask();
      expect(status).toBe(200);
      expect(body).toMatchObject({ success: true, workflow: 'jobs', dry_run: true, requeued: 1, skipped: 0 });
      expect((await jobOf(pool, id)).status).toBe('Processing');
    }
    const { body } = await router.post('/records/jobs/reset', { dry_run: false });
    expect(body).toMatchObject({ success: true, dry_run: false, requeued: 1, records: [{ id }] });
    await finished(id, 'Completed');
    const told = router.logs().find(({ msg }) => msg === 'records reset');
    expect(told).toMatchObject({ by: expect.stringMatching(/^anonymous@/), workflow: 'jobs', requeued: 1 });
  });

  it('counts in a dry run all that would be reset, and lists a thousand of it', async () => {
    await start({ ZOMBIE_CLEANUP_ENABLED: 'false' });
    await pool.query(`
      INSERT INTO jobs (what, status, updated_at)
      SELECT 'ok', 'Processing', now() - interval '2 h' FROM generate_series(1, 1500)`);
    await untilOpen();
    const { body } = await router.post('/records/jobs/reset', {});
    expect(body).toMatchObject({
      dry_run: true,
      requeued: 1500,
      failed: 0,
      held: 0,
      skipped: 0,
      total: 1500,
    });
    expect(body.records).toHaveLength(1000);
  });

  it('never resets a record with a live claim, and says so', async () => {
    await start();
    const held = await addJob(pool, 'wait');
    await until(
      async () =>
        (await pool.query('SELECT FROM smart_router.claims WHERE token IS NOT NULL')).rowCount === 1,
      'it is claimed',
    );
    await untilOpen();
    const { body } = await router.post('/records/jobs/reset', { dry_run: false, ids: [held, '99999'] });
    expect(body).toMatchObject({ requeued: 0, skipped: 2 });
    expect(body.records.map(({ reason }: { reason: string }) => reason)).toEqual(['live_claim', 'not_found']);
    await addJob(pool, 'done', { status: 'Completed' });
    await finished(held, 'Completed');
  });

  it('queues failed records again', async () => {
    await start();
    const id = await addJob(pool, 'fail');
    await finished(id, 'Failed');
    await pool.query("UPDATE jobs SET what = 'ok' WHERE id = $1", [id]);
    expect((await router.get('/records/jobs/failed')).body).toEqual({
      workflow: 'jobs',
      records: [
        { id: String(id), error: 'no luck', failed_seconds: expect.any(Number), retry_seconds: null },
      ],
    });
    const dry = await router.post('/records/jobs/retry', { ids: [id], dry_run: true });
    expect(dry.body).toMatchObject({ dry_run: true, requeued: 1 });
    expect((await jobOf(pool, id)).status).toBe('Failed');
    const { status, body } = await router.post('/records/jobs/retry', { ids: [id] });
    expect([status, body.requeued, body.dry_run]).toEqual([200, 1, false]);
    await finished(id, 'Completed');
    expect((await jobOf(pool, id)).error).toBeNull();
    const text = (await router.get('/metrics')).text;
    expect(
      value(text, 'smart_router_records_resets_total{workflow="jobs",reason="by_hand",outcome="requeued"}'),
    ).toBe(1);
  });

  it('shows records that wait for a retry and keys at their limit, and retries a waiting record at once', async () => {
    await start({ RECORDS_MODULE: recordsModule(limitedSource) });
    await addJob(pool, 'wait');
    await addJob(pool, 'wait');
    const id = await addJob(pool, 'fail');
    const numbers = async () => (await router.get('/records')).body.workflows[0];
    await until(async () => {
      const { waiting_for_retry: retries, keys_at_limit: keys } = await numbers();
      return retries === 1 && keys === 1;
    }, 'one waits, and one key is at its limit');
    const found = await numbers();
    expect(found).toMatchObject({ queued: 2, processing: 1, failed: 0 });
    expect(found.next_retry_seconds).toBeGreaterThan(2000);
    expect(found.next_retry_seconds).toBeLessThanOrEqual(3600);
    const { records } = (await router.get('/records/jobs/failed')).body;
    expect(records).toMatchObject([{ id, error: 'no luck', retry_seconds: expect.any(Number) }]);
    await pool.query("UPDATE jobs SET what = 'ok' WHERE id = $1", [id]);
    const dry = await router.post('/records/jobs/retry', { ids: [id], dry_run: true });
    expect(dry.body).toMatchObject({ requeued: 1, skipped: 0 });
    expect((await numbers()).waiting_for_retry).toBe(1);
    expect((await router.post('/records/jobs/retry', { ids: [id] })).body).toMatchObject({ requeued: 1 });
    await finished(id, 'Completed');
    expect((await jobOf(pool, id)).error).toBeNull();
    await addJob(pool, 'done');
  });

  it('rejects wrong arguments by name', async () => {
    await start();
    await untilOpen();
    for (const [path, body, status, code] of [
      ['/records/nothing/reset', {}, 404, 'workflow_not_found'],
      ['/records/nothing/retry', { ids: ['1'] }, 404, 'workflow_not_found'],
      ['/records/jobs/retry', {}, 400, 'invalid_request'],
      ['/records/jobs/retry', { ids: [] }, 400, 'invalid_request'],
      ['/records/jobs/retry', { ids: [1] }, 400, 'invalid_request'],
      ['/records/jobs/retry', { ids: ['one'] }, 400, 'invalid_request'],
      ['/records/jobs/reset', { dry_run: 'no' }, 400, 'invalid_request'],
      ['/records/jobs/reset', { ids: Array.from({ length: 1001 }, String) }, 400, 'invalid_request'],
      ['/records/a b/reset', {}, 400, 'invalid_request'],
    ] as const) {
      const answer = await router.post(path.replace(' ', '%20'), body);
      expect([path, answer.status, answer.body.code]).toEqual([path, status, code]);
    }
    expect((await router.get('/records/nothing/stuck')).body).toMatchObject({
      code: 'workflow_not_found',
      error: 'there is no workflow "nothing": the workflows are jobs',
    });
  });

  it('is for operators: the API key is not sufficient', async () => {
    const keys = {
      SMART_ROUTER_API_KEY: 'api-key-of-the-agents',
      SMART_ROUTER_ADMIN_KEY: 'key-of-the-operators',
    };
    await start(keys);
    const agent = { authorization: `Bearer ${keys.SMART_ROUTER_API_KEY}` };
    const operator = { authorization: `Bearer ${keys.SMART_ROUTER_ADMIN_KEY}` };
    expect((await router.get('/records', agent)).status).toBe(403);
    expect((await router.post('/records/jobs/reset', {}, agent)).status).toBe(403);
    expect((await router.get('/records')).status).toBe(401);
    await until(async () => (await router.get('/records', operator)).status === 200, 'the database is open');
  });

  describe('with the database away', () => {
    it('answers 503 with its own code, serves calls, and says so in /status', async () => {
      await startAsServed();
      await untilOpen();
      await postgres.stop();
      for (const ask of [
        () => router.get('/records'),
        () => router.get('/records/jobs/stuck'),
        () => router.post('/records/jobs/reset', {}),
      ]) {
        const { status, body, headers } = await ask();
        expect([status, body.code, headers['retry-after']]).toEqual([503, 'database_unavailable', '5']);
      }
      expect((await router.post('/allocate', { call_sid: 'CA1' })).status).toBe(200);
      expect((await router.get('/ready')).status).toBe(200);
      await until(async () => (await state()).paused, 'claiming is paused');
      expect(await state()).toMatchObject({ database: 'down', workflows: [{ name: 'jobs', stuck: null }] });
      const down = (await router.get('/metrics')).text;
      expect(value(down, 'smart_router_records_database_up')).toBe(0);
      expect(value(down, 'smart_router_records_breaker_open')).toBe(1);
      expect(down).not.toMatch(/^smart_router_records_(stuck|oldest_stuck_seconds)\{/m);
      await postgres.start();
      const id = await addJob(pool, 'ok');
      await until(async () => (await jobOf(pool, id)).status === 'Completed', 'records are processed');
      await until(async () => (await state()).database === 'up', 'it is shown as up');
      expect(await state()).toMatchObject({ database: 'up', paused: false });
    });

    it('a router starts without it, and takes it into use when it comes', async () => {
      await postgres.stop();
      await startAsServed();
      expect(await state()).toMatchObject({ database: 'down', error: expect.stringMatching(/./) });
      expect((await router.get('/records')).body).toMatchObject({ code: 'database_unavailable' });
      expect((await router.post('/allocate', { call_sid: 'CA1' })).status).toBe(200);
      await postgres.start();
      await until(async () => (await router.get('/records')).status === 200, 'the database is open');
      const id = await addJob(pool, 'ok');
      await finished(id, 'Completed');
    });
  });

  it('a table that does not fit is reported, and used once it fits', async () => {
    await pool.query('ALTER TABLE jobs RENAME COLUMN error TO mistake');
    await start();
    const told = await until(async () => {
      const { error } = await state();
      return /column "error"/.test(error ?? '') && error;
    }, 'it is reported');
    expect(told).toBe('workflow jobs: column "error" (error) does not exist in "jobs"');
    expect((await state()).database).toBe('up');
    await pool.query('ALTER TABLE jobs RENAME COLUMN mistake TO error');
    await untilOpen();
  });

  it('has metrics of everything that happened to records, as promtool wants them', async () => {
    await startAsServed();
    const done = await addJob(pool, 'ok');
    const failed = await addJob(pool, 'fail');
    await finished(done, 'Completed');
    await finished(failed, 'Failed');
    const text = await until(async () => {
      const found = (await router.get('/metrics')).text;
      const isSwept = value(found, 'smart_router_records_stuck{workflow="jobs"}') !== undefined;
      const finishes = ['completed', 'failed'].map((outcome) =>
        value(found, `smart_router_records_finished_total{workflow="jobs",outcome="${outcome}"}`),
      );
      return isSwept && finishes.every((count) => count === 1) && found;
    }, 'the first sweep is over and both are counted');
    const expected = {
      'smart_router_records_claimed_total{workflow="jobs"}': 2,
      'smart_router_records_finished_total{workflow="jobs",outcome="completed"}': 1,
      'smart_router_records_finished_total{workflow="jobs",outcome="failed"}': 1,
      'smart_router_records_late_finishes_total{workflow="jobs"}': 0,
      'smart_router_records_zombie_alerts_total{workflow="jobs"}': 0,
      'smart_router_records_spooled_total{workflow="jobs"}': 0,
      // There before the first reset, so that it shows up as an increase.
      'smart_router_records_resets_total{workflow="jobs",reason="unclaimed",outcome="requeued"}': 0,
      'smart_router_records_resets_total{workflow="jobs",reason="dead_worker",outcome="failed"}': 0,
      'smart_router_records_processing_seconds_count{workflow="jobs"}': 2,
      'smart_router_records_stuck{workflow="jobs"}': 0,
      'smart_router_records_oldest_stuck_seconds{workflow="jobs"}': 0,
      smart_router_records_database_up: 1,
      smart_router_records_breaker_open: 0,
      smart_router_records_brake_holding: 0,
      smart_router_records_session_failures_total: 0,
    };
    const got = Object.fromEntries(Object.keys(expected).map((series) => [series, value(text, series)]));
    expect(got).toEqual(expected);
    expect(value(text, 'smart_router_records_session_attempts_total')).toBeGreaterThan(3);
    const promtool = findOnPath('promtool');
    if (promtool)
      execFileSync(promtool, ['check', 'metrics'], { input: text, stdio: ['pipe', 'ignore', 'pipe'] });
  });
});

describe('a router without DATABASE_URL', () => {
  afterEach(() => router.stop());

  it('has no workflows, no state and no gauges of records', async () => {
    router = await startTestRouter(engine.url);
    expect((await router.get('/records')).body).toEqual({ workflows: [] });
    expect((await router.get('/status')).body.records).toBeNull();
    expect((await router.post('/records/jobs/reset', {})).body).toMatchObject({
      code: 'workflow_not_found',
      error: 'this router processes no records: DATABASE_URL is not set, or no workflow is configured',
    });
    const { text } = await router.get('/metrics');
    expect(text).not.toMatch(/^smart_router_records_(database_up|breaker_open|brake_holding|stuck)\b/m);
  });
});
