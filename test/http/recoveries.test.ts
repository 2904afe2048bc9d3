/** Recovered calls and pods from the store, recovered records from the database. */
import type { Pool } from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, expect, it } from 'vitest';
import { describeEngines, type Engine, startPreferred } from '../support/engines.js';
import { expireLease } from '../support/expire-lease.js';
import { describeOnePostgres } from '../support/postgres.js';
import { addJob, jobOf, jobsTable, recordsModule } from '../support/records-module.js';
import { impatient, startTestRouter, type TestRouter } from '../support/router.js';
import { until } from '../support/until.js';

describeEngines('recoveries', (engine) => {
  let router: TestRouter;
  afterEach(async () => {
    await engine.resume();
    await router.stop();
  });
  const recoveries = async (query = '') => {
    const { status, body } = await router.get(`/recoveries${query}`);
    expect([status, body.code]).toEqual([200, undefined]);
    return body;
  };
  const timed = { at: expect.stringMatching(/Z$/) };

  it('are empty on a router without losses', async () => {
    router = await startTestRouter(engine.url);
    expect(await recoveries()).toEqual({
      since: expect.stringMatching(/Z$/),
      calls: { recovered: 0, lost: 0 },
      pods: { recovered: 0 },
      records: [],
      items: [],
    });
  });

  it('are calls past their lease, calls of removed pods, and pods made available again; the newest first', async () => {
    router = await startTestRouter(engine.url, {
      STATIC_PODS: 'gold-1=gold,basic-1=basic',
      RECONCILE_INTERVAL: '1h',
    });
    const { context } = router;
    await router.post('/allocate', { call_sid: 'expired' });
    await expireLease(engine.redis, 'expired');
    await until(async () => (await recoveries()).calls.recovered === 1, 'the sweep has ended it');
    await engine.redis.srem('voice:pool:gold:available', 'gold-1');
    await until(async () => (await recoveries()).pods.recovered === 1, 'the sweep has put it back');
    const startMs = performance.now();
    await router.post('/allocate', { call_sid: 'lost' });
    const epoch = (await context.store.snapshot()).epoch;
    await context.pools.remove(epoch, ['gold-1'], 'gone for the test');
    const maxAge = Math.floor((performance.now() - startMs) / 1000);
    const found = await recoveries();
    expect(found.items[1].age_seconds).toBeLessThanOrEqual(maxAge);
    expect(found).toEqual({
      since: expect.any(String),
      calls: { recovered: 1, lost: 1 },
      pods: { recovered: 1 },
      records: [],
      items: [
        {
          ...timed,
          kind: 'pod',
          id: 'gold-1',
          place: 'pool:gold',
          reason: 'gone for the test',
          outcome: 'removed',
          age_seconds: null,
          detail: '1 call was lost',
        },
        {
          ...timed,
          kind: 'call',
          id: 'lost',
          place: 'pool:gold',
          reason: 'gone for the test',
          outcome: 'lost',
          age_seconds: expect.any(Number),
          detail: 'pod gold-1',
        },
        {
          ...timed,
          kind: 'pod',
          id: 'gold-1',
          place: 'pool:gold',
          reason: 'missing from available',
          outcome: 'recovered',
          age_seconds: null,
          detail: null,
        },
        {
          ...timed,
          kind: 'call',
          id: 'expired',
          place: 'pool:gold',
          reason: 'lease expired',
          outcome: 'recovered',
          age_seconds: expect.any(Number),
          detail: 'pod gold-1',
        },
      ],
    });
  });

  it('tell a drain that ran out from a pod that was missing', async () => {
    // Only the sweep: an earlier reconcile would repair it without an event.
    router = await startTestRouter(engine.url, { DRAINING_TTL: '300ms', RECONCILE_INTERVAL: '1h' });
    await router.post('/drain', { pod_name: 'gold-1' });
    await until(async () => (await recoveries()).items.length === 1, 'the drain has run out');
    expect((await recoveries()).items[0]).toMatchObject({
      kind: 'pod',
      id: 'gold-1',
      outcome: 'recovered',
      reason: 'drain or suspension ended',
    });
  });

  it('are counted once, from the journal and, where that does not reach back, from the other stream', async () => {
    router = await startTestRouter(engine.url, { CLEANUP_INTERVAL: '20m', RECONCILE_INTERVAL: '1h' });
    const fields = (call: string) => [
      'type',
      'call_lost',
      'call',
      call,
      'pod',
      'p',
      'pool',
      'pool:gold',
      'reason',
      'r',
    ];
    const { redis } = engine;
    await redis.del('voice:events', 'voice:journal');
    // As a router wrote it that had no journal yet, and then in both.
    await redis.xadd('voice:events', '*', ...fields('before'));
    const id = (await redis.xadd('voice:events', '*', ...fields('both'))) ?? '';
    await redis.xadd('voice:journal', id, ...fields('both'));
    const { calls, items } = await recoveries();
    expect(calls.lost).toBe(2);
    expect(items.map((item: { id: string }) => item.id)).toEqual(['both', 'before']);
    await redis.del('voice:events');
    expect((await recoveries()).calls.lost).toBe(1);
  });

  it('cover the requested minutes, at most 500 of them in detail', async () => {
    router = await startTestRouter(engine.url, { CLEANUP_INTERVAL: '20m', RECONCILE_INTERVAL: '1h' });
    const { redis } = engine;
    await redis.del('voice:journal');
    const nowMs = (await router.context.store.snapshot()).nowMs;
    await redis.eval(
      `for i = 1, 600 do
         redis.call('XADD', KEYS[1], (ARGV[1] + i) .. '-0', 'type', 'call_recovered', 'call', i, 'pod', 'p', 'reason', 'r')
       end`,
      1,
      'voice:journal',
      nowMs - 90 * 60_000,
    );
    expect((await recoveries()).calls.recovered).toBe(0);
    const all = await recoveries('?minutes=120');
    expect(all.calls.recovered).toBe(600);
    expect(all.items).toHaveLength(500);
    expect(all.items[0].id).toBe('600');
    for (const wrong of ['0', '1441', 'x', '']) {
      const answer = await router.get(`/recoveries?minutes=${wrong}`);
      expect([wrong, answer.status, answer.body.code]).toEqual([wrong, 400, 'invalid_request']);
    }
  });

  it('are unknown while the store is unreachable', async () => {
    router = await startTestRouter(engine.url, impatient);
    await engine.pause();
    expect((await router.get('/recoveries')).status).toBe(503);
  });

  it('of records are null while the database does not answer', async () => {
    router = await startTestRouter(engine.url, {
      DATABASE_URL: 'postgres://127.0.0.1:1/nowhere',
      RECORDS_WORKFLOWS: 'wf7',
    });
    expect(await recoveries()).toMatchObject({ calls: { recovered: 0 }, records: null, items: [] });
  });
});

describeOnePostgres('recoveries of records', (postgres) => {
  let engine: Engine;
  let pool: Pool;
  beforeAll(async () => {
    engine = await startPreferred();
  });
  afterAll(() => engine.stop());
  beforeEach(async () => {
    pool = postgres.pool();
    await jobsTable(pool);
  });

  it('have workflow, reason and outcome, and are null when the database is unreachable', async () => {
    const id = await addJob(pool, 'ok', { status: 'Processing', ago: '3 h' });
    const router = await startTestRouter(engine.url, {
      DATABASE_URL: postgres.url,
      RECORDS_MODULE: recordsModule(),
    });
    postgres.onEnd(() => router.stop());
    await until(async () => (await jobOf(pool, id)).status === 'Completed', 'it is requeued and completed');
    const held = await addJob(pool, 'ok', { status: 'Failed' });
    await router.post('/records/jobs/retry', { ids: [held] });
    // One of a workflow that this router does not have.
    await pool.query("INSERT INTO smart_router.workflows (name) VALUES ('elsewhere')");
    await pool.query(`
      INSERT INTO smart_router.resets (workflow, record_id, reason, outcome, resets)
      SELECT id, '1', 'timed_out', 'requeued', 1 FROM smart_router.workflows WHERE name = 'elsewhere'`);
    // And one of long ago.
    await pool.query(`
      INSERT INTO smart_router.resets (at, workflow, record_id, reason, outcome, resets)
      SELECT now() - interval '2 h', id, '9', 'timed_out', 'failed', 1 FROM smart_router.workflows WHERE name = 'jobs'`);
    const { body } = await router.get('/recoveries');
    expect(body.records).toEqual([
      { workflow: 'jobs', reason: 'by_hand', outcome: 'requeued', records: 1 },
      { workflow: 'jobs', reason: 'unclaimed', outcome: 'requeued', records: 1 },
    ]);
    expect(body.items).toEqual([
      expect.objectContaining({ kind: 'record', id: held, place: 'jobs', reason: 'by_hand' }),
      {
        at: expect.stringMatching(/Z$/),
        kind: 'record',
        id,
        place: 'jobs',
        reason: 'unclaimed',
        outcome: 'requeued',
        age_seconds: expect.any(Number),
        detail: null,
      },
    ]);
    expect(body.items[1].age_seconds).toBeGreaterThanOrEqual(10_800);
    const older = (await router.get('/recoveries?minutes=180')).body;
    expect(older.records).toContainEqual({
      workflow: 'jobs',
      reason: 'timed_out',
      outcome: 'failed',
      records: 1,
    });
  });
});
