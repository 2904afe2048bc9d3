/** The original tests of the work order, in our words. */
import { expect, it } from 'vitest';
import { describeOnePostgres, describePostgres } from '../support/postgres.js';
import { SkippingClock } from '../support/skipping-clock.js';
import { tcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';
import {
  foreign,
  page,
  pagesWorkflow,
  recovers,
  resetsOf,
  startable,
  teamTable,
  temporaryFolder,
} from './fixture.js';

describePostgres('zombie record cleanup', (postgres) => {
  it('resets records stuck longer than the threshold', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 0);
    const id = await foreign(pool, 120);
    const recovery = recovers(postgres, { pool, workflows: [pagesWorkflow()] });
    expect(await recovery.runOnce()).toMatchObject({ requeued: 1, failed: 0 });
    const stuck = await page(pool, id);
    expect(stuck).toMatchObject({ status: 'Queued', error: 'Auto-reset from stuck Processing state' });
    expect(Date.now() - stuck.updated_at.getTime()).toBeLessThan(60_000);
  });

  it('ignores records in Processing for a short time', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 0);
    const id = await foreign(pool, 5);
    const before = await page(pool, id);
    const recovery = recovers(postgres, { pool, workflows: [pagesWorkflow()] });
    expect(await recovery.runOnce()).toMatchObject({ requeued: 0, failed: 0, held: 0 });
    expect(await page(pool, id)).toEqual(before);
  });
});

// With a proxy in between it is about the loop, not about the server.
describeOnePostgres('a loop without sessions', (postgres) => {
  it('logs ZOMBIE RECORD ALERT without a session, and the record is requeued', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 1);
    const proxy = await tcpProxy(postgres.port);
    const url = postgres.url.replace(`:${postgres.port}/`, `:${proxy.port}/`);
    const clock = new SkippingClock();
    const told: string[] = [];
    let runs = 0;
    let begunMs = 0;
    const loop = startable(postgres, {
      pool: postgres.pool({ connectionString: url }),
      spoolFolder: temporaryFolder(),
      sessionTimeout: '2s',
      clock,
      observer: {
        zombie: (workflow) => told.push(workflow),
        recovered: (_, reason, outcome) => told.push(`${reason} ${outcome}`),
      },
      workflows: [
        pagesWorkflow({
          process: async (_, ctx) => {
            runs += 1;
            if (runs === 1) {
              begunMs = clock.monotonic();
              await proxy.down();
            }
            await ctx.tx((client) => client.query('SELECT 1'));
          },
        }),
      ],
    });
    await loop.start();
    await until(() => loop.isPaused, 'the database cannot be reached');
    // Its transaction waits for the database until the time of the record is over. Five seconds later the record would be
    // abandoned without an outcome.
    clock.skip(300_000 - (clock.monotonic() - begunMs));
    await until(() => loop.log.said('ZOMBIE RECORD ALERT').length > 0, 'it says so');
    const { id } = await page(pool);
    expect(loop.log.said('ZOMBIE RECORD ALERT')).toMatchObject([
      {
        level: 60,
        record: id,
        msg: `ZOMBIE RECORD ALERT: pages ID ${id} stuck in Processing - could not obtain error session; the recovery requeues it`,
      },
    ]);
    expect(await page(pool)).toMatchObject({ status: 'Processing' });
    await proxy.up();
    // Does not wait for its live worker or its timeout.
    await until(async () => (await page(pool)).status === 'Completed', 'it is processed again');
    expect(runs).toBe(2);
    expect(told).toEqual(['pages', 'given_up requeued']);
    expect(await resetsOf(pool)).toMatchObject([{ reason: 'given_up', outcome: 'requeued', resets: 0 }]);
  });
});
