/** Claim, process, finish. Guarantee 10a. */
import { expect, it } from 'vitest';
import { createRecordLoop } from '../../src/records/index.js';
import { ManualClock } from '../support/manual-clock.js';
import { describePostgres } from '../support/postgres.js';
import { tcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';
import {
  gate,
  keepHistory,
  memoryLog,
  mostOften,
  type Page,
  pagesWorkflow,
  recovers,
  silence,
  startable,
  statuses,
  storeOf,
  teamTable,
} from './fixture.js';

describePostgres('the record loop', (postgres) => {
  it('runOnce processes one batch, finished on return, never more than batchSize', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 25);
    const seen: string[] = [];
    const workflow = pagesWorkflow({
      batchSize: 10,
      concurrency: 3,
      process: ({ url }) => void seen.push(url),
    });
    const loop = createRecordLoop({ pool, workflows: [workflow], log: memoryLog().log });
    expect(await loop.runOnce()).toMatchObject({ claimed: 10, completed: 10, failed: 0 });
    expect(await statuses(pool)).toEqual({ Queued: 15, Completed: 10 });
    expect(await loop.runOnce()).toMatchObject({ claimed: 10 });
    expect(await loop.runOnce()).toMatchObject({ claimed: 5, completed: 5 });
    expect(await loop.runOnce()).toMatchObject({ claimed: 0 });
    expect(new Set(seen).size).toBe(25);
    expect((await pool.query('SELECT FROM smart_router.claims')).rowCount).toBe(0);
    await loop.stop();
    expect((await pool.query('SELECT FROM smart_router.workers')).rowCount).toBe(0);
  });

  it('a throw makes the record Failed, with the message truncated to 1,024 characters', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 1);
    const process = () => {
      throw new Error('x'.repeat(5000));
    };
    const loop = createRecordLoop({ pool, workflows: [pagesWorkflow({ process })], log: memoryLog().log });
    expect(await loop.runOnce()).toMatchObject({ claimed: 1, failed: 1 });
    const { rows } = await pool.query('SELECT status, error FROM pages');
    expect(rows).toMatchObject([{ status: 'Failed', error: expect.stringMatching(/^x{1023}…$/) }]);
    await loop.stop();
  });

  it('processes all records when started, and stops cleanly in the middle', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 3000);
    let done = 0;
    const workflow = pagesWorkflow({
      batchSize: 200,
      concurrency: 20,
      process: () => {
        done += 1;
      },
    });
    const { log, lines } = memoryLog();
    const loop = createRecordLoop({ pool, workflows: [workflow], log });
    await loop.start();
    await until(() => done > 500, 'some are done');
    await loop.stop();
    expect(lines.filter(({ level }) => level >= 40)).toEqual([]);
    const half = await statuses(pool);
    expect(half.Processing ?? 0).toBe(0);
    expect(half.Completed).toBe(done);
    const again = createRecordLoop({ pool, workflows: [workflow], log: memoryLog().log });
    await again.start();
    await until(async () => (await statuses(pool)).Completed === 3000, 'all are done');
    await again.stop();
    expect(done).toBe(3000);
  });

  it('a dead worker loses its claims, its late finish is rejected, the next worker finishes them', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 5);
    const slow = gate();
    const dead = startable(postgres, {
      pool,
      workflows: [pagesWorkflow({ process: () => slow.opened })],
      heartbeat: { every: '1h' },
      // Its own check of its claims, every five seconds, would reject each record alone.
      clock: new ManualClock(),
    });
    const late = dead.runOnce();
    await until(async () => (await statuses(pool)).Processing === 5, 'claimed');
    await silence(pool);
    const recovery = recovers(postgres, { pool, workflows: [pagesWorkflow()] });
    expect(await recovery.runOnce()).toMatchObject({ requeued: 5, failed: 0 });
    expect(await statuses(pool)).toEqual({ Queued: 5 });
    const next = startable(postgres, { pool, workflows: [pagesWorkflow()] });
    expect(await next.runOnce()).toMatchObject({ claimed: 5, completed: 5 });
    slow.open();
    expect(await late).toMatchObject({ claimed: 5, completed: 0, rejected: 5 });
    expect(dead.log.said('late finishes rejected')).toMatchObject([{ count: 5 }]);
    expect(await statuses(pool)).toEqual({ Completed: 5 });
  });

  it('twenty loops process 5,000 records once each', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 5000);
    await keepHistory(pool);
    const seen: string[] = [];
    const batches: number[] = [];
    const loops = Array.from({ length: 20 }, (_, i) =>
      startable(postgres, {
        pool: i % 5 === 0 ? postgres.pool({ max: 8 }) : pool,
        workflows: [pagesWorkflow({ batchSize: 40, process: ({ id }) => void seen.push(id) })],
        heartbeat: { every: '1h' },
        // Sixteen share one pool, and the machine may be busy.
        sessionTimeout: '1m',
        observer: { claimed: (_, records) => batches.push(records) },
      }),
    );
    await Promise.all(loops.map((loop) => loop.start()));
    await until(async () => (await statuses(pool)).Completed === 5000, 'all are done');
    expect(seen).toHaveLength(5000);
    expect(new Set(seen).size).toBe(5000);
    expect(Math.max(...batches)).toBeLessThanOrEqual(40);
    expect(await mostOften(pool, 'Processing', 'Completed')).toBe(1);
    expect(loops.flatMap(({ log }) => log.lines.filter(({ level }) => level >= 40))).toEqual([]);
    // A program may have many loops on one pool.
    expect(pool.listenerCount('error')).toBeLessThan(5);
  });

  it('runs one suspect at a time, and all other records beside it', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 5);
    const { table } = await storeOf(pool);
    // Their handler had begun when their worker died again.
    await pool.query(
      `INSERT INTO smart_router.claims (workflow, record_id, resets, begun)
       SELECT $1, id::text, 2, 0 FROM pages WHERE url LIKE '%/1' OR url LIKE '%/2'`,
      [table.workflowId],
    );
    const busy = [gate(), gate()];
    const suspects: string[] = [];
    const process = async ({ url }: Page) => {
      if (!/[12]$/.test(url)) return;
      suspects.push(url);
      await busy[suspects.length - 1]?.opened;
    };
    const loop = startable(postgres, { pool, workflows: [pagesWorkflow({ process })], poll: '1h' });
    await loop.start();
    await until(
      async () => suspects.length > 0 && (await statuses(pool)).Completed === 3,
      'a suspect runs, and the others are done',
    );
    await pool.query("INSERT INTO pages (url) VALUES ('later')");
    loop.wake();
    await until(async () => (await statuses(pool)).Completed === 4, 'also those that come later');
    expect(suspects).toHaveLength(1);
    const { rows } = await pool.query(
      'SELECT begun = token AS has_begun FROM smart_router.claims ORDER BY 1',
    );
    expect(rows).toEqual([{ has_begun: false }, { has_begun: true }]);
    busy[0]?.open();
    await until(() => suspects.length === 2, 'the second one follows');
    busy[1]?.open();
    await until(async () => (await statuses(pool)).Completed === 6, 'all are done');
  });

  it('a batch releases suspects while another batch runs one', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 2);
    const { table } = await storeOf(pool);
    await pool.query(
      'INSERT INTO smart_router.claims (workflow, record_id, resets, begun) SELECT $1, id::text, 2, 0 FROM pages',
      [table.workflowId],
    );
    const busy = gate();
    const workflow = pagesWorkflow({ batchSize: 1, process: () => busy.opened });
    const loop = startable(postgres, { pool, workflows: [workflow] });
    const first = loop.runOnce();
    const begun = 'SELECT FROM smart_router.claims WHERE begun = token';
    await until(async () => (await pool.query(begun)).rowCount === 1, 'the first one runs');
    const second = loop.runOnce();
    const given =
      "SELECT FROM smart_router.claims JOIN pages ON id::text = record_id WHERE token IS NULL AND timeout_ms > 0 AND status = 'Queued'";
    await until(async () => (await pool.query(given)).rowCount === 1, 'the second one is released').finally(
      busy.open,
    );
    expect(await second).toMatchObject({ claimed: 1 });
    await first;
    await loop.runOnce();
    expect(await statuses(pool)).toEqual({ Completed: 2 });
  });

  it('processes records in order with one slot', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 0);
    await pool.query(
      "INSERT INTO pages (url, updated_at) SELECT lpad(((i * 37) % 100)::text, 3, '0'), now() - i * interval '1 s' FROM generate_series(1, 100) AS i",
    );
    const seen: string[] = [];
    const inOrder = pagesWorkflow({
      orderBy: 'url DESC',
      concurrency: 1,
      batchSize: 7,
      process: ({ url }) => void seen.push(url),
    });
    const loop = startable(postgres, { pool, workflows: [inOrder] });
    await loop.start();
    await until(() => seen.length === 100, 'all are done');
    expect(seen).toEqual([...seen].sort().reverse());
  });

  it('runs several workflows as one worker, with counts for each', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 3);
    await pool.query('CREATE TABLE posts (LIKE pages INCLUDING ALL)');
    await pool.query("INSERT INTO posts (url) VALUES ('a'), ('b')");
    const loop = startable(postgres, {
      pool,
      workflows: [pagesWorkflow(), pagesWorkflow({ name: 'posts', table: 'posts' })],
    });
    const counts = await loop.runOnce();
    expect(counts).toMatchObject({ claimed: 5, completed: 5 });
    expect(counts.byWorkflow).toMatchObject({ pages: { completed: 3 }, posts: { completed: 2 } });
    expect((await pool.query('SELECT FROM smart_router.workers')).rowCount).toBe(1);
    expect(() => startable(postgres, { pool, workflows: [pagesWorkflow(), pagesWorkflow()] })).toThrow(
      'workflow pages is given twice',
    );
  });

  it('stop releases claims that were not started, and start works again', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 10);
    const busy = gate();
    let begun = 0;
    const workflow = pagesWorkflow({
      concurrency: 2,
      process: () => {
        begun += 1;
        return busy.opened;
      },
    });
    const loop = startable(postgres, { pool, workflows: [workflow], heartbeat: { every: 50 } });
    await loop.start();
    await until(async () => begun === 2 && (await statuses(pool)).Processing === 10, 'all are claimed');
    const stopped = loop.stop();
    await until(async () => (await statuses(pool)).Queued === 8, 'eight are released');
    busy.open();
    await stopped;
    expect(await statuses(pool)).toEqual({ Queued: 8, Completed: 2 });
    await loop.start();
    await until(async () => (await statuses(pool)).Completed === 10, 'the rest is done');
    const beats = async () => {
      const { rows } = await pool.query(
        'SELECT heartbeat_at > started_at AS beats FROM smart_router.workers',
      );
      return rows[0]?.beats === true;
    };
    await until(beats, 'it has a heartbeat again');
  });

  it('records that wait long for a slot keep their claim, and do not start without it', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 3);
    const clock = new ManualClock();
    const gates = [gate(), gate(), gate()];
    const begun: string[] = [];
    const workflow = pagesWorkflow({
      concurrency: 1,
      timeout: '20s',
      process: ({ id }) => gates[begun.push(id) - 1]?.opened,
    });
    const loop = startable(postgres, { pool, workflows: [workflow], clock });
    const run = loop.runOnce();
    await until(() => begun.length === 1, 'the first has begun');
    // As if it had been claimed long ago.
    await pool.query("UPDATE smart_router.claims SET claimed_at = now() - interval '1 hour'");
    const young = async () =>
      (await pool.query("SELECT FROM smart_router.claims WHERE claimed_at > now() - interval '1 minute'"))
        .rowCount;
    clock.advance(500);
    clock.advance(5500);
    await until(async () => (await young()) === 2, 'those that wait are renewed');
    // The next claim in the queue is deleted while the database is unreachable.
    const { rows } = await pool.query<{ record_id: string }>(
      "SELECT record_id FROM smart_router.claims WHERE claimed_at > now() - interval '1 minute'",
    );
    const waiting = rows.map(({ record_id }) => record_id);
    await pool.query('DELETE FROM smart_router.claims WHERE record_id = ANY($1)', [waiting]);
    gates[0]?.open();
    clock.advance(11_000);
    await until(() => loop.log.said('late finishes rejected').length > 0, 'it finds out');
    for (const { open } of gates) open();
    // Its lookers-after sleep by the clock of the test.
    const ended = run.then((counts) => counts);
    await until(async () => {
      clock.advance(500);
      return (await Promise.race([ended, Promise.resolve(undefined)])) !== undefined;
    }, 'the batch ends');
    expect(begun).toHaveLength(1);
    expect(await ended).toMatchObject({ claimed: 3, completed: 1, rejected: 2 });
  });

  it('a claim whose reply was lost is released before the next one, without a reset', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 10);
    const proxy = await tcpProxy(postgres.port);
    const url = postgres.url.replace(`:${postgres.port}/`, `:${proxy.port}/`);
    const loop = startable(postgres, {
      pool: postgres.pool({ connectionString: url }),
      workflows: [pagesWorkflow({ batchSize: 4 })],
      heartbeat: { every: '1h' },
    });
    expect(await loop.runOnce()).toMatchObject({ completed: 4 });
    proxy.loseReplies();
    const lost = loop.runOnce();
    await until(async () => (await statuses(pool)).Processing === 4, 'the claim arrives');
    proxy.reset();
    await expect(lost).rejects.toThrow();
    expect(await loop.runOnce()).toMatchObject({ claimed: 4, completed: 4 });
    expect(await loop.runOnce()).toMatchObject({ claimed: 2, completed: 2 });
    expect(await statuses(pool)).toEqual({ Completed: 10 });
    expect(loop.log.said('its reply was lost')).toMatchObject([{ records: 4 }]);
  });

  it('stop waits for a runOnce in progress', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 3);
    const busy = gate();
    let begun = 0;
    const process = () => {
      begun += 1;
      return busy.opened;
    };
    const workflow = pagesWorkflow({ concurrency: 1, process });
    const loop = startable(postgres, { pool, workflows: [workflow] });
    const run = loop.runOnce();
    await until(() => begun === 1, 'one runs, two wait');
    const stopped = loop.stop();
    await until(async () => (await statuses(pool)).Queued === 2, 'waiting claims are released');
    expect((await pool.query('SELECT FROM smart_router.workers')).rowCount).toBe(1);
    busy.open();
    await stopped;
    expect(await run).toMatchObject({ claimed: 3, completed: 1 });
    expect(await statuses(pool)).toEqual({ Completed: 1, Queued: 2 });
  });

  it('a row that cannot be claimed is skipped, and does not block the queue', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 4);
    await pool.query(
      "UPDATE pages SET url = 'refused', updated_at = now() - interval '1 h' WHERE url LIKE '%/1'",
    );
    await pool.query("ALTER TABLE pages ADD CONSTRAINT young CHECK (url <> 'refused') NOT VALID");
    const loop = startable(postgres, { pool, workflows: [pagesWorkflow()] });
    expect(await loop.runOnce()).toMatchObject({ claimed: 3, completed: 3 });
    expect(loop.log.said('record cannot be claimed')).toMatchObject([{ level: 50 }]);
    expect(await loop.runOnce()).toMatchObject({ claimed: 0 });
    expect(await statuses(pool)).toEqual({ Completed: 3, Queued: 1 });
  });

  it('a claim that the database refuses is retried', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 1);
    const loop = startable(postgres, { pool, workflows: [pagesWorkflow()], poll: 20 });
    await pool.query('ALTER TABLE pages RENAME TO away');
    await expect(loop.start()).rejects.toThrow('table "pages" does not exist');
    await pool.query('ALTER TABLE away RENAME TO pages');
    await loop.start();
    await pool.query('ALTER TABLE pages RENAME TO away');
    await until(() => loop.log.said('claim failed').length > 1, 'it is said');
    await expect(loop.runOnce()).rejects.toThrow('does not exist');
    await pool.query("UPDATE away SET status = 'Queued'");
    await pool.query('ALTER TABLE away RENAME TO pages');
    await until(async () => (await statuses(pool)).Completed === 1, 'it resumes');
  });
});
