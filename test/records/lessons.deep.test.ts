/** Fifteen bugs of other job queues that lost, doubled or stranded records. Each is a test. */
import { expect, it } from 'vitest';
import { RecordOperations } from '../../src/records/operations.js';
import { describeBothPostgres } from '../support/postgres.js';
import { tcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';
import {
  deadWorker,
  foreign,
  gate,
  keepHistory,
  memoryLog,
  mostOften,
  page,
  pagesWorkflow,
  recovers,
  resetsOf,
  silence,
  startable,
  statuses,
  storeOf,
  teamTable,
} from './fixture.js';

describeBothPostgres('lessons', (postgres) => {
  it('lesson 1: a stuck threshold below the timeout is rejected, and the default never undercuts it', async () => {
    expect(() => pagesWorkflow({ timeout: '2h', stuck: { after: '1h' } })).toThrow(
      'workflow pages: stuck.after (1h) must not be shorter than timeout (2h)',
    );
    const pool = postgres.pool();
    await teamTable(pool, 0);
    await foreign(pool, 90);
    const slow = pagesWorkflow({ timeout: '2h' });
    const recovery = recovers(postgres, { pool, workflows: [slow], stuckAfter: '1h' });
    expect(await recovery.runOnce()).toMatchObject({ requeued: 0 });
    await foreign(pool, 121);
    expect(await recovery.runOnce()).toMatchObject({ requeued: 1 });
  });

  it('lesson 2: staleness is judged by the heartbeat, not by the start, and the budget holds on the reset path', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 1);
    const long = pagesWorkflow({ timeout: '6h', stuck: { after: '7h' } });
    const recovery = recovers(postgres, { pool, workflows: [long] });
    await deadWorker(pool, { workflow: long });
    // It lives after all, and works on the record for three hours.
    await pool.query('UPDATE smart_router.workers SET heartbeat_at = now()');
    await pool.query("UPDATE smart_router.claims SET claimed_at = now() - interval '3 hours'");
    await pool.query("UPDATE pages SET updated_at = now() - interval '3 hours'");
    expect(await recovery.runOnce()).toMatchObject({ requeued: 0, failed: 0 });
    for (let deaths = 1; deaths <= 3; deaths += 1) {
      await silence(pool);
      expect(await recovery.runOnce()).toMatchObject({ requeued: 1, failed: 0 });
      await pool.query('UPDATE smart_router.claims SET not_before = now()');
      expect(await deadWorker(pool, { workflow: long })).toHaveLength(1);
    }
    expect(await recovery.runOnce()).toMatchObject({ requeued: 0, failed: 1 });
    expect(await page(pool)).toMatchObject({
      status: 'Failed',
      error: 'Stuck in Processing state after 3 resets',
    });
    expect((await resetsOf(pool)).map(({ outcome, resets }) => [outcome, resets])).toEqual([
      ['requeued', 0],
      ['requeued', 1],
      ['requeued', 2],
      ['failed', 3],
    ]);
  });

  it('lesson 3: the recovery never overwrites a row that is or is being completed', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 2);
    const [done, soon] = await deadWorker(pool);
    await pool.query("UPDATE pages SET status = 'Completed' WHERE id = $1", [done?.id]);
    const other = await postgres.client();
    await other.query('BEGIN');
    await other.query("UPDATE pages SET status = 'Completed' WHERE id = $1", [soon?.id]);
    const recovery = recovers(postgres, { pool, workflows: [pagesWorkflow()] });
    // It does not wait: the locked row is for the next sweep.
    expect(await recovery.runOnce()).toMatchObject({ requeued: 0, failed: 0 });
    await other.query('COMMIT');
    expect(await recovery.runOnce()).toMatchObject({ requeued: 0, failed: 0 });
    expect(await statuses(pool)).toEqual({ Completed: 2 });
    expect((await pool.query('SELECT FROM smart_router.claims')).rowCount).toBe(0);
  });

  it('lesson 4: rows and claims without a registered workflow are never touched', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 1);
    await deadWorker(pool, { workflow: pagesWorkflow({ name: 'another', stuck: { policy: 'hold' } }) });
    await pool.query("CREATE TABLE others (LIKE pages INCLUDING ALL); INSERT INTO others (url) VALUES ('x')");
    await pool.query("UPDATE others SET status = 'Processing', updated_at = now() - interval '91 days'");
    const elsewhere = pagesWorkflow({
      name: 'elsewhere',
      status: { ...pagesWorkflow().status, processing: 'Busy' },
    });
    await pool.query('ALTER TABLE pages ALTER status DROP DEFAULT, ALTER status TYPE text');
    const recovery = recovers(postgres, { pool, workflows: [elsewhere] });
    expect(await recovery.runOnce()).toMatchObject({ requeued: 0, failed: 0, held: 0 });
    expect(await page(pool)).toMatchObject({ status: 'Processing' });
    expect((await pool.query('SELECT token FROM smart_router.claims')).rows).toMatchObject([
      { token: expect.any(String) },
    ]);
    expect((await pool.query('SELECT status FROM others')).rows).toEqual([{ status: 'Processing' }]);
  });

  it('lesson 5: a batch of rows that cannot be recovered does not starve others, and the oldest age is reported', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 6);
    const refused = await deadWorker(pool);
    const stuck: [number, number][] = [];
    for (let i = 0; i < 12; i += 1) await foreign(pool, 180, i < 6 ? 'refused' : 'fine');
    await pool.query("UPDATE pages SET url = 'refused' WHERE id = ANY($1)", [refused.map(({ id }) => id)]);
    // As an old row may well be: any change of it is refused.
    await pool.query("ALTER TABLE pages ADD CONSTRAINT young CHECK (url <> 'refused') NOT VALID");
    const recovery = recovers(postgres, {
      pool,
      workflows: [pagesWorkflow()],
      batchSize: 3,
      observer: { stuck: (_, records, seconds) => stuck.push([records, seconds]) },
    });
    expect(await recovery.runOnce()).toMatchObject({ requeued: 6, held: 12 });
    expect(await statuses(pool)).toEqual({ Queued: 6, Processing: 12 });
    expect(recovery.log.said('held for a person')).toHaveLength(12);
    expect(await recovery.runOnce()).toMatchObject({ requeued: 0, held: 0 });
    await recovery.start();
    await until(() => stuck.length > 0, 'stuck records are counted');
    expect(stuck[0]?.[0]).toBe(12);
    expect(stuck[0]?.[1]).toBeGreaterThan(3 * 3600 - 1);
  });

  it('lesson 6: a record is finished once although a live worker and its successor both try', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 1);
    await keepHistory(pool);
    const slow = gate();
    const rejected: number[] = [];
    const first = startable(postgres, {
      pool,
      workflows: [pagesWorkflow({ process: () => slow.opened })],
      heartbeat: { every: '1h' },
      observer: { rejected: (_, records) => rejected.push(records) },
    });
    const late = first.runOnce();
    await until(async () => (await statuses(pool)).Processing === 1, 'it is claimed');
    await silence(pool);
    await recovers(postgres, { pool, workflows: [pagesWorkflow()] }).runOnce();
    const failing = pagesWorkflow({
      process: () => {
        throw new Error('no');
      },
    });
    const second = startable(postgres, { pool, workflows: [failing] });
    expect(await second.runOnce()).toMatchObject({ claimed: 1, failed: 1 });
    slow.open();
    expect(await late).toMatchObject({ completed: 0, rejected: 1 });
    expect(rejected).toEqual([1]);
    expect(await page(pool)).toMatchObject({ status: 'Failed', error: 'no' });
    expect(await mostOften(pool, 'Processing', 'Completed')).toBe(0);
    expect(await mostOften(pool, 'Processing', 'Failed')).toBe(1);
  });

  it.each([
    ['requeue', 'Queued', 'Auto-reset from stuck Processing state'],
    ['fail', 'Failed', 'Stuck in Processing state'],
    ['hold', 'Processing', null],
  ] as const)(
    'lesson 7: the policy %s decides what the death of a process means',
    async (policy, status, error) => {
      const pool = postgres.pool();
      await teamTable(pool, 1);
      const workflow = pagesWorkflow({ stuck: { policy } });
      const recovery = recovers(postgres, { pool, workflows: [workflow] });
      await deadWorker(pool, { workflow });
      const counts = { requeued: 0, failed: 0, held: 0 };
      const outcome = { requeue: 'requeued', fail: 'failed', hold: 'held' }[policy];
      expect(await recovery.runOnce()).toMatchObject({ ...counts, [outcome]: 1 });
      expect(await page(pool)).toMatchObject({ status, error });
      expect(await resetsOf(pool)).toMatchObject([{ reason: 'dead_worker', outcome, worker: 'gone 4711' }]);
      // Held once is enough.
      expect(await recovery.runOnce()).toMatchObject(counts);
    },
  );

  it('lesson 8: a reset record goes to the back of the queue, with a growing pause', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 1);
    await deadWorker(pool);
    await pool.query("INSERT INTO pages (url) VALUES ('fresh 1'), ('fresh 2')");
    const recovery = recovers(postgres, { pool, workflows: [pagesWorkflow()] });
    await recovery.runOnce();
    const store = await storeOf(pool);
    const order = (await store.queued(10)).length;
    expect(order).toBe(3);
    const { id } = (await pool.query('SELECT id FROM pages WHERE error IS NOT NULL')).rows[0];
    expect((await store.queued(10)).at(-1)).toBe(id);
    const waits: number[] = [];
    for (let death = 0; death < 2; death += 1) {
      await deadWorker(pool);
      await recovery.runOnce();
      const { rows } = await pool.query(
        'SELECT extract(epoch FROM not_before - (SELECT max(at) FROM smart_router.resets)) AS wait FROM smart_router.claims WHERE record_id = $1',
        [id],
      );
      waits.push(Number(rows[0].wait));
      expect(await store.queued(10)).not.toContain(id);
      await pool.query('UPDATE smart_router.claims SET not_before = now()');
    }
    expect(waits).toEqual([10, 20]);
  });

  it('lesson 9: a new process with the name of a dead one does not hide its claims', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 1);
    const [orphan] = await deadWorker(pool);
    expect(await deadWorker(pool, { silentMs: 0 })).toEqual([]);
    const { rows } = await pool.query('SELECT host, pid, process FROM smart_router.workers');
    expect(rows).toHaveLength(2);
    expect([rows[0].host, rows[0].pid]).toEqual([rows[1].host, rows[1].pid]);
    expect(rows[0].process).not.toBe(rows[1].process);
    const recovery = recovers(postgres, { pool, workflows: [pagesWorkflow()] });
    expect(await recovery.runOnce()).toMatchObject({ requeued: 1 });
    const [again] = await deadWorker(pool);
    expect(again?.id).toBe(orphan?.id);
    expect(again?.token).not.toBe(orphan?.token);
  });

  it('lesson 10: the sweep runs while every slot is busy, and again after a crash', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 1);
    const busy = gate();
    const one = pagesWorkflow({ batchSize: 1, concurrency: 1, process: () => busy.opened });
    const loop = startable(postgres, { pool, workflows: [one] });
    postgres.onEnd(() => busy.open());
    await loop.start();
    await until(async () => (await statuses(pool)).Processing === 1, 'the only slot is busy');
    await foreign(pool, 120);
    await pool.query('ALTER TABLE smart_router.resets RENAME TO elsewhere');
    const crashes: string[] = [];
    const recovery = recovers(postgres, {
      pool,
      workflows: [pagesWorkflow()],
      onCrash: (name) => crashes.push(name),
    });
    await recovery.start();
    await until(() => crashes.includes('records-slow-sweep'), 'it crashes');
    await pool.query('ALTER TABLE smart_router.elsewhere RENAME TO resets');
    await until(async () => (await statuses(pool)).Queued === 1, 'it requeues the record');
    expect(recovery.loops).toMatchObject([{ running: true }, { running: true }]);
    busy.open();
  });

  it('lesson 11: stale records do not use the slots of new ones', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 5);
    const one = pagesWorkflow({ concurrency: 1, batchSize: 2 });
    await deadWorker(pool, { workflow: one, most: 2 });
    const loop = startable(postgres, { pool, workflows: [one] });
    await loop.start();
    await until(async () => (await statuses(pool)).Completed === 3, 'the others are done');
    await recovers(postgres, { pool, workflows: [one] }).runOnce();
    await until(async () => (await statuses(pool)).Completed === 5, 'and the requeued ones');
  });

  it('lesson 12: a poison pill ends as Failed after its own budget of resets', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 3);
    await pool.query("UPDATE pages SET url = 'poison' WHERE id = (SELECT min(id::text)::uuid FROM pages)");
    const workflow = pagesWorkflow({ stuck: { maxResets: 2 }, orderBy: 'url DESC' });
    const recovery = recovers(postgres, { pool, workflows: [workflow] });
    const outcomes: unknown[] = [];
    for (let round = 0; round < 4; round += 1) {
      // Every worker that takes it dies.
      const claims = await deadWorker(pool, { workflow, most: 1 });
      if (claims[0]?.record.url !== 'poison') break;
      const { records } = await recovery.runOnce();
      outcomes.push(records[0]?.outcome);
      await pool.query('UPDATE smart_router.claims SET not_before = now()');
    }
    expect(outcomes).toEqual(['requeued', 'requeued', 'failed']);
    await recovery.runOnce();
    const loop = startable(postgres, { pool, workflows: [workflow] });
    await pool.query('UPDATE smart_router.claims SET not_before = now()');
    expect(await loop.runOnce()).toMatchObject({ completed: 2 });
    expect(await statuses(pool)).toEqual({ Completed: 2, Failed: 1 });
  });

  it('lesson 12: a poison pill does not fail other records of the same worker', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 3);
    await pool.query("UPDATE pages SET url = 'poison' WHERE id = (SELECT min(id::text)::uuid FROM pages)");
    const workflow = pagesWorkflow({ stuck: { maxResets: 2 } });
    const recovery = recovers(postgres, { pool, workflows: [workflow] });
    for (let round = 0; round < 3; round += 1) {
      expect(await deadWorker(pool, { workflow })).toHaveLength(3);
      // Only this record had started.
      await pool.query(
        "UPDATE smart_router.claims SET begun = NULL WHERE record_id <> (SELECT id::text FROM pages WHERE url = 'poison')",
      );
      const said = await recovery.runOnce({ dryRun: true });
      const did = await recovery.runOnce();
      expect([said.requeued, said.failed]).toEqual([did.requeued, did.failed]);
      await pool.query('UPDATE smart_router.claims SET not_before = now()');
    }
    expect((await pool.query("SELECT url FROM pages WHERE status = 'Failed'")).rows).toEqual([
      { url: 'poison' },
    ]);
    const loop = startable(postgres, { pool, workflows: [workflow] });
    expect(await loop.runOnce()).toMatchObject({ completed: 2 });
  });

  it('lesson 13: a manual retry starts with a full budget', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 1);
    const workflow = pagesWorkflow({ stuck: { maxResets: 1 } });
    const recovery = recovers(postgres, { pool, workflows: [workflow] });
    const die = async () => {
      expect(await deadWorker(pool, { workflow })).toHaveLength(1);
      return (await recovery.runOnce()).records[0]?.outcome;
    };
    expect([await die(), await die()]).toEqual(['requeued', 'failed']);
    await pool.query("UPDATE pages SET status = 'Queued'");
    expect([await die(), await die()]).toEqual(['requeued', 'failed']);
    const operations = new RecordOperations({
      pool,
      workflows: [workflow],
      stuckAfterMs: 3_600_000,
      log: memoryLog().log,
    });
    const { id } = await page(pool);
    expect(await operations.retry('pages', { ids: [id], dryRun: false })).toMatchObject({ requeued: 1 });
    expect([await die(), await die()]).toEqual(['requeued', 'failed']);
  });

  it('lesson 14: failed heartbeats cancel nothing; only a reply of the database does', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 1);
    const proxy = await tcpProxy(postgres.port);
    const { username: user, password, pathname } = new URL(postgres.url);
    const connection = { host: '127.0.0.1', port: proxy.port, user, password, database: pathname.slice(1) };
    let signal: AbortSignal | undefined;
    const workflow = pagesWorkflow({
      process: (_, ctx) =>
        new Promise<void>((resolve) => {
          signal = ctx.signal;
          ctx.signal.addEventListener('abort', () => resolve());
        }),
    });
    const loop = startable(postgres, { pool, workflows: [workflow], heartbeat: { every: 50, connection } });
    const run = loop.runOnce();
    await until(() => signal, 'it runs');
    await proxy.down();
    await until(() => loop.log.said('heartbeat failed').length >= 3, 'several heartbeats fail');
    expect(signal?.aborted).toBe(false);
    await pool.query('DELETE FROM smart_router.workers');
    await proxy.up();
    await until(() => signal?.aborted, 'the database says that there is no such worker');
    expect(await run).toMatchObject({ completed: 0, rejected: 1 });
  });

  it('lesson 15: work that blocks the event loop keeps its claim', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 1);
    const deadAfterMs = 1500;
    const blockedMs = 2 * deadAfterMs;
    const watcher = await postgres.client();
    let watching: Promise<unknown> = Promise.resolve();
    const workflow = pagesWorkflow({
      process: async () => {
        const beats = 'SELECT FROM smart_router.workers WHERE heartbeat_at > started_at';
        await until(async () => (await pool.query(beats)).rowCount === 1, 'the thread beats');
        // The database itself looks whether heartbeats come while this process hangs.
        watching = watcher.query(`
          DO $$ DECLARE until timestamptz := clock_timestamp() + ${blockedMs} * interval '1 ms';
          BEGIN
            CREATE TEMP TABLE beats (at timestamptz);
            WHILE clock_timestamp() < until LOOP
              INSERT INTO beats SELECT heartbeat_at FROM smart_router.workers;
              PERFORM pg_sleep(0.02);
            END LOOP;
          END $$`);
        await until(
          async () =>
            (
              await pool.query(
                "SELECT FROM pg_stat_activity WHERE query LIKE '%pg_sleep(0.02)%' AND pid <> pg_backend_pid()",
              )
            ).rowCount === 1,
          'the watcher watches',
        );
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, blockedMs);
      },
    });
    const loop = startable(postgres, { pool, workflows: [workflow], heartbeat: { every: 100 } });
    const recovery = recovers(postgres, {
      pool,
      workflows: [workflow],
      deadAfter: deadAfterMs,
      fastEvery: 100,
    });
    const run = loop.runOnce();
    expect(await run).toMatchObject({ completed: 1, rejected: 0 });
    await watching;
    const { rows } = await watcher.query('SELECT count(DISTINCT at) AS beats FROM beats');
    expect(Number(rows[0].beats)).toBeGreaterThan(2);
    expect(await recovery.runOnce()).toMatchObject({ requeued: 0 });
  });
});
