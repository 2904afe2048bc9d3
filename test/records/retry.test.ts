/** Retries of failed records: queued again after a pause, without a column in the team's table. */
import { expect, it } from 'vitest';
import { describePostgres } from '../support/postgres.js';
import { page, pagesWorkflow, recovers, startable, statuses, storeOf, teamTable } from './fixture.js';

const skipPause = 'UPDATE smart_router.claims SET not_before = now() WHERE not_before > now()';
const fails = () => {
  throw new Error('no');
};

describePostgres('a failed record', (postgres) => {
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
      [23, 30],
      [47, 60],
    ]) {
      expect(await loop.runOnce()).toMatchObject({ claimed: 1, failed: 0, retried: 1 });
      expect(await page(pool)).toMatchObject({ status: 'Queued', error: 'no' });
      expect(await store.waiting()).toMatchObject({ retries: 1, fullKeys: null });
      const { rows } = await pool.query(
        'SELECT extract(epoch FROM not_before - now())::float8 AS seconds FROM smart_router.claims',
      );
      expect(rows[0].seconds).toBeGreaterThan(from ?? 0);
      expect(rows[0].seconds).toBeLessThan(to ?? 0);
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
