/** Faults around the job loop: no record is lost or stuck. */
import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { DiskSpool } from '../../src/records/spool.js';
import { describeOnePostgres } from '../support/postgres.js';
import { SkippingClock } from '../support/skipping-clock.js';
import { until } from '../support/until.js';
import {
  gate,
  pagesWorkflow,
  recovers,
  silence,
  startable,
  statuses,
  teamTable,
  temporaryFolder,
} from './fixture.js';

describeOnePostgres('a live worker', (postgres) => {
  it('sends a heartbeat before it claims, after it was suspended or cut off', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 0);
    const clock = new SkippingClock();
    const busy = gate();
    const loop = startable(postgres, {
      pool,
      clock,
      workflows: [pagesWorkflow({ process: () => busy.opened })],
      spoolFolder: temporaryFolder(),
    });
    await loop.runOnce();
    await silence(pool, 600);
    clock.skip(600_000);
    await pool.query("INSERT INTO pages (url) VALUES ('x')");
    const run = loop.runOnce();
    await until(async () => (await statuses(pool)).Processing === 1, 'it is claimed');
    const recovery = recovers(postgres, { pool, workflows: [pagesWorkflow()] });
    const taken = await recovery.runOnce();
    busy.open();
    expect(await run).toMatchObject({ claimed: 1, completed: 1, rejected: 0 });
    expect(taken).toMatchObject({ requeued: 0 });
  });

  it('sends heartbeats through the pool when the thread gets no connection', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 0);
    const loop = startable(postgres, {
      pool,
      workflows: [pagesWorkflow()],
      spoolFolder: temporaryFolder(),
      heartbeat: { every: 50, connection: { host: '127.0.0.1', port: 1 } },
    });
    await loop.start();
    await silence(pool, 600);
    await until(
      async () =>
        (
          await pool.query(
            "SELECT FROM smart_router.workers WHERE heartbeat_at > now() - interval '1 minute'",
          )
        ).rowCount === 1,
      'its heartbeat comes from the pool',
    );
  });
});

describeOnePostgres('an outcome that cannot be written', (postgres) => {
  it('blocks only its own workflow, and is written once it can be', {
    timeout: 60_000,
  }, async () => {
    const pool = postgres.pool();
    await teamTable(pool, 3);
    await pool.query('CREATE TABLE others (LIKE pages INCLUDING ALL)');
    const busy = gate();
    const loop = startable(postgres, {
      pool,
      workflows: [
        pagesWorkflow({ batchSize: 2, process: () => busy.opened }),
        pagesWorkflow({ name: 'others', table: 'others' }),
      ],
      spoolFolder: temporaryFolder(),
      poll: 10,
    });
    await loop.start();
    await until(async () => (await statuses(pool)).Processing === 3, 'they are claimed');
    await pool.query('ALTER TABLE pages RENAME error TO message');
    busy.open();
    await until(() => loop.log.said('outcomes spooled').length > 0, 'it is kept aside');
    await until(() => loop.log.said('cannot be written').length > 0, 'writing fails');
    // From then on no claim is under way that began before.
    await until(() => loop.log.said('claim failed').length > 0, 'claiming stops');
    await pool.query("INSERT INTO pages (url) VALUES ('later')");
    await pool.query("INSERT INTO others (url) VALUES ('x')");
    await until(
      async () => (await pool.query("SELECT FROM others WHERE status = 'Completed'")).rowCount === 1,
      'the other workflow works',
    );
    // Work that could not be finished does not start.
    expect(await statuses(pool)).toEqual({ Processing: 3, Queued: 1 });
    expect(loop.isPaused).toBe(false);
    expect(loop.log.said('sessions fail')).toEqual([]);
    await pool.query('ALTER TABLE pages RENAME message TO error');
    await until(async () => (await statuses(pool)).Completed === 4, 'everything is done');
    expect(loop.log.said('late finishes')).toEqual([]);
  });

  it('because many rows are locked delays the others only once', { timeout: 60_000 }, async () => {
    const pool = postgres.pool();
    await teamTable(pool, 200);
    const busy = gate();
    const loop = startable(postgres, {
      pool,
      workflows: [pagesWorkflow({ batchSize: 200, concurrency: 200, process: () => busy.opened })],
      spoolFolder: temporaryFolder(),
    });
    await loop.start();
    await until(async () => (await statuses(pool)).Processing === 200, 'they are claimed');
    const other = await postgres.client();
    await other.query('BEGIN');
    await other.query("SELECT FROM pages WHERE substring(url FROM '[0-9]+$')::integer <= 100 FOR UPDATE");
    busy.open();
    await until(async () => (await statuses(pool)).Completed === 100, 'those that are free are done');
    await until(() => loop.log.said('outcomes spooled').length > 0, 'the others are kept aside');
    await other.query('COMMIT');
    await until(async () => (await statuses(pool)).Completed === 200, 'they are written too');
    expect(loop.log.said('late finishes')).toEqual([]);
  });

  it('to disk leaves no partial file, replays each file once, and skips what is not a file', async () => {
    const folder = temporaryFolder();
    const spool = new DiskSpool(folder);
    const place = 'x/pages';
    await spool.add(place, [{ id: '1', token: '1', error: null }]);
    const below = join(folder, encodeURIComponent(place));
    mkdirSync(join(below, 'odd.jsonl'));
    writeFileSync(join(below, 'odd.jsonl', 'x'), '');
    const written: string[] = [];
    const write = async (outcomes: { id: string }[]) => {
      written.push(...outcomes.map(({ id }) => id));
    };
    expect(await spool.replay(place, write)).toBe(true);
    expect(await spool.replay(place, write)).toBe(true);
    expect(written).toEqual(['1']);
    expect(readdirSync(below)).toEqual(['odd.jsonl']);
  });
});
