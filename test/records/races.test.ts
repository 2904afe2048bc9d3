/**
 * Races between the snapshot of a statement and its locks. The statement waits
 * at a gate, a lock of the database, right after its picture of the database has been taken.
 */

import type { Pool } from 'pg';
import { expect, it } from 'vitest';
import type { Claim, RecordStore } from '../../src/records/store.js';
import { defaultBounds } from '../../src/records/workflow.js';
import { describePostgres, type SuitePostgres } from '../support/postgres.js';
import { until } from '../support/until.js';
import { deadWorker, pagesWorkflow, statuses, storeOf, teamTable } from './fixture.js';

const gate = 4711;
const claims = 'FROM smart_router.claims AS c\n  WHERE';
const gated = (sql: string) => {
  const changed = sql.replace(
    claims,
    `FROM (SELECT pg_advisory_xact_lock(${gate}) OFFSET 0) AS gate, smart_router.claims AS c\n  WHERE`,
  );
  expect(changed).not.toBe(sql);
  return changed;
};

/** Runs the statement, and `during` once it waits at its gate. Resolves to its rows. */
async function raced(
  postgres: SuitePostgres,
  pool: Pool,
  sql: string,
  args: unknown[],
  during: () => Promise<unknown>,
): Promise<Record<string, unknown>[]> {
  const keeper = await postgres.client();
  const runner = await postgres.client();
  await keeper.query('SELECT pg_advisory_lock($1)', [gate]);
  const run = runner.query(gated(sql), args);
  run.catch(() => {});
  const waiting = "SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = $1 AND NOT granted";
  await until(async () => (await pool.query(waiting, [gate])).rowCount === 1, 'it waits at the gate');
  await during();
  await keeper.query('SELECT pg_advisory_unlock($1)', [gate]);
  return (await run).rows;
}

async function newWorker(pool: Pool): Promise<number> {
  const { rows } = await pool.query(
    "INSERT INTO smart_router.workers (process, host, pid) VALUES (gen_random_uuid(), 'new', 1) RETURNING id",
  );
  return rows[0].id;
}

describePostgres('between check and lock', (postgres) => {
  const cases: [
    what: string,
    silentMs: number,
    during: (store: RecordStore, pool: Pool, claim: Claim) => Promise<unknown>,
    then: string,
  ][] = [
    [
      'was finished',
      60_000,
      (store, _, { id, token }) => store.finish([{ id, token, error: null }]),
      'Completed',
    ],
    ['was renewed', 0, (store, _, claim) => store.renew([claim]), 'Processing'],
    [
      'was requeued and has a new owner',
      60_000,
      async (store, pool) => {
        expect((await store.recoverClaims(10, defaultBounds))?.recovered).toHaveLength(1);
        expect(await store.claim(await newWorker(pool), 10, 300_000, 0)).toHaveLength(1);
      },
      'Processing',
    ],
  ];

  it.each(cases)('a claim that %s is not taken by the fast sweep', async (_, silentMs, during, then) => {
    const pool = postgres.pool();
    await teamTable(pool, 1);
    const store = await storeOf(pool);
    const [claim] = await deadWorker(pool, { silentMs });
    if (!claim) throw new Error('it is claimed');
    // One whose worker lives is past its timeout.
    if (silentMs === 0)
      await pool.query("UPDATE smart_router.claims SET claimed_at = now() - interval '1 h'");
    const { workflowId, queries } = store.table;
    const args = [workflowId, 10, 45_000, 30_000, null, 0, null];
    const rows = await raced(postgres, pool, queries.recoverClaims, args, () => during(store, pool, claim));
    expect(rows.filter(({ id }) => id !== null)).toEqual([]);
    expect(await statuses(pool)).toEqual({ [then]: 1 });
  });

  it('the claim of a claimed record is not deleted', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 1);
    const store = await storeOf(pool);
    await store.release(await deadWorker(pool));
    const args = [store.table.workflowId, 10, 45_000, 30_000];
    await raced(postgres, pool, store.table.queries.forget, args, async () => {
      expect(await store.claim(await newWorker(pool), 10, 300_000, 0)).toHaveLength(1);
    });
    expect((await pool.query('SELECT FROM smart_router.claims')).rowCount).toBe(1);
  });

  it('a handler after its last check commits before its record is claimed again', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 1);
    const store = await storeOf(pool, pagesWorkflow());
    const [claim] = await store.claim(await newWorker(pool), 1, 300_000, 0);
    if (!claim) throw new Error('it is claimed');
    const handler = await pool.connect();
    await handler.query('BEGIN');
    expect(await store.hold(handler, claim, 60_000, true)).toEqual(expect.any(String));
    // An operator requeues it.
    await pool.query("UPDATE pages SET status = 'Queued'");
    let isCommitted = false;
    const again = store.claim(await newWorker(pool), 1, 300_000, 0).then((got) => ({ got, isCommitted }));
    const waiting =
      "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
    const over = again.then(() => true);
    await until(
      async () =>
        (await pool.query(waiting)).rowCount === 1 || (await Promise.race([over, Promise.resolve(false)])),
      'the claim waits',
    );
    isCommitted = true;
    await handler.query('COMMIT');
    handler.release();
    expect(await again).toMatchObject({ got: [{ id: claim.id }], isCommitted: true });
  });
});
