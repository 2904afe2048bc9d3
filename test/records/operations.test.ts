/** Operations of people: live claims are never touched, and every change is noted. */
import type { Pool } from 'pg';
import { beforeEach, describe, expect, it } from 'vitest';
import { silentLogger } from '../../src/observe/log.js';
import { RecordOperations } from '../../src/records/operations.js';
import { weeklyReport } from '../../src/records/report.js';
import { adviseTimes } from '../../src/records/timeout-advice.js';
import type { WorkflowDefinition } from '../../src/records/workflow.js';
import { describeOnePostgres, describePostgres } from '../support/postgres.js';
import { until } from '../support/until.js';
import { type Page, pagesWorkflow, storeOf, teamTable } from './fixture.js';

const missingId = '00000000-0000-0000-0000-000000000000';

describePostgres('record operations', (postgres) => {
  let pool: Pool;
  let ids: string[];
  const deskOf = (more: Partial<WorkflowDefinition<Page>> = {}) =>
    new RecordOperations({
      pool,
      workflows: [pagesWorkflow(more)],
      stuckAfterMs: 3_600_000,
      log: silentLogger,
    });
  const page = async (id: string | undefined): Promise<Page> =>
    (await pool.query<Page>('SELECT * FROM pages WHERE id = $1', [id])).rows[0] as Page;
  const resets = async () =>
    (
      await pool.query(
        'SELECT record_id, reason, outcome, resets, trace FROM smart_router.resets ORDER BY id',
      )
    ).rows;
  const set = (id: string | undefined, status: string, ago = '0 s') =>
    pool.query('UPDATE pages SET status = $2, error = $3, updated_at = now() - $4::interval WHERE id = $1', [
      id,
      status,
      status === 'Failed' ? 'boom' : null,
      ago,
    ]);
  /** A claim of a worker whose last heartbeat was so long ago. */
  const claim = async (id: string | undefined, heartbeatAgo: string, more: { claimedAgo?: string } = {}) => {
    // The operations has made the workflow known.
    await pool.query(
      `WITH w AS (INSERT INTO smart_router.workers (process, host, pid, heartbeat_at)
         VALUES (gen_random_uuid(), 'host', 7, now() - $2::interval) RETURNING id)
       INSERT INTO smart_router.claims (workflow, record_id, token, worker, claimed_at, timeout_ms, resets, trace)
       SELECT f.id, $1, nextval('smart_router.tokens'), w.id, now() - $3::interval, 60000, 2, 'parsing'
       FROM w, smart_router.workflows AS f`,
      [id, heartbeatAgo, more.claimedAgo ?? '1 s'],
    );
    await set(id, 'Processing');
  };
  beforeEach(async () => {
    pool = postgres.pool();
    await teamTable(pool, 4);
    ids = (await pool.query<{ id: string }>('SELECT id FROM pages ORDER BY url')).rows.map(({ id }) => id);
    await deskOf().list();
  });

  describe('reset by id', () => {
    it('requeues unclaimed records of any age, and notes it in smart_router.resets', async () => {
      await set(ids[0], 'Processing', '5 s');
      const counts = await deskOf().reset('pages', { ids: [ids[0] ?? ''], dryRun: false });
      expect(counts).toMatchObject({ dryRun: false, requeued: 1, skipped: 0 });
      expect(counts.records).toEqual([
        expect.objectContaining({ id: ids[0], outcome: 'requeued', reason: 'by_hand' }),
      ]);
      const { status, error } = await page(ids[0]);
      expect([status, error]).toEqual(['Queued', 'Auto-reset from stuck Processing state']);
      expect(await resets()).toEqual([
        { record_id: ids[0], reason: 'by_hand', outcome: 'requeued', resets: 0, trace: null },
      ]);
    });

    it('makes the finish of the old worker late, although another worker has finished the record', async () => {
      const store = await storeOf(pool);
      await claim(ids[0], '1 min');
      const { rows } = await pool.query('SELECT token FROM smart_router.claims');
      await deskOf().reset('pages', { ids: [ids[0] ?? ''], dryRun: false });
      const again = await store.claim(1, 10, 60_000, 0);
      await store.finish(again.map(({ id, token }) => ({ id, token, error: null })));
      expect((await page(ids[0])).status).toBe('Completed');
      expect(await store.settled([{ id: ids[0] ?? '', token: rows[0].token, error: null }])).toEqual([]);
    });

    it('requeues a record of a dead worker with its count at 0, and keeps its trace', async () => {
      await claim(ids[0], '1 min');
      await deskOf().reset('pages', { ids: [ids[0] ?? ''], dryRun: false });
      expect((await page(ids[0])).status).toBe('Queued');
      expect((await pool.query('SELECT FROM smart_router.claims')).rowCount).toBe(0);
      expect(await resets()).toEqual([
        { record_id: ids[0], reason: 'by_hand', outcome: 'requeued', resets: 2, trace: 'parsing' },
      ]);
    });

    it('requeues a claim past its timeout and grace although its worker is alive', async () => {
      await claim(ids[0], '1 s', { claimedAgo: '91 s' });
      await claim(ids[1], '1 s', { claimedAgo: '75 s' });
      const counts = await deskOf().reset('pages', { ids: ids.slice(0, 2), dryRun: false });
      expect(counts.records.map(({ outcome }) => outcome)).toEqual(['requeued', 'skipped']);
    });

    it('skips live claims, records not in Processing and missing records, with the reason', async () => {
      await claim(ids[0], '1 s');
      await set(ids[1], 'Completed');
      await set(ids[2], 'Processing');
      const given = [ids[0] ?? '', ids[1] ?? '', missingId, ids[2] ?? ''];
      const before = await page(ids[0]);
      const counts = await deskOf().reset('pages', { ids: given, dryRun: false });
      expect(counts).toMatchObject({ requeued: 1, skipped: 3 });
      expect(counts.records.map(({ id, reason }) => [id, reason])).toEqual([
        [ids[0], 'live_claim'],
        [ids[1], 'not_processing'],
        [missingId, 'not_found'],
        [ids[2], 'by_hand'],
      ]);
      expect(await page(ids[0])).toEqual(before);
      expect((await pool.query('SELECT FROM smart_router.claims')).rowCount).toBe(1);
    });

    it('requeues records held by policy, and records past their maximum of resets', async () => {
      await set(ids[0], 'Processing', '2 h');
      const operations = deskOf({ stuck: { policy: 'hold' } });
      expect(await operations.reset('pages', { dryRun: false })).toMatchObject({ held: 1, requeued: 0 });
      expect(await operations.reset('pages', { ids: [ids[0] ?? ''], dryRun: false })).toMatchObject({
        requeued: 1,
      });
      await claim(ids[1], '1 min');
      const strict = deskOf({ stuck: { maxResets: 0 } });
      expect(await strict.reset('pages', { ids: [ids[1] ?? ''], dryRun: false })).toMatchObject({
        requeued: 1,
      });
      expect((await page(ids[0])).status).toBe('Queued');
      expect((await page(ids[1])).status).toBe('Queued');
    });

    it('lists in a dry run what it would do, and changes nothing', async () => {
      await claim(ids[0], '1 min');
      await claim(ids[1], '1 s');
      const before = (await pool.query('SELECT * FROM pages ORDER BY url')).rows;
      const counts = await deskOf().reset('pages', { ids: ids.slice(0, 2), dryRun: true });
      expect(counts).toMatchObject({ dryRun: true, requeued: 1, skipped: 1 });
      expect((await pool.query('SELECT * FROM pages ORDER BY url')).rows).toEqual(before);
      expect(await resets()).toEqual([]);
    });

    it('never takes a record that is claimed between its check and its update', async () => {
      await set(ids[0], 'Processing');
      // Locks the row, so that the reset has to wait.
      const other = await pool.connect();
      await other.query('BEGIN');
      await other.query('UPDATE pages SET updated_at = now() WHERE id = $1', [ids[0]]);
      const reset = deskOf().reset('pages', { ids: [ids[0] ?? ''], dryRun: false });
      const stuckAt = `SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`;
      await until(async () => (await pool.query(stuckAt)).rowCount === 1, 'the reset waits for the row');
      await other.query(
        `WITH w AS (INSERT INTO smart_router.workers (process, host, pid) VALUES (gen_random_uuid(), 'host', 8) RETURNING id)
         INSERT INTO smart_router.claims (workflow, record_id, token, worker, claimed_at, timeout_ms)
         SELECT f.id, $1, 1, w.id, now(), 60000 FROM w, smart_router.workflows AS f`,
        [ids[0]],
      );
      await other.query('COMMIT');
      other.release();
      expect(await reset).toMatchObject({ requeued: 0, skipped: 1, records: [{ reason: 'live_claim' }] });
      expect((await page(ids[0])).status).toBe('Processing');
    });
  });

  describe('reset of all stuck records', () => {
    it('lists in a dry run what one round of the recovery then does', async () => {
      await claim(ids[0], '1 min');
      await set(ids[1], 'Processing', '2 h');
      await claim(ids[2], '1 s');
      await set(ids[3], 'Processing', '59 min');
      const operations = deskOf();
      const dry = await operations.reset('pages', { dryRun: true });
      expect(dry).toMatchObject({ dryRun: true, requeued: 2, failed: 0 });
      expect(await resets()).toEqual([]);
      const done = await operations.reset('pages', { dryRun: false });
      expect(done).toMatchObject({ dryRun: false, requeued: 2, failed: 0, skipped: 0 });
      const listed = (counts: typeof done) => counts.records.map(({ id }) => id).sort();
      expect(listed(done)).toEqual(listed(dry));
      expect(dry.records.map(({ reason }) => reason).sort()).toEqual(['dead_worker', 'unclaimed']);
      // A person has asked for it, with ids or without.
      expect((await resets()).map(({ reason }) => reason)).toEqual(['by_hand', 'by_hand']);
      expect(await weeklyReport(pool)).toMatchObject({ records: 2, byHand: 2 });
      expect((await page(ids[2])).status).toBe('Processing');
      expect((await page(ids[3])).status).toBe('Processing');
    });

    it('counts all records in a dry run, and lists a thousand', async () => {
      await pool.query(
        "INSERT INTO pages (url, status, updated_at) SELECT i::text, 'Processing', now() - interval '2 h' FROM generate_series(1, 5000) AS i",
      );
      const operations = deskOf();
      const dry = await operations.reset('pages', { dryRun: true });
      expect(dry).toMatchObject({ requeued: 5000, failed: 0, held: 0, skipped: 0, total: 5000 });
      expect(dry.records).toHaveLength(1000);
      const { dryRun: _, records: listed, ...would } = dry;
      const done = await operations.reset('pages', { dryRun: false });
      expect(done).toMatchObject(would);
      expect(done.records).toHaveLength(listed.length);
    });

    it('takes nothing from a live worker, also past its timeout, and reports it', async () => {
      await claim(ids[0], '1 s', { claimedAgo: '1 h' });
      await claim(ids[1], '1 min', { claimedAgo: '1 h' });
      const operations = deskOf();
      for (const dryRun of [true, false]) {
        const counts = await operations.reset('pages', { dryRun });
        expect(counts).toMatchObject({ requeued: 1, skipped: 1, total: 2 });
        expect(counts.records.map(({ id, outcome, reason }) => [id, outcome, reason])).toEqual([
          [ids[1], 'requeued', dryRun ? 'dead_worker' : 'by_hand'],
          [ids[0], 'skipped', 'live_claim'],
        ]);
      }
      expect((await page(ids[0])).status).toBe('Processing');
      expect((await page(ids[1])).status).toBe('Queued');
    });
  });

  describe('retry', () => {
    it('requeues failed records without their error, with their count of resets at 0', async () => {
      await claim(ids[0], '1 min');
      await pool.query('UPDATE smart_router.claims SET token = NULL, worker = NULL');
      await set(ids[0], 'Failed');
      await set(ids[1], 'Completed');
      const counts = await deskOf().retry('pages', { ids: ids.slice(0, 2), dryRun: false });
      expect(counts).toMatchObject({ requeued: 1, skipped: 1 });
      expect(counts.records[1]).toMatchObject({ id: ids[1], reason: 'not_failed' });
      const { status, error } = await page(ids[0]);
      expect([status, error]).toEqual(['Queued', null]);
      expect((await pool.query('SELECT FROM smart_router.claims')).rowCount).toBe(0);
      expect(await resets()).toMatchObject([{ record_id: ids[0], reason: 'by_hand', resets: 2 }]);
    });

    it('takes no other record for an id that is too long, and several spellings of one for one', async () => {
      const failed = (type: string, given: string[]) =>
        pool.query(`DROP TABLE pages; CREATE TABLE pages (id ${type} PRIMARY KEY, url text, status page_status, error text, updated_at timestamptz);
          INSERT INTO pages (id, status) SELECT id::${type}, 'Failed' FROM unnest(ARRAY['${given.join("', '")}']) AS id`);
      for (const [type, id, other] of [
        ['varchar(5)', 'ORD-1', 'ORD-10'],
        ['char(5)', 'ORD-1', 'ORD-10'],
        ['numeric(10, 1)', '1.5', '1.54'],
        ['timestamp(0)', '2026-01-01 00:00:00', '2026-01-01 00:00:00.4'],
      ] as const) {
        await failed(type, [id]);
        expect(await deskOf().retry('pages', { ids: [other, id], dryRun: false })).toMatchObject({
          requeued: 1,
          records: [{ id: other, reason: 'not_found' }, { id }],
        });
      }
      await failed('integer', ['7', '8']);
      for (const dryRun of [true, false])
        expect(await deskOf().retry('pages', { ids: ['07', '8', '7', '+7'], dryRun })).toMatchObject({
          ...{ requeued: 2, total: 2, records: [{ id: '7' }, { id: '8' }] },
        });
      expect(await resets()).toHaveLength(6);
    });

    it('changes nothing in a dry run', async () => {
      await set(ids[0], 'Failed');
      expect(await deskOf().retry('pages', { ids: [ids[0] ?? ''], dryRun: true })).toMatchObject({
        requeued: 1,
      });
      expect(await page(ids[0])).toMatchObject({ status: 'Failed', error: 'boom' });
    });

    it('works on a table without an error column', async () => {
      await pool.query('ALTER TABLE pages DROP COLUMN error');
      await pool.query("UPDATE pages SET status = 'Failed' WHERE id = $1", [ids[0]]);
      const { error: _, ...definition } = { ...pagesWorkflow(), error: undefined };
      const operations = new RecordOperations({
        pool,
        workflows: [definition as never],
        stuckAfterMs: 1000,
        log: silentLogger,
      });
      expect(await operations.retry('pages', { ids: [ids[0] ?? ''], dryRun: false })).toMatchObject({
        requeued: 1,
      });
    });
  });

  it('wakes the loops by NOTIFY', async () => {
    const client = await postgres.client();
    const heard = new Promise((resolve) => client.once('notification', ({ payload }) => resolve(payload)));
    await client.query('LISTEN smart_router_records');
    await set(ids[0], 'Failed');
    await deskOf().retry('pages', { ids: [ids[0] ?? ''], dryRun: false });
    expect(await heard).toBe('pages');
  });

  it.each([
    ['an unknown workflow', 'nothing', ['1'], 'workflow_not_found', /the workflows are pages/],
    ['no ids', 'pages', [], 'invalid_request', /1 to 1000 records, got 0/],
    [
      'an id that the column cannot have',
      'pages',
      ['x'],
      'invalid_request',
      /not an id of this table: .*uuid: "x"/,
    ],
  ])('refuses %s', async (_, name, given, code, message) => {
    const refused = deskOf().reset(name, { ids: given, dryRun: false });
    await expect(refused).rejects.toMatchObject({ code, message: expect.stringMatching(message) });
  });
});

describeOnePostgres('record operations on a database', (postgres) => {
  it('that is unreachable fail with 503', async () => {
    const pool = postgres.pool({ connectionTimeoutMillis: 1000 });
    await postgres.stop();
    const operations = new RecordOperations({
      pool,
      workflows: [pagesWorkflow()],
      stuckAfterMs: 1000,
      log: silentLogger,
    });
    await expect(operations.list()).rejects.toMatchObject({ code: 'database_unavailable', status: 503 });
  });

  it('that refuses the password fail with 503', async () => {
    const url = new URL(postgres.url);
    url.password = 'wrong';
    const pool = postgres.pool({ connectionString: url.href });
    const operations = new RecordOperations({
      pool,
      workflows: [pagesWorkflow()],
      stuckAfterMs: 1000,
      log: silentLogger,
    });
    await expect(operations.list()).rejects.toMatchObject({
      code: 'database_unavailable',
      message: expect.stringMatching(/password authentication failed/),
    });
  });
});

describe('advice about timeouts', () => {
  const quiet = { timedOut: 0, deadWorker: 0, unclaimed: 0, longestSeconds: null };
  const workflow = pagesWorkflow({ timeout: '5m' });

  it('is empty where everything fits', () => {
    expect(adviseTimes(workflow, quiet, 3_600_000)).toEqual([]);
    expect(adviseTimes(workflow, quiet, 3_600_000, 60)).toEqual([]);
  });

  it('names a timeout shorter than the work', () => {
    expect(adviseTimes(workflow, { ...quiet, timedOut: 3 }, 3_600_000)).toEqual([
      expect.stringMatching(/^3 records exceeded the timeout of 5m /),
    ]);
    expect(adviseTimes(workflow, { ...quiet, longestSeconds: 290 }, 3_600_000)).toEqual([
      expect.stringMatching(/processed for 4m50s; the timeout is 5m$/),
    ]);
    expect(adviseTimes(workflow, quiet, 3_600_000, 240)).toEqual([
      expect.stringMatching(/a `timeout` of 12m would be safer than 5m$/),
    ]);
  });

  it('names a timeout much longer than the work', () => {
    expect(adviseTimes(workflow, quiet, 3_600_000, 0.2)).toEqual([
      expect.stringMatching(/^99 of 100 records take up to 1s: a `timeout` of 30s instead of 5m /),
    ]);
  });

  it('says how long rows of other programs in Processing wait', () => {
    expect(adviseTimes(workflow, { ...quiet, unclaimed: 2 }, 3_600_000)).toEqual([
      expect.stringMatching(/^rows found in Processing without a claim .*: 2; .* each waits 1h$/),
    ]);
  });
});
