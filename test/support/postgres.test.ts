import { describe, expect, it } from 'vitest';
import { describePostgres } from './postgres.js';
import { pgBouncer, pgBouncerAvailable } from './postgres-bouncer.js';
import { until } from './until.js';

describePostgres('a PostgreSQL', (postgres) => {
  it('skips rows that another connection has locked', async () => {
    const [first, second] = [await postgres.client(), await postgres.client()];
    await first.query('CREATE TABLE jobs AS SELECT generate_series(1, 3) AS id');
    const claim = 'SELECT id FROM jobs ORDER BY id LIMIT 2 FOR UPDATE SKIP LOCKED';
    await first.query('BEGIN');
    expect((await first.query(claim)).rows).toEqual([{ id: 1 }, { id: 2 }]);
    expect((await second.query(claim)).rows).toEqual([{ id: 3 }]);
    await first.query('ROLLBACK');
    expect((await second.query(claim)).rows).toEqual([{ id: 1 }, { id: 2 }]);
  });

  it('wakes a listener on another connection', async () => {
    const listener = await postgres.client();
    await listener.query('LISTEN jobs');
    const heard = new Promise((resolve) => listener.once('notification', resolve));
    await postgres.pool().query("NOTIFY jobs, 'three'");
    expect(await heard).toMatchObject({ channel: 'jobs', payload: 'three' });
  });

  it('gives an advisory lock to one connection at a time', async () => {
    const [first, second] = [await postgres.client(), await postgres.client()];
    const take = 'SELECT pg_try_advisory_xact_lock(7) AS taken';
    await first.query('BEGIN');
    expect((await first.query(take)).rows).toEqual([{ taken: true }]);
    expect((await second.query(take)).rows).toEqual([{ taken: false }]);
    await first.query('COMMIT');
    expect((await second.query(take)).rows).toEqual([{ taken: true }]);
  });

  describe('gives every test its own database', () => {
    for (const run of ['first', 'second']) {
      it(`which is empty: ${run} test`, async () => {
        await postgres.pool().query('CREATE TABLE pages (id int)');
        expect((await postgres.pool().query('SELECT * FROM pages')).rows).toEqual([]);
      });
    }
  });

  it.each(['clean', 'crash'] as const)('keeps commits over a restart (%s)', async (how) => {
    const pool = postgres.pool();
    const { pid } = postgres;
    await pool.query("CREATE TABLE pages AS SELECT 'kept' AS state");
    await postgres.restart(how);
    expect(postgres.pid).not.toBe(pid);
    // A broken connection is noticed at its next use, or before.
    const { rows } = await until(() => pool.query('SELECT state FROM pages'), 'the pool is back');
    expect(rows).toEqual([{ state: 'kept' }]);
  });

  it('refuses connections while it is stopped', async () => {
    await postgres.stop();
    await expect(postgres.client()).rejects.toThrow(/ECONNREFUSED/);
    await postgres.start();
    expect((await (await postgres.client()).query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
  });

  it('answers nothing while paused, and everything once resumed', async () => {
    const client = await postgres.client();
    await postgres.pause();
    const answer = client.query('SELECT 1').then(() => 'answered');
    const silence = new Promise((resolve) => setTimeout(resolve, 300, 'silent'));
    expect(await Promise.race([answer, silence])).toBe('silent');
    await postgres.resume();
    expect(await answer).toBe('answered');
  });

  it.each(['stop', 'pause'] as const)('is there for the next test after a test left it: %s', async (how) => {
    await postgres[how]();
  });

  it('behind PgBouncer shares one server connection between transactions', async (test) => {
    const available = pgBouncerAvailable();
    if (available !== true) return test.skip(available);
    const { url } = await pgBouncer(postgres, { poolSize: 1 });
    const options = { connectionString: url };
    const [first, second] = [await postgres.client(options), await postgres.client(options)];
    const session = async (client: typeof first) =>
      (await client.query('SELECT pg_backend_pid() AS pid')).rows[0].pid as number;
    expect(await session(first)).toBe(await session(second));
    await first.query('BEGIN');
    const waiting = session(second).then(() => 'served');
    const silence = new Promise((resolve) => setTimeout(resolve, 100, 'waits'));
    expect(await Promise.race([waiting, silence])).toBe('waits');
    await first.query('COMMIT');
    expect(await waiting).toBe('served');
  });
});
