/** Recovery of records that lost their worker: when, how often, and not too early. */
import type { Pool } from 'pg';
import { expect, it } from 'vitest';
import { createRecovery, inspect } from '../../src/records/index.js';
import type { WorkflowDefinition } from '../../src/records/workflow.js';
import { ManualClock } from '../support/manual-clock.js';
import { describePostgres } from '../support/postgres.js';
import { tcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';
import {
  deadWorker,
  foreign,
  gate,
  memoryLog,
  type Page,
  page,
  pagesWorkflow,
  recovers,
  resetsOf,
  startable,
  statuses,
  teamTable,
} from './fixture.js';

/** Everything that a dry run must not touch. */
async function everything(pool: Pool): Promise<unknown> {
  const tables = ['pages', 'smart_router.claims', 'smart_router.resets', 'smart_router.workers'];
  const found = [];
  for (const table of tables)
    found.push((await pool.query(`SELECT t::text, xmin::text FROM ${table} AS t ORDER BY 1`)).rows);
  return found;
}

const queueAgain = 'UPDATE smart_router.claims SET not_before = now() WHERE not_before IS NOT NULL';

describePostgres('recovery', (postgres) => {
  it('takes a claim from a live worker after its timeout and grace, not before', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 2);
    await deadWorker(pool, { silentMs: 0, workflow: pagesWorkflow({ timeout: '1m' }) });
    const aged = (seconds: number, url: string) =>
      pool.query(
        `UPDATE smart_router.claims SET claimed_at = now() - $1 * interval '1 s'
         WHERE record_id = (SELECT id::text FROM pages WHERE url LIKE $2)`,
        [seconds, url],
      );
    await aged(60, '%/1');
    await aged(91, '%/2');
    const recovery = recovers(postgres, { pool, workflows: [pagesWorkflow()] });
    const { records } = await recovery.runOnce();
    expect(records).toMatchObject([{ reason: 'timed_out', outcome: 'requeued', worker: 'gone 4711' }]);
    expect(records[0]?.stuckSeconds).toBeGreaterThanOrEqual(91);
  });

  it.each([
    ['requeue', 'Queued', 'Auto-reset from stuck Processing state'],
    ['fail', 'Failed', 'Stuck in Processing state'],
    ['hold', 'Processing', null],
  ] as const)('policy %s holds for rows of others too', async (policy, status, error) => {
    const pool = postgres.pool();
    await teamTable(pool, 0);
    const id = await foreign(pool, 61);
    const workflow = pagesWorkflow({ stuck: { policy } });
    const recovery = recovers(postgres, { pool, workflows: [workflow] });
    const { records } = await recovery.runOnce();
    expect(records).toMatchObject([{ id, reason: 'unclaimed', trace: null, resets: 0 }]);
    expect(await page(pool)).toMatchObject({ status, error });
    expect((await recovery.runOnce()).records).toEqual([]);
    expect((await inspect(pool, workflow)).stuck).toBe(policy === 'hold' ? 1 : 0);
  });

  it('a record held for a person is claimable once a person has requeued it', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 1);
    const workflow = pagesWorkflow({ stuck: { policy: 'hold' } });
    await deadWorker(pool, { workflow });
    const recovery = recovers(postgres, { pool, workflows: [workflow] });
    expect(await recovery.runOnce()).toMatchObject({ held: 1 });
    await pool.query("UPDATE pages SET status = 'Queued'");
    await recovery.runOnce();
    expect((await pool.query('SELECT FROM smart_router.claims')).rowCount).toBe(0);
    await deadWorker(pool, { workflow });
    expect(await recovery.runOnce()).toMatchObject({ held: 1 });
  });

  it('resets of unclaimed rows respect the budget, with growing pauses', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 0);
    const id = await foreign(pool, 120);
    const workflow = pagesWorkflow({ stuck: { maxResets: 2 } });
    const recovery = recovers(postgres, { pool, workflows: [workflow] });
    const outcomes: unknown[] = [];
    for (let i = 0; i < 3; i += 1) {
      const { records } = await recovery.runOnce();
      outcomes.push(records[0]?.outcome);
      // Another program takes it again and leaves it.
      await pool.query(
        "UPDATE pages SET status = 'Processing', updated_at = now() - interval '2 h' WHERE status = 'Queued'",
      );
    }
    expect(outcomes).toEqual(['requeued', 'requeued', 'failed']);
    expect(await page(pool, id)).toMatchObject({ status: 'Failed' });
    expect(await resetsOf(pool)).toHaveLength(3);
  });

  it('a row without a timestamp ages from when it is first seen, until its status changes', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 0);
    const id = await foreign(pool, null);
    const recovery = recovers(postgres, { pool, workflows: [pagesWorkflow()] });
    const age = "UPDATE smart_router.claims SET seen_at = seen_at - interval '61 minutes'";
    expect(await recovery.runOnce()).toMatchObject({ requeued: 0 });
    await pool.query(age);
    // Finished by its owner, and later taken again by a program that writes no timestamp either.
    await pool.query("UPDATE pages SET status = 'Completed'");
    expect(await recovery.runOnce()).toMatchObject({ requeued: 0 });
    await pool.query("UPDATE pages SET status = 'Processing'");
    expect(await recovery.runOnce()).toMatchObject({ requeued: 0 });
    await pool.query(age);
    expect(await recovery.runOnce()).toMatchObject({ requeued: 1 });
    // The same again, though there is a count of resets by now.
    await pool.query("UPDATE pages SET status = 'Processing', updated_at = NULL");
    expect(await recovery.runOnce()).toMatchObject({ requeued: 0 });
    await pool.query(age);
    expect(await recovery.runOnce()).toMatchObject({ records: [{ id, resets: 1, outcome: 'requeued' }] });
  });

  it('works in bounded batches, each in its own transaction', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 10);
    await deadWorker(pool);
    for (let i = 0; i < 10; i += 1) await foreign(pool, 120);
    const recovery = recovers(postgres, { pool, workflows: [pagesWorkflow()], batchSize: 4 });
    expect(await recovery.runOnce()).toMatchObject({ requeued: 20 });
    const { rows } = await pool.query(
      'SELECT count(*)::integer AS n FROM smart_router.resets GROUP BY at ORDER BY at',
    );
    expect(rows.map(({ n }) => n)).toEqual([4, 4, 2, 4, 4, 2]);
  });

  it('two at once recover each record once, and one that finds another sweeping stops', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 100);
    await deadWorker(pool);
    for (let i = 0; i < 100; i += 1) await foreign(pool, 120);
    const one = { pool, workflows: [pagesWorkflow()], batchSize: 7 };
    const other = await postgres.client();
    await other.query('BEGIN');
    const { rows } = await other.query("SELECT id FROM smart_router.workflows WHERE name = 'pages'");
    for (const sweep of ['fast', 'slow'])
      await other.query('SELECT pg_advisory_xact_lock(hashtext($1), $2)', [
        `smart_router.${sweep}_sweep`,
        rows[0].id,
      ]);
    expect(await recovers(postgres, one).runOnce()).toMatchObject({ requeued: 0 });
    await other.query('ROLLBACK');
    const recoveries = Array.from({ length: 4 }, () => recovers(postgres, one));
    const total = async () => {
      const counts = await Promise.all(recoveries.map((recovery) => recovery.runOnce()));
      return counts.reduce((sum, { requeued }) => sum + requeued, 0);
    };
    let sum = 0;
    await until(async () => {
      sum += await total();
      return (await statuses(pool)).Queued === 200;
    }, 'all are back');
    expect(sum).toBe(200);
    expect(await resetsOf(pool)).toHaveLength(200);
  });

  it('a dry run changes nothing, and lists exactly what the real run then does', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 30);
    const workflow = pagesWorkflow({ stuck: { maxResets: 1 } });
    const recovery = recovers(postgres, { pool, workflows: [workflow], batchSize: 7 });
    await deadWorker(pool, { workflow, most: 10 });
    await recovery.runOnce();
    await pool.query(queueAgain);
    await deadWorker(pool, { workflow, most: 25 });
    await pool.query(
      "UPDATE smart_router.claims SET claimed_at = now() - interval '1 h' WHERE record_id IN (SELECT record_id FROM smart_router.claims LIMIT 8)",
    );
    for (let i = 0; i < 5; i += 1) await foreign(pool, 50 + 5 * i);
    await foreign(pool, null);
    await pool.query("UPDATE pages SET status = 'Completed' WHERE url LIKE '%/15' OR url LIKE '%/3'");
    const before = await everything(pool);
    const said = await recovery.runOnce({ dryRun: true });
    expect(await everything(pool)).toEqual(before);
    const did = await recovery.runOnce();
    const plain = ({ records, ...counts }: typeof said) => ({
      ...counts,
      records: records.map(({ stuckSeconds: _, ...record }) => record).sort((a, b) => (a.id < b.id ? -1 : 1)),
    });
    expect(plain(said)).toEqual(plain(did));
    expect(did.requeued).toBeGreaterThan(0);
    expect(did.failed).toBeGreaterThan(0);
    expect(new Set(did.records.map(({ reason }) => reason))).toEqual(
      new Set(['dead_worker', 'timed_out', 'unclaimed']),
    );
  });

  it('a dry run counts all records, also unlisted ones', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 0);
    await pool.query(
      "INSERT INTO pages (url, status, updated_at) SELECT 'x', 'Processing', now() - interval '2 h' FROM generate_series(1, 1100)",
    );
    const recovery = recovers(postgres, { pool, workflows: [pagesWorkflow()] });
    const said = await recovery.runOnce({ dryRun: true });
    expect([said.requeued, said.records.length]).toEqual([1100, 1000]);
    const did = await recovery.runOnce({ workflow: 'pages' });
    expect([did.requeued, did.records.length]).toEqual([1100, 1000]);
    expect(await recovery.runOnce({ workflow: 'other' })).toMatchObject({ requeued: 0 });
  });

  it.each([-5, 5])('a process clock that is %i hours off changes nothing', async (hours) => {
    const pool = postgres.pool();
    await teamTable(pool, 2);
    const clock = new ManualClock(Date.now() + hours * 3_600_000);
    const busy = gate();
    const loop = startable(postgres, {
      pool,
      workflows: [pagesWorkflow({ process: () => busy.opened })],
      clock,
    });
    const run = loop.runOnce();
    await until(async () => (await statuses(pool)).Processing === 2, 'they run');
    await foreign(pool, 30);
    const old = await foreign(pool, 61);
    const recovery = recovers(postgres, { pool, workflows: [pagesWorkflow()], clock });
    expect((await recovery.runOnce()).records).toMatchObject([{ id: old }]);
    const { rows } = await pool.query<{ off: string }>(
      "SELECT max(abs(extract(epoch FROM now() - updated_at))) AS off FROM pages WHERE url NOT LIKE '%foreign%'",
    );
    expect(Number(rows[0]?.off)).toBeLessThan(60);
    busy.open();
    const done = run.then(() => true);
    await until(() => {
      clock.advance(500);
      return Promise.race([done, Promise.resolve(false)]);
    }, 'it ends');
  });

  it('a workflow that cannot be swept does not stop the others', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 0);
    await pool.query('CREATE TABLE broken (LIKE pages INCLUDING ALL)');
    const broken = pagesWorkflow({ name: 'broken', table: 'broken' });
    const recovery = recovers(postgres, { pool, workflows: [broken, pagesWorkflow()] });
    await recovery.runOnce();
    await pool.query('DROP TABLE broken');
    await foreign(pool, 61);
    await expect(recovery.runOnce()).rejects.toThrow('does not exist');
    expect(await statuses(pool)).toEqual({ Queued: 1 });
  });

  it('deletes old resets and old dead workers, and nothing else', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 1);
    const workflow = pagesWorkflow({ stuck: { after: '26h' }, timeout: '26h' });
    await deadWorker(pool, { silentMs: 25 * 3_600_000, host: 'old with claim', workflow });
    await deadWorker(pool, { silentMs: 25 * 3_600_000, host: 'old' });
    await deadWorker(pool, { silentMs: 60_000, host: 'young' });
    await pool.query(`INSERT INTO smart_router.resets (at, workflow, record_id, reason, outcome, resets)
      VALUES (now() - interval '91 days', 1, 'x', 'unclaimed', 'requeued', 0), (now(), 1, 'y', 'unclaimed', 'requeued', 0)`);
    const recovery = recovers(postgres, { pool, workflows: [workflow] });
    await recovery.start();
    await until(() => (recovery.loops[1]?.rounds ?? 0) > 0, 'the slow sweep has run');
    const { rows } = await pool.query('SELECT host FROM smart_router.workers ORDER BY host');
    expect(rows.map(({ host }) => host)).toEqual(['old with claim', 'young']);
    expect((await resetsOf(pool)).map(({ record_id }) => record_id)).toEqual(['y']);
  });

  it('checks the relations between its durations', () => {
    const given = { pool: postgres.pool(), workflows: [], log: memoryLog().log };
    expect(() => createRecovery({ ...given, deadAfter: '30s', fastEvery: '20s' })).toThrow(
      'fastEvery (20s) must be at most half of deadAfter (30s)',
    );
    expect(() => createRecovery({ ...given, slowEvery: 'often' })).toThrow('"often" is not a duration');
  });
});

describePostgres('a running recovery', (postgres) => {
  /** The database's clock stands, as good as still; the recovery's own is moved by the test. */
  const started = async (pool: Pool, more: Partial<WorkflowDefinition<Page>> = {}) => {
    const clock = new ManualClock();
    const brakes: boolean[] = [];
    const recovery = recovers(postgres, {
      pool,
      workflows: [pagesWorkflow(more)],
      clock,
      observer: { massStall: (isHolding) => brakes.push(isHolding) },
    });
    await recovery.start();
    let rounds = 0;
    const round = async () => {
      rounds += 1;
      await until(
        () => (recovery.loops[0]?.rounds ?? 0) + (recovery.loops[0]?.crashes ?? 0) >= rounds,
        'a round',
      );
      await until(() => clock.sleepsMs.length >= 2, 'both sweeps sleep');
      return (await statuses(pool)).Queued ?? 0;
    };
    const next = async () => {
      clock.advance(20_000);
      return round();
    };
    return { clock, brakes, recovery, next, first: await round() };
  };

  it('takes no claim of any age before deadAfter has passed, and unclaimed rows at once', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 3);
    const [timedOut] = await deadWorker(pool);
    await pool.query(
      "UPDATE smart_router.claims SET claimed_at = now() - interval '1 h' WHERE record_id = $1",
      [timedOut?.id],
    );
    await foreign(pool, 61);
    const { first, next } = await started(pool);
    expect(first).toBe(1);
    expect(await next()).toBe(1);
    expect(await next()).toBe(1);
    expect(await next()).toBe(4);
  });

  it('restarts that wait after an outage of the database', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 1);
    await deadWorker(pool);
    const proxy = await tcpProxy(postgres.port);
    const url = postgres.url.replace(`:${postgres.port}/`, `:${proxy.port}/`);
    const clock = new ManualClock();
    const recovery = recovers(postgres, {
      pool: postgres.pool({ connectionString: url }),
      workflows: [pagesWorkflow()],
      clock,
    });
    await recovery.start();
    const rounds = (n: number) => until(() => recovery.loops[0]?.rounds === n, `round ${n}`);
    const sleeping = () => until(() => clock.sleepsMs.length >= 2, 'both sweeps sleep');
    for (let n = 1; n <= 3; n += 1) {
      await rounds(n);
      await sleeping();
      if (n < 3) clock.advance(20_000);
    }
    await proxy.down();
    clock.advance(20_000);
    await until(() => (recovery.loops[0]?.crashes ?? 0) > 0, 'it crashes');
    await proxy.up();
    // A second connection that broke may cost a second crash.
    await until(() => {
      if (recovery.loops[0]?.rounds === 4) return true;
      if (clock.sleepsMs.length >= 2) clock.advance(1000);
      return false;
    }, 'it is back');
    for (let n = 4; n <= 6; n += 1) {
      await rounds(n);
      await sleeping();
      expect(await statuses(pool)).toEqual({ Processing: 1 });
      clock.advance(20_000);
    }
    await rounds(7);
    expect(await statuses(pool)).toEqual({ Queued: 1 });
  });

  it('holds once for deadAfter and alerts when most workers miss their heartbeats at once', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 3);
    for (let i = 0; i < 3; i += 1) await deadWorker(pool, { most: 1, silentMs: 50_000 });
    await deadWorker(pool, { silentMs: 0 });
    await foreign(pool, 61);
    const { first, next, brakes, recovery } = await started(pool);
    // Rows without a claim of ours are never braked.
    expect(first).toBe(1);
    expect([await next(), await next(), brakes]).toEqual([1, 1, []]);
    expect([await next(), brakes]).toEqual([1, [true]]);
    expect([await next(), await next(), brakes]).toEqual([1, 1, [true]]);
    expect(await next()).toBe(4);
    expect(recovery.log.said('most workers missed their heartbeats at once')).toMatchObject([
      { level: 50, stalled: 3, all: 4 },
    ]);
    await pool.query('UPDATE smart_router.workers SET heartbeat_at = now()');
    await next();
    expect(brakes).toEqual([true, false]);
  });

  it.each([
    ['two of two', 2, 0],
    ['three of seven', 3, 4],
  ])('%s workers without heartbeats cause no hold', async (_, silent, alive) => {
    const pool = postgres.pool();
    await teamTable(pool, silent);
    for (let i = 0; i < silent; i += 1) await deadWorker(pool, { most: 1, silentMs: 50_000 });
    for (let i = 0; i < alive; i += 1) await deadWorker(pool, { silentMs: 0 });
    const { next, brakes } = await started(pool);
    await next();
    await next();
    expect(await next()).toBe(silent);
    expect(brakes).toEqual([false]);
  });
});
