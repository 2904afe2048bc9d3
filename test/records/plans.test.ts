/**
 * Statements of many records compare no record with every other one, however few rows the planner expects, and do not read
 * claims that have ended.
 */
import { expect, it } from 'vitest';
import { describePostgres } from '../support/postgres.js';
import { pagesWorkflow, storeOf, teamTable } from './fixture.js';

const records = 500;

/** Rows that the joins of a plan compared and rejected. */
function comparisons(plan: unknown): number {
  if (typeof plan !== 'object' || plan === null) return 0;
  return Object.entries(plan).reduce(
    (sum, [key, value]) =>
      sum +
      (key === 'Rows Removed by Join Filter'
        ? Number(value) * Number((plan as Record<string, unknown>)['Actual Loops'])
        : comparisons(value)),
    0,
  );
}

/** Entries that the scans of an index returned, with those of deleted rows. */
function entriesRead(plan: unknown, index: string): number {
  if (typeof plan !== 'object' || plan === null) return 0;
  const { 'Index Name': name, 'Actual Rows': rows, 'Actual Loops': loops } = plan as Record<string, unknown>;
  return Object.values(plan).reduce(
    (sum: number, value) => sum + entriesRead(value, index),
    name === index ? Number(rows) * Number(loops) : 0,
  );
}

describePostgres('the plan', (postgres) => {
  it('of a claim and of a finish grows with the number of records, not with its square', async () => {
    const pool = postgres.pool({ max: 1 });
    await teamTable(pool, 0);
    // The planner knows the table as it was when the queue was empty.
    await pool.query('ALTER TABLE pages SET (autovacuum_enabled = off)');
    await pool.query('ALTER TABLE smart_router.claims SET (autovacuum_enabled = off)');
    await pool.query('ANALYZE pages; ANALYZE smart_router.claims');
    await pool.query("INSERT INTO pages (url) SELECT 'page ' || i FROM generate_series(1, $1) AS i", [
      2 * records,
    ]);
    const limited = pagesWorkflow({
      limit: { key: 'url', max: 1 },
      retry: { max: 3 },
    });
    const store = await storeOf(pool, limited);
    const { queries, workflowId } = store.table;
    const compared = async (sql: string, args: unknown[]) => {
      await pool.query('BEGIN');
      const { rows } = await pool.query(`EXPLAIN (ANALYZE, FORMAT JSON) ${sql}`, args);
      await pool.query('ROLLBACK');
      return comparisons(rows);
    };
    const claim = [workflowId, records, 1, 60_000, null];
    const found: Record<string, number> = {
      claim: await compared(queries.claim, claim),
    };
    const lock = [workflowId, records, 250, null, 125, true, '60000', null];
    for (const name of ['lockLimited', 'lockLimitedScan'] as const) {
      found[name] = await compared(queries[name], lock);
      const locked = (await pool.query(queries[name], lock)).rows[0];
      const args = [...claim.slice(0, 4), locked.ids, locked.hashes];
      found[`claimLimited after ${name}`] = await compared(queries.claimLimited, args);
    }
    const { rows } = await pool.query<Record<string, string>>(queries.claim, claim);
    const ids = rows.map((row) => row['smart_router.id'] ?? '');
    expect(ids).toHaveLength(records);
    const tokens = Object.fromEntries(rows.map((row) => [row['smart_router.id'], row['smart_router.token']]));
    const errors = Object.fromEntries(ids.map((id) => [id, 'failed']));
    for (const name of ['finish', 'finishRetry', 'finishUnlocked', 'finishRetryUnlocked'] as const)
      found[name] = await compared(queries[name], [
        ...[workflowId, ids, JSON.stringify(tokens), JSON.stringify(errors)],
      ]);
    found.release = await compared(queries.release, [workflowId, ids, JSON.stringify(tokens)]);
    found.renew = await compared(queries.renew, [workflowId, ids, ids.map((id) => tokens[id])]);
    expect(Object.entries(found).filter(([, rows]) => rows > 10 * records)).toEqual([]);
  });

  it('of a finish reads its own claims, not those that have ended since the last vacuum', async () => {
    const pool = postgres.pool({ max: 1 });
    await teamTable(pool, records);
    const store = await storeOf(pool, pagesWorkflow({ retry: { max: 3 } }));
    const { queries, workflowId } = store.table;
    await pool.query('ALTER TABLE smart_router.claims SET (autovacuum_enabled = off)');
    await pool.query('ANALYZE smart_router.claims');
    await pool.query(
      "INSERT INTO smart_router.claims (workflow, record_id) SELECT $1, 'ended ' || i FROM generate_series(1, 20000) AS i",
      [workflowId],
    );
    await pool.query('DELETE FROM smart_router.claims');
    const claims = await store.claim(1, records, 60_000, 0);
    const ids = claims.map(({ id }) => id);
    expect(ids).toHaveLength(records);
    const tokens = JSON.stringify([claims[0]?.token, {}]);
    const errors = JSON.stringify(Object.fromEntries(ids.map((id) => [id, 'failed'])));
    const read: Record<string, number> = {};
    for (const name of [
      'finish',
      'finishRetry',
      'finishUnlocked',
      'finishRetryUnlocked',
      'release',
    ] as const) {
      await pool.query('BEGIN');
      const args = [workflowId, ids, tokens, ...(name === 'release' ? [] : [errors])];
      const { rows } = await pool.query(`EXPLAIN (ANALYZE, FORMAT JSON) ${queries[name]}`, args);
      await pool.query('ROLLBACK');
      read[name] = entriesRead(rows, 'claims_pkey');
    }
    expect(Object.entries(read).filter(([, entries]) => entries < records || entries > 10 * records)).toEqual(
      [],
    );
  });
});
