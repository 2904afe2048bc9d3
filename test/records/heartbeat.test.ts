/** A worker lives as long as its heartbeat, and no longer. Guarantee: a busy event loop loses no claim. */
import type { Pool } from 'pg';
import { expect, it } from 'vitest';
import { describePostgres } from '../support/postgres.js';
import { until } from '../support/until.js';
import { gate, pagesWorkflow, recovers, startable, statuses, teamTable } from './fixture.js';

const beats = async (pool: Pool): Promise<string> => {
  const { rows } = await pool.query('SELECT id, heartbeat_at::text FROM smart_router.workers');
  return JSON.stringify(rows);
};
const untilBeaten = async (pool: Pool) => {
  const before = await beats(pool);
  await until(async () => (await beats(pool)) !== before, 'there is a heartbeat');
};

describePostgres('the heartbeat', (postgres) => {
  it('runs on its own connection, also when the pool is exhausted', async () => {
    const admin = postgres.pool();
    await teamTable(admin, 0);
    const pool = postgres.pool({ max: 1 });
    const loop = startable(postgres, { pool, workflows: [pagesWorkflow()], heartbeat: { every: 30 } });
    await loop.runOnce();
    const hog = await pool.connect();
    await untilBeaten(admin);
    await untilBeaten(admin);
    hog.release();
    expect(loop.log.lines.filter(({ level }) => level >= 40)).toEqual([]);
  });

  it('reconnects after its connection was cut', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 0);
    const loop = startable(postgres, { pool, workflows: [pagesWorkflow()], heartbeat: { every: 30 } });
    await loop.runOnce();
    await untilBeaten(pool);
    await pool.query(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'UPDATE smart_router.workers%' AND pid <> pg_backend_pid()",
    );
    await untilBeaten(pool);
    await untilBeaten(pool);
  });

  it('runs on the main thread, with a warning, if the pool options cannot be copied', async () => {
    const admin = postgres.pool();
    await teamTable(admin, 1);
    const { hostname: host, port, username: user, password, pathname } = new URL(postgres.url);
    const given = {
      connectionString: undefined,
      host,
      port: Number(port),
      user,
      database: pathname.slice(1),
    };
    const pool = postgres.pool({ ...given, password: () => password } as never);
    const loop = startable(postgres, { pool, workflows: [pagesWorkflow()], heartbeat: { every: 30 } });
    await loop.start();
    expect(loop.log.said('heartbeat runs on the main thread')).toMatchObject([{ level: 40 }]);
    await untilBeaten(admin);
    await until(async () => (await statuses(admin)).Completed === 1, 'it works');
  });

  it.each(['thread', 'pool'])(
    'from the %s: a worker whose row was deleted restarts with void claims',
    async (from) => {
      const pool = postgres.pool();
      await teamTable(pool, 4);
      const { hostname: host, port, username: user, password, pathname } = new URL(postgres.url);
      const given = {
        connectionString: undefined,
        host,
        port: Number(port),
        user,
        database: pathname.slice(1),
      };
      const own = postgres.pool({ ...given, password: from === 'pool' ? () => password : password } as never);
      const first = gate();
      const begun: AbortSignal[] = [];
      const workflow = pagesWorkflow({
        concurrency: 1,
        process: (_, { signal }) => {
          begun.push(signal);
          return begun.length === 1 ? first.opened : undefined;
        },
      });
      const loop = startable(postgres, {
        pool: own,
        workflows: [workflow],
        heartbeat: { every: 30 },
        poll: 20,
      });
      await loop.start();
      await until(() => begun.length === 1, 'the first is processed, three wait');
      const { rows } = await pool.query('DELETE FROM smart_router.workers RETURNING id');
      await until(() => begun[0]?.aborted, 'its signal aborts');
      expect(loop.log.said('worker was declared dead')).toMatchObject([{ worker_id: rows[0].id }]);
      first.open();
      await until(
        () => loop.log.said('late finishes').length === 4,
        'none of the four is finished under the old claims',
      );
      expect(begun).toHaveLength(1);
      await until(
        async () => (await pool.query('SELECT FROM smart_router.workers')).rowCount === 1,
        'it signs on again',
      );
      expect(await recovers(postgres, { pool, workflows: [workflow] }).runOnce()).toMatchObject({
        requeued: 4,
      });
      await until(async () => (await statuses(pool)).Completed === 4, 'all are done by the new worker');
      await untilBeaten(pool);
      expect((await pool.query('SELECT id FROM smart_router.workers')).rows[0].id).not.toBe(rows[0].id);
      await loop.stop();
      expect((await pool.query('SELECT FROM smart_router.workers')).rowCount).toBe(0);
    },
  );

  it('a worker that stops signs off, and its claims can be taken at once', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 2);
    const loop = startable(postgres, { pool, workflows: [pagesWorkflow()] });
    await loop.runOnce();
    const { rows } = await pool.query('SELECT id FROM smart_router.workers');
    await pool.query("UPDATE pages SET status = 'Processing'");
    await pool.query(
      `INSERT INTO smart_router.claims (workflow, record_id, token, worker, claimed_at, timeout_ms)
       SELECT 1, id::text, 1, $1, now(), 300000 FROM pages`,
      [rows[0].id],
    );
    const recovery = recovers(postgres, { pool, workflows: [pagesWorkflow()] });
    expect(await recovery.runOnce()).toMatchObject({ requeued: 0 });
    await loop.stop();
    expect(await recovery.runOnce()).toMatchObject({ requeued: 2 });
  });
});
