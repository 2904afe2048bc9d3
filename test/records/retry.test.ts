/** Retries of failed records: queued again after a pause, without a column in the team's table. */
import { Registry } from 'prom-client';
import { expect, it } from 'vitest';
import { systemClock } from '../../src/clock.js';
import { RecordsStatusTracker } from '../../src/main/records-status.js';
import { silentLogger } from '../../src/observe/log.js';
import { RecordMetrics } from '../../src/records/metrics.js';
import { RecordOperations } from '../../src/records/operations.js';
import { describePostgres } from '../support/postgres.js';
import { until } from '../support/until.js';
import {
  deadWorker,
  page,
  pagesWorkflow,
  recovers,
  startable,
  statuses,
  storeOf,
  teamTable,
} from './fixture.js';

const skipPause = 'UPDATE smart_router.claims SET not_before = now() WHERE not_before > now()';
const fails = () => {
  throw new Error('no');
};

describePostgres('a failed record', (postgres) => {
  /** One record has failed, and waits for its retry. */
  const oneWaits = async () => {
    const pool = postgres.pool();
    await teamTable(pool, 1);
    const workflow = pagesWorkflow({ process: fails, retry: { max: 2, backoff: '1h' } });
    const loop = startable(postgres, { pool, workflows: [workflow] });
    expect(await loop.runOnce()).toMatchObject({ retried: 1 });
    return { pool, workflow, recovery: recovers(postgres, { pool, workflows: [workflow] }) };
  };

  it('is queued again after growing pauses, then goes to Failed', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 1);
    const retried: number[] = [];
    const workflow = pagesWorkflow({ process: fails, retry: { max: 2, backoff: '30s' } });
    const loop = startable(postgres, {
      ...{ pool, workflows: [workflow], observer: { retried: (_, records) => retried.push(records) } },
    });
    const store = await storeOf(pool, workflow);
    for (const [from, to] of [
      [24, 30],
      [48, 60],
    ]) {
      expect(await loop.runOnce()).toMatchObject({ claimed: 1, failed: 0, retried: 1 });
      expect(await page(pool)).toMatchObject({ status: 'Queued', error: 'no' });
      expect(await store.waiting()).toMatchObject({ waitingForRetry: 1, keysAtLimit: null });
      const { rows } = await pool.query(
        'SELECT extract(epoch FROM not_before - updated_at)::float8 AS seconds FROM smart_router.claims, pages',
      );
      expect(rows[0].seconds).toBeGreaterThanOrEqual(from ?? 0);
      expect(rows[0].seconds).toBeLessThanOrEqual(to ?? 0);
      // Not claimed before its time, and the recovery keeps its count.
      expect(await loop.runOnce()).toMatchObject({ claimed: 0 });
      await pool.query(skipPause);
      expect(await recovers(postgres, { pool, workflows: [workflow] }).runOnce()).toMatchObject({
        requeued: 0,
      });
    }
    expect(await loop.runOnce()).toMatchObject({ claimed: 1, failed: 1, retried: 0 });
    expect(await statuses(pool)).toEqual({ Failed: 1 });
    expect((await pool.query('SELECT FROM smart_router.claims')).rowCount).toBe(0);
    expect(retried).toEqual([1, 1]);
    expect(loop.log.said('failed records queued again')).toHaveLength(2);
  });

  it('without `retry` is Failed at once', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 1);
    const loop = startable(postgres, { pool, workflows: [pagesWorkflow({ process: fails })] });
    expect(await loop.runOnce()).toMatchObject({ failed: 1, retried: 0 });
  });

  it('that was changed by hand keeps that change, without a pause', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 1);
    const workflow = pagesWorkflow({ retry: { max: 2 } });
    const store = await storeOf(pool, workflow);
    for (const status of ['Completed', 'Queued']) {
      const [claim] = await store.claim(1, 1, 300_000, 0);
      if (!claim) throw new Error('it is claimed');
      await pool.query('UPDATE pages SET status = $1', [status]);
      const finished = await store.finish([{ ...claim, error: 'no' }]);
      expect(finished).toMatchObject({ unchanged: [claim.id], retried: new Set() });
      expect(await page(pool)).toMatchObject({ status, error: null });
      await pool.query("UPDATE pages SET status = 'Queued'");
    }
    // Set to Completed while it waits.
    const [claim] = await store.claim(1, 1, 300_000, 0);
    if (!claim) throw new Error('it is claimed');
    await store.finish([{ ...claim, error: 'no' }]);
    await pool.query("UPDATE pages SET status = 'Completed'");
    await recovers(postgres, { pool, workflows: [workflow] }).runOnce();
    expect((await pool.query('SELECT FROM smart_router.claims')).rowCount).toBe(0);
    expect(await statuses(pool)).toEqual({ Completed: 1 });
  });

  it('that waits is counted, listed, and retried by hand at once, with all attempts', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 3);
    const workflow = pagesWorkflow({ process: fails, retry: { max: 1, backoff: '1h' } });
    const loop = startable(postgres, { pool, workflows: [workflow] });
    expect(await loop.runOnce()).toMatchObject({ retried: 3 });
    await pool.query(skipPause);
    await pool.query(
      "UPDATE smart_router.claims SET not_before = now() + interval '1 h' WHERE ctid IN (SELECT ctid FROM smart_router.claims LIMIT 1)",
    );
    expect(await loop.runOnce()).toMatchObject({ failed: 2, retried: 0 });
    const tracker = new RecordsStatusTracker(systemClock);
    tracker.answered(true);
    await recovers(postgres, { pool, workflows: [workflow], observer: tracker.observer }).start();
    await until(() => tracker.gauges().waiting?.has('pages') === true, 'the fast sweep has counted');
    const registry = new Registry();
    new RecordMetrics(registry).render(tracker.gauges());
    const text = await registry.metrics();
    expect(text).toContain('smart_router_records_waiting_for_retry{workflow="pages"} 1\n');
    expect(text).toMatch(/^smart_router_records_next_retry_seconds\{workflow="pages"\} 3\d{3}\./m);
    expect(text).not.toContain('smart_router_records_keys_at_limit{');

    const operations = new RecordOperations({ pool, workflows: [workflow], log: silentLogger });
    expect(await operations.inspect('pages')).toMatchObject({ queued: 1, failed: 2, waitingForRetry: 1 });
    const listed = await operations.failed('pages', 10);
    expect(listed.map(({ error, retrySeconds }) => [error, retrySeconds !== null])).toEqual([
      ['no', false],
      ['no', false],
      ['no', true],
    ]);
    expect(await operations.retryAll('pages', { dryRun: true })).toMatchObject({ requeued: 3, total: 3 });
    const waiting = listed.at(-1)?.id ?? '';
    expect(await operations.reset('pages', { ids: [waiting], dryRun: false })).toMatchObject({ skipped: 1 });
    expect(await operations.retry('pages', { ids: [waiting], dryRun: false })).toMatchObject({ requeued: 1 });
    expect(await page(pool, waiting)).toMatchObject({ status: 'Queued', error: null });
    // It has both runs again.
    expect(await loop.runOnce()).toMatchObject({ claimed: 1, retried: 1 });
    // A retry of all includes it, and ends although it fails again.
    expect(await operations.retryAll('pages', { dryRun: false })).toMatchObject({ requeued: 3, skipped: 0 });
    expect(await loop.runOnce()).toMatchObject({ claimed: 3, retried: 3 });
  });

  it('and failed ones with a time in the future are in a retry of all', async () => {
    const { pool, workflow } = await oneWaits();
    await pool.query(
      "INSERT INTO pages (url, status, updated_at) VALUES ('x', 'Failed', now() + interval '2 h')",
    );
    const operations = new RecordOperations({ pool, workflows: [workflow], log: silentLogger });
    for (const dryRun of [true, false])
      expect(await operations.retryAll('pages', { dryRun })).toMatchObject({ requeued: 2, total: 2 });
  });

  it.each(["now() + interval '2 h'", "'infinity'", "'-infinity'", 'NULL'])(
    'is in a retry of all once, although a trigger sets its time to %s and it fails again at once',
    async (time) => {
      const { pool, workflow } = await oneWaits();
      await pool.query(`
        DELETE FROM pages;
        CREATE FUNCTION own_time() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.updated_at = ${time}; RETURN NEW; END $$;
        CREATE TRIGGER own_time BEFORE INSERT OR UPDATE ON pages FOR EACH ROW EXECUTE FUNCTION own_time();
        INSERT INTO pages (url, status) VALUES ('a', 'Failed'), ('b', 'Failed')`);
      const operations = new RecordOperations({ pool, workflows: [workflow], log: silentLogger });
      const retry = operations.retry.bind(operations);
      let rounds = 0;
      operations.retry = async (...given) => {
        rounds += 1;
        if (rounds > 1) throw new Error('a second round');
        const counts = await retry(...given);
        await pool.query("UPDATE pages SET status = 'Failed'");
        return counts;
      };
      expect(await operations.retryAll('pages', { dryRun: false })).toMatchObject({ requeued: 2, total: 2 });
    },
  );

  it('whose worker died in the retry does not wait for a retry, and keeps its resets', async () => {
    const { pool, workflow, recovery } = await oneWaits();
    // The first reset has no pause.
    for (let death = 1; death <= 2; death += 1) {
      await pool.query(skipPause);
      await deadWorker(pool, { workflow });
      expect(await recovery.runOnce()).toMatchObject({ requeued: 1 });
    }
    const pauses = 'SELECT resets, attempts, not_before > now() AS pauses FROM smart_router.claims';
    const reset = { resets: 2, attempts: 1, pauses: true };
    expect((await pool.query(pauses)).rows).toEqual([reset]);

    const operations = new RecordOperations({ pool, workflows: [workflow], log: silentLogger });
    expect(await operations.inspect('pages')).toMatchObject({ queued: 1, waitingForRetry: 0 });
    expect(await operations.failed('pages', 10)).toEqual([]);
    expect(await operations.retryAll('pages', { dryRun: false })).toMatchObject({ total: 0 });
    const { id } = await page(pool);
    const named = await operations.retry('pages', { ids: [id], dryRun: false });
    expect(named).toMatchObject({ skipped: 1, records: [{ reason: 'not_failed' }] });
    expect((await pool.query(pauses)).rows).toEqual([reset]);
  });

  it('that another program sets to Processing while it waits, and leaves there, no longer waits for a retry', async () => {
    const { pool, workflow, recovery } = await oneWaits();
    // The first reset has no pause.
    for (let reset = 1; reset <= 2; reset += 1) {
      await pool.query("UPDATE pages SET status = 'Processing', updated_at = now() - interval '1 day'");
      expect(await recovery.runOnce()).toMatchObject({ requeued: 1 });
    }
    const operations = new RecordOperations({ pool, workflows: [workflow], log: silentLogger });
    expect(await operations.inspect('pages')).toMatchObject({ queued: 1, waitingForRetry: 0 });
  });

  it('whose reply was lost is not counted as late, and its token is void', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 1);
    const store = await storeOf(pool, pagesWorkflow({ retry: { max: 2 } }));
    const [claim] = await store.claim(1, 1, 300_000, 0);
    if (!claim) throw new Error('it is claimed');
    const outcome = { id: claim.id, token: claim.token, error: 'no' };
    expect((await store.finish([outcome])).retried).toEqual(new Set([claim.id]));
    expect((await store.finish([outcome])).written.size).toBe(0);
    expect(await store.settled([outcome])).toEqual([claim.id]);
    expect(await store.settled([{ ...outcome, error: null }])).toEqual([]);
    await pool.query(skipPause);
    expect(await store.claim(1, 1, 300_000, 0)).toHaveLength(1);
    expect(await store.settled([outcome])).toEqual([claim.id]);
  });
});
