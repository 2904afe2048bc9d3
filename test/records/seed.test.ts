/** The original tests of the work order, in our words. */
import { expect, it } from 'vitest';
import { describePostgres } from '../support/postgres.js';
import { tcpProxy } from '../support/tcp-proxy.js';
import { foreign, page, pagesWorkflow, recovers, startable, teamTable, temporaryFolder } from './fixture.js';

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

  it('ignores records that are being processed since a short time', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 0);
    const id = await foreign(pool, 5);
    const before = await page(pool, id);
    const recovery = recovers(postgres, { pool, workflows: [pagesWorkflow()] });
    expect(await recovery.runOnce()).toMatchObject({ requeued: 0, failed: 0, held: 0 });
    expect(await page(pool, id)).toEqual(before);
  });

  it('a loop that gets no session says ZOMBIE RECORD ALERT, and the record comes back', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 1);
    const proxy = await tcpProxy(postgres.port);
    const url = postgres.url.replace(`:${postgres.port}/`, `:${proxy.port}/`);
    const zombies: string[] = [];
    const loop = startable(postgres, {
      pool: postgres.pool({ connectionString: url }),
      spoolFolder: temporaryFolder(),
      sessionTimeout: '500ms',
      heartbeat: { every: '1h' },
      observer: { zombie: (workflow) => zombies.push(workflow) },
      workflows: [
        pagesWorkflow({
          process: async (_, ctx) => {
            await proxy.down();
            await ctx.tx((client) => client.query('SELECT 1'));
          },
        }),
      ],
    });
    expect(await loop.runOnce()).toMatchObject({ claimed: 1, completed: 0, failed: 0, abandoned: 1 });
    const { id } = await page(pool);
    expect(loop.log.said('ZOMBIE RECORD ALERT')).toMatchObject([
      {
        level: 60,
        record: id,
        msg: `ZOMBIE RECORD ALERT: pages ID ${id} stuck in Processing - could not obtain error session; the recovery brings it back`,
      },
    ]);
    expect(zombies).toEqual(['pages']);
    expect(await page(pool)).toMatchObject({ status: 'Processing' });
    await proxy.up();
    await pool.query("UPDATE smart_router.workers SET heartbeat_at = now() - interval '1 minute'");
    const recovery = recovers(postgres, { pool, workflows: [pagesWorkflow()] });
    expect(await recovery.runOnce()).toMatchObject({ requeued: 1 });
    expect(await page(pool)).toMatchObject({ status: 'Queued' });
  });
});
