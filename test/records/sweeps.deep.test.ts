/** Rounds of the recovery: side effects on other rounds, other workflows and the counts. */

import type { Pool } from 'pg';
import { expect, it } from 'vitest';
import type { RecoveryOptions } from '../../src/records/index.js';
import { defaultBounds } from '../../src/records/workflow.js';
import { ManualClock } from '../support/manual-clock.js';
import { describeBothPostgres, describeOnePostgres } from '../support/postgres.js';
import { until } from '../support/until.js';
import {
  deadWorker,
  foreign,
  pagesWorkflow,
  recovers,
  resetsOf,
  statuses,
  storeOf,
  teamTable,
} from './fixture.js';

const wideStuck = (pool: Pool, rows: number) =>
  pool.query(
    `INSERT INTO pages (url, status, updated_at)
     SELECT repeat('x', 800), 'Processing', now() - interval '2 h' FROM generate_series(1, $1) AS i`,
    [rows],
  );

describeBothPostgres('two recoveries at once', (postgres) => {
  it('without an index recover everything together', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 0, { index: false });
    await wideStuck(pool, 24_000);
    const one = { pool, workflows: [pagesWorkflow()], batchSize: 100 };
    await Promise.all([recovers(postgres, one).runOnce(), recovers(postgres, one).runOnce()]);
    expect(await statuses(pool)).toEqual({ Queued: 24_000 });
    expect(await resetsOf(pool)).toHaveLength(24_000);
  });
});

describeOnePostgres('recovery rounds', (postgres) => {
  /** The database's clock stands, as good as still; the recovery's own is moved by the test. */
  const started = async (options: RecoveryOptions) => {
    const clock = new ManualClock();
    const recovery = recovers(postgres, { ...options, clock });
    await recovery.start();
    const ended = (loop: number) =>
      (recovery.loops[loop]?.rounds ?? 0) + (recovery.loops[loop]?.crashes ?? 0);
    let rounds = 0;
    const round = async () => {
      rounds += 1;
      await until(() => ended(0) >= rounds && clock.sleepsMs.length >= 2, 'a round');
    };
    await round();
    const next = async (times = 1) => {
      for (let i = 0; i < times; i += 1) {
        clock.advance(20_000);
        await round();
      }
    };
    return { recovery, next };
  };

  it('a statement that breaks its session does not delay the judging of heartbeats', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 1);
    await pool.query('CREATE TABLE broken (LIKE pages INCLUDING ALL)');
    const broken = pagesWorkflow({ name: 'broken', table: 'broken' });
    await pool.query("INSERT INTO broken (url) VALUES ('x')");
    await deadWorker(pool, { workflow: broken, silentMs: 3_600_000 });
    await deadWorker(pool);
    await pool.query(`
      CREATE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION USING ERRCODE = ''57P05''; END';
      CREATE TRIGGER cut BEFORE UPDATE ON broken FOR EACH ROW EXECUTE FUNCTION cut()`);
    const { next } = await started({ pool, workflows: [broken, pagesWorkflow()] });
    // After a crash the pause is a little longer than after a round.
    for (let i = 0; i < 8 && (await statuses(pool)).Queued !== 1; i += 1) await next();
    expect(await statuses(pool)).toEqual({ Queued: 1 });
  });

  it('claims that may not be judged yet are not counted as stuck', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 2);
    const [timedOut] = await deadWorker(pool);
    await pool.query(
      "UPDATE smart_router.claims SET claimed_at = now() - interval '1 h' WHERE record_id = $1",
      [timedOut?.id],
    );
    const told: number[] = [];
    const { next } = await started({
      pool,
      workflows: [pagesWorkflow()],
      observer: { stuck: (_, records) => told.push(records) },
    });
    await next(3);
    expect(told).toEqual([0, 0, 0, 0]);
    expect(await statuses(pool)).toEqual({ Queued: 2 });
  });

  it('a slow count is repeated between counts with its age', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 0, { index: false });
    await pool.query(`INSERT INTO pages (url, status)
      SELECT repeat('x', 1900), 'Completed' FROM generate_series(1, 36000)`);
    await foreign(pool, 120);
    await pool.query('ANALYZE pages');
    const told: [number, number][] = [];
    const { recovery, next } = await started({
      pool,
      workflows: [pagesWorkflow({ stuck: { policy: 'hold' } })],
      observer: { stuck: (_, records, seconds) => told.push([records, seconds]) },
    });
    await until(() => (recovery.loops[1]?.rounds ?? 0) > 0, 'the slow sweep has run');
    const first = told.length;
    await next(3);
    expect(told.length).toBe(first + 3);
    expect(new Set(told.map(([records]) => records))).toEqual(new Set([1]));
    const [before = 0, after = 0] = [told[first - 1]?.[1], told.at(-1)?.[1]];
    expect(Math.round(after - before)).toBe(60);
  });

  it('the mass-stall state is reported from the first round', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 0);
    const brakes: boolean[] = [];
    const { next } = await started({
      pool,
      workflows: [pagesWorkflow()],
      observer: { massStall: (isHolding) => brakes.push(isHolding) },
    });
    await next(4);
    expect(brakes).toEqual([false]);
  });

  it('a workflow that cannot be swept does not keep old rows', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 0);
    await pool.query('CREATE TABLE broken (LIKE pages INCLUDING ALL)');
    const workflows = [pagesWorkflow({ name: 'broken', table: 'broken' })];
    const recovery = recovers(postgres, { pool, workflows });
    await recovery.runOnce();
    await pool.query('DROP TABLE broken');
    await pool.query(`INSERT INTO smart_router.resets (at, workflow, record_id, reason, outcome, resets)
      VALUES (now() - interval '91 days', 1, 'x', 'unclaimed', 'requeued', 0)`);
    await recovery.start();
    await until(() => (recovery.loops[1]?.crashes ?? 0) > 0, 'the slow sweep crashes');
    expect(await resetsOf(pool)).toEqual([]);
  });

  it('each log line has the ids of its group', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 2);
    const claims = await deadWorker(pool);
    await pool.query(
      "UPDATE smart_router.claims SET claimed_at = now() - interval '1 h' WHERE record_id = $1",
      [claims[0]?.id],
    );
    const recovery = recovers(postgres, { pool, workflows: [pagesWorkflow()] });
    await recovery.runOnce();
    const said = recovery.log.said('stuck records recovered');
    expect(said.map(({ reason, ids }) => [reason, ids]).sort()).toEqual([
      ['dead_worker', [claims[1]?.id]],
      ['timed_out', [claims[0]?.id]],
    ]);
  });

  it('a table without an index is counted by ranges of blocks', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 3, { index: false });
    await deadWorker(pool, { most: 2 });
    await wideStuck(pool, 24_000);
    await foreign(pool, 300);
    const store = await storeOf(pool);
    const bounds = defaultBounds;
    const whole = await store.stuck(1, bounds);
    const pieces = await store.stuckByBlocks(bounds);
    expect(pieces.total).toBe(24_003);
    expect(whole.total).toBe(24_003);
    expect(Math.abs(pieces.oldestSeconds - whole.oldestSeconds)).toBeLessThan(60);
    expect(pieces.oldestSeconds).toBeGreaterThan(5 * 3600 - 60);
  });
});
