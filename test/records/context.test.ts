/** The context of a handler: a signal, a fenced transaction, a trace that survives. */
import { expect, it } from 'vitest';
import { ClaimLost, inspect } from '../../src/records/index.js';
import { ManualClock } from '../support/manual-clock.js';
import { describeOnePostgres, describePostgres } from '../support/postgres.js';
import { until } from '../support/until.js';
import {
  gate,
  page,
  pagesWorkflow,
  recovers,
  resetsOf,
  silence,
  startable,
  statuses,
  teamTable,
} from './fixture.js';

/** Time passes until the promise is settled: its owner sleeps by the clock of the test. */
async function passing<T>(clock: ManualClock, promise: Promise<T>): Promise<T> {
  let settled = false;
  const done = () => {
    settled = true;
  };
  promise.then(done, done);
  await until(() => {
    clock.advance(500);
    return settled;
  }, 'it ends');
  return promise;
}

describePostgres('the context of a handler', (postgres) => {
  it('the signal aborts at the timeout, and work that ends shortly after still counts', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 2);
    const clock = new ManualClock();
    const reasons: string[] = [];
    const workflow = pagesWorkflow({
      timeout: '10s',
      process: ({ url }, { signal }) =>
        new Promise<void>((resolve, reject) => {
          signal.addEventListener('abort', () => {
            reasons.push(signal.reason.message);
            if (url.endsWith('/1')) reject(new Error('I was busy'));
            else resolve();
          });
        }),
    });
    const loop = startable(postgres, { pool, workflows: [workflow], clock });
    const run = loop.runOnce();
    await until(async () => (await statuses(pool)).Processing === 2, 'they run');
    expect(await passing(clock, run)).toMatchObject({ completed: 1, failed: 1 });
    expect(reasons).toEqual(['Timed out after 10s', 'Timed out after 10s']);
    const { rows } = await pool.query("SELECT error FROM pages WHERE status = 'Failed'");
    expect(rows).toEqual([{ error: 'Timed out after 10s: I was busy' }]);
  });

  it('a handler that ignores its signal loses its slot, and another worker gets its record', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 1);
    const clock = new ManualClock();
    const never = pagesWorkflow({ timeout: '10s', process: () => new Promise<void>(() => {}) });
    const loop = startable(postgres, { pool, workflows: [never], clock });
    const run = loop.runOnce();
    await until(async () => (await statuses(pool)).Processing === 1, 'it runs');
    expect(await passing(clock, run)).toMatchObject({ claimed: 1, completed: 0, failed: 0 });
    expect(loop.log.said('handler ignored its timeout')).toHaveLength(1);
    const recovery = recovers(postgres, { pool, workflows: [never] });
    expect(await recovery.runOnce()).toMatchObject({ requeued: 0 });
    await pool.query("UPDATE smart_router.claims SET claimed_at = now() - interval '41 s'");
    expect(await recovery.runOnce()).toMatchObject({ requeued: 1, records: [{ reason: 'timed_out' }] });
  });

  it('the signal aborts on a lost claim only after a reply of the database', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 1);
    const clock = new ManualClock();
    let signal: AbortSignal | undefined;
    const workflow = pagesWorkflow({
      timeout: '1h',
      process: (_, ctx) =>
        new Promise<void>((resolve) => {
          signal = ctx.signal;
          ctx.signal.addEventListener('abort', () => resolve());
        }),
    });
    const loop = startable(postgres, { pool, workflows: [workflow], clock });
    const run = loop.runOnce();
    await until(() => signal, 'it runs');
    // The question gets no answer.
    await pool.query('ALTER TABLE smart_router.claims RENAME TO away');
    for (let i = 0; i < 12; i += 1) clock.advance(500);
    await until(() => loop.log.said('claims not verified').length > 0, 'its check fails');
    expect(signal?.aborted).toBe(false);
    await pool.query('ALTER TABLE smart_router.away RENAME TO claims');
    await pool.query('UPDATE smart_router.claims SET token = 0');
    expect(await passing(clock, run)).toMatchObject({ completed: 0, rejected: 1 });
    expect(signal?.reason).toBeInstanceOf(ClaimLost);
    expect(await page(pool)).toMatchObject({ status: 'Processing' });
  });

  it('tx commits the writes of a handler whose claim holds, and rolls back those of a lost claim', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 2);
    await pool.query('CREATE TABLE effects (page uuid)');
    const errors: unknown[] = [];
    const workflow = pagesWorkflow({
      process: async ({ id, url }, ctx) => {
        const lost = url.endsWith('/1');
        await ctx
          .tx(async (client) => {
            await client.query('INSERT INTO effects VALUES ($1)', [id]);
            if (lost) {
              await silence(pool);
              await pool.query(
                "UPDATE smart_router.claims SET claimed_at = now() - interval '1 minute' WHERE record_id = $1",
                [id],
              );
              await pool.query(
                'UPDATE smart_router.workers SET heartbeat_at = now() WHERE id <> (SELECT worker FROM smart_router.claims WHERE record_id = $1)',
                [id],
              );
              await pool.query(
                'UPDATE smart_router.claims SET token = NULL, worker = NULL WHERE record_id = $1',
                [id],
              );
            }
            return 'kept';
          })
          .then((result) => expect(result).toBe('kept'))
          .catch((error: unknown) => errors.push(error));
        if (lost) await expect(ctx.tx(async () => 1)).rejects.toThrow(ClaimLost);
      },
    });
    const loop = startable(postgres, { pool, workflows: [workflow] });
    expect(await loop.runOnce()).toMatchObject({ completed: 1, rejected: 1 });
    expect(errors).toEqual([expect.any(ClaimLost)]);
    const { rows } = await pool.query('SELECT url FROM effects JOIN pages ON id = page');
    expect(rows).toEqual([{ url: expect.stringMatching(/\/2$/) }]);
  });

  it('no worker takes the record between the last check of tx and its commit', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 1);
    await pool.query('CREATE TABLE effects (page uuid UNIQUE DEFERRABLE INITIALLY DEFERRED)');
    const recovery = recovers(postgres, { pool, workflows: [pagesWorkflow()] });
    // Its commit waits for this row.
    const other = await postgres.client();
    const committing = gate();
    const workflow = pagesWorkflow({
      process: async ({ id }, ctx) => {
        await other.query('BEGIN');
        await other.query('INSERT INTO effects VALUES ($1)', [id]);
        await ctx.tx(async (client) => {
          await client.query('INSERT INTO effects VALUES ($1)', [id]);
          committing.open();
        });
      },
    });
    const loop = startable(postgres, { pool, workflows: [workflow], heartbeat: { every: '1h' } });
    const run = loop.runOnce();
    await committing.opened;
    await until(
      async () =>
        (await pool.query("SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query = 'COMMIT'"))
          .rowCount === 1,
      'the commit is under way',
    );
    await silence(pool);
    await pool.query('SELECT pg_sleep(0.01)');
    expect(await recovery.runOnce()).toMatchObject({ requeued: 0 });
    await other.query('ROLLBACK');
    expect(await run).toMatchObject({ completed: 1 });
    expect((await pool.query('SELECT FROM effects')).rowCount).toBe(1);
  });

  it('an error of a handler inside tx is its own failure, not one of the session', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 1);
    const sessions: string[] = [];
    const workflow = pagesWorkflow({
      process: (_, ctx) =>
        ctx.tx(async (client) => {
          await client.query('SELECT 1');
          throw Object.assign(new Error('connect ECONNREFUSED elsewhere'), { code: 'ECONNREFUSED' });
        }),
    });
    const loop = startable(postgres, {
      pool,
      workflows: [workflow],
      observer: { session: (outcome) => sessions.push(outcome) },
    });
    expect(await loop.runOnce()).toMatchObject({ failed: 1 });
    expect(await page(pool)).toMatchObject({ error: 'connect ECONNREFUSED elsewhere' });
    expect(sessions).not.toContain('failed');
  });

  it('a trace is shown with a stuck record in the dry run, in inspect and after the reset', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 1);
    const busy = gate();
    const workflow = pagesWorkflow({
      process: (_, ctx) => {
        ctx.trace('first');
        ctx.trace(`fetching ${'x'.repeat(5000)}\0`);
        return busy.opened;
      },
    });
    const loop = startable(postgres, { pool, workflows: [workflow], heartbeat: { every: '1h' } });
    const run = loop.runOnce();
    await until(
      async () =>
        (await pool.query("SELECT FROM smart_router.claims WHERE trace LIKE 'fetching%'")).rowCount === 1,
      'the note is kept',
    );
    await silence(pool);
    const trace = `fetching ${'x'.repeat(991)}`;
    const recovery = recovers(postgres, { pool, workflows: [workflow] });
    expect((await recovery.runOnce({ dryRun: true })).records).toMatchObject([{ trace }]);
    expect((await inspect(pool, workflow)).stuckRecords).toMatchObject([{ trace, reason: 'dead_worker' }]);
    expect((await recovery.runOnce()).records).toMatchObject([{ trace }]);
    expect(await resetsOf(pool)).toMatchObject([{ trace }]);
    busy.open();
    await run;
  });
});

describeOnePostgres('a handler that hangs in its transaction', (postgres) => {
  it('loses its record shortly after its timeout', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 1);
    await pool.query('CREATE TABLE effects (page uuid)');
    const workflow = pagesWorkflow({
      timeout: '300ms',
      process: ({ id }, ctx) =>
        ctx.tx(async (client) => {
          await client.query('INSERT INTO effects VALUES ($1)', [id]);
          await new Promise<void>(() => {});
        }),
    });
    const loop = startable(postgres, { pool: postgres.pool(), workflows: [workflow] });
    // The database ends the transaction, and the connection with it; the pool gets its place back.
    expect(await loop.runOnce()).toMatchObject({ claimed: 1, failed: 1 });
    expect(await page(pool)).toMatchObject({
      status: 'Failed',
      error: expect.stringMatching(/^Timed out after 300ms: .*idle-in-transaction timeout/),
    });
    expect((await pool.query('SELECT FROM effects')).rowCount).toBe(0);
  });
});
