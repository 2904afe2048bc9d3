/** Outcomes are written once, with a valid token, and never lost because of another row. */
import { expect, it } from 'vitest';
import type { RecordObserver } from '../../src/records/index.js';
import { describeOnePostgres, describePostgres } from '../support/postgres.js';
import { tcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';
import {
  deadWorker,
  gate,
  keepHistory,
  mostOften,
  type Page,
  page,
  pagesWorkflow,
  startable,
  statuses,
  storeOf,
  teamTable,
  temporaryFolder,
} from './fixture.js';

describePostgres('finishing', (postgres) => {
  it('a finish counts only with the token of the current claim', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 1);
    const store = await storeOf(pool);
    const [first] = await deadWorker(pool);
    await pool.query("UPDATE pages SET status = 'Queued'");
    const [second] = await deadWorker(pool);
    if (!first || !second) throw new Error('it was claimed twice');
    expect((await store.finish([{ id: first.id, token: first.token, error: null }])).written).toEqual(
      new Set(),
    );
    expect((await store.finish([{ id: first.id, token: '999999', error: null }])).written).toEqual(new Set());
    expect(await page(pool)).toMatchObject({ status: 'Processing' });
    const good = { id: second.id, token: second.token, error: 'no' };
    expect((await store.finish([good])).written).toEqual(new Set([second.id]));
    expect((await store.finish([{ ...good, error: null }])).written).toEqual(new Set());
    expect(await page(pool)).toMatchObject({ status: 'Failed', error: 'no' });
  });

  it('checks the token of each record in a batch of several claims', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 4);
    const store = await storeOf(pool);
    const claims = [...(await deadWorker(pool, { most: 2 })), ...(await deadWorker(pool, { most: 2 }))];
    const [first, second, third, fourth] = claims.map(({ id, token }) => ({ id, token, error: null }));
    if (!first || !second || !third || !fourth) throw new Error('two claims of two records');
    expect(first.token).not.toBe(third.token);
    // Each token is in the batch, but two of the records have the other one.
    const wrong = [first, { ...second, token: third.token }, { ...third, token: first.token }, fourth];
    expect(await store.finish(wrong)).toMatchObject({
      written: new Set([first.id, fourth.id]),
      unchanged: [],
    });
    expect(await statuses(pool)).toEqual({ Completed: 2, Processing: 2 });
    expect((await store.finish([second, third])).written).toEqual(new Set([second.id, third.id]));
    expect(await statuses(pool)).toEqual({ Completed: 4 });
  });

  it('a release with a stale and a current claim of one record returns it to the queue', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 2);
    const store = await storeOf(pool);
    const [stale] = await deadWorker(pool, { most: 1 });
    await pool.query("UPDATE pages SET status = 'Queued'");
    const claims = await deadWorker(pool, { most: 2 });
    const other = claims.find(({ id }) => id !== stale?.id);
    const current = claims.find(({ id }) => id === stale?.id);
    if (!stale || !other || !current) throw new Error('one record was claimed twice');
    expect(await store.release([other, stale, current])).toBe(2);
    expect(await statuses(pool)).toEqual({ Queued: 2 });
  });

  it('a row changed or deleted by hand during processing stays as it is, and the finish counts as late', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 3);
    const busy = gate();
    const told: Record<string, number> = {};
    const observer: RecordObserver = {
      rejected: (_, records) => {
        told.rejected = (told.rejected ?? 0) + records;
      },
      finished: (_, outcome, records) => {
        told[outcome] = (told[outcome] ?? 0) + records;
      },
    };
    const workflow = pagesWorkflow({ process: () => busy.opened });
    const loop = startable(postgres, { pool, workflows: [workflow], observer });
    const run = loop.runOnce();
    await until(async () => (await statuses(pool)).Processing === 3, 'they are claimed');
    await pool.query("UPDATE pages SET status = 'Failed', error = 'by hand' WHERE url LIKE '%/1'");
    await pool.query("DELETE FROM pages WHERE url LIKE '%/2'");
    busy.open();
    expect(await run).toMatchObject({ claimed: 3, completed: 1, rejected: 2 });
    expect(told).toEqual({ completed: 1, rejected: 2 });
    expect(await statuses(pool)).toEqual({ Completed: 1, Failed: 1 });
    expect((await pool.query('SELECT FROM smart_router.claims')).rowCount).toBe(0);
  });

  it('one refused row does not fail its batch', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 20);
    await pool.query(`
      ALTER TABLE pages ADD CONSTRAINT done CHECK (url NOT LIKE '%/7' OR status <> 'Completed'),
        ADD CONSTRAINT never CHECK (url NOT LIKE '%/9' OR status NOT IN ('Completed', 'Failed'))`);
    const zombies: string[] = [];
    const loop = startable(postgres, {
      pool,
      workflows: [pagesWorkflow()],
      observer: { zombie: (workflow) => zombies.push(workflow) },
    });
    expect(await loop.runOnce()).toMatchObject({ claimed: 20, completed: 18, failed: 1, abandoned: 1 });
    expect(await statuses(pool)).toEqual({ Completed: 18, Failed: 1, Processing: 1 });
    const { rows } = await pool.query<Page>("SELECT * FROM pages WHERE status = 'Failed'");
    expect(rows[0]?.error).toMatch(/^The outcome was refused: .*"done"/);
    expect(loop.log.said('ZOMBIE RECORD ALERT')).toMatchObject([
      { msg: expect.stringContaining('the database refuses its outcome') },
    ]);
    expect(zombies).toHaveLength(1);
  });

  it('an outcome written before its reply was lost is not a late finish', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 5);
    await keepHistory(pool);
    const proxy = await tcpProxy(postgres.port);
    const url = postgres.url.replace(`:${postgres.port}/`, `:${proxy.port}/`);
    const loop = startable(postgres, {
      pool: postgres.pool({ connectionString: url }),
      spoolFolder: temporaryFolder(),
      heartbeat: { every: '1h' },
      workflows: [
        pagesWorkflow({
          concurrency: 5,
          process: async ({ url: at }) => {
            if (at.endsWith('/1')) throw new Error('no');
            proxy.loseReplies();
          },
        }),
      ],
    });
    const run = loop.runOnce();
    await until(async () => (await statuses(pool)).Completed === 4, 'the outcomes arrive');
    proxy.reset();
    expect(await run).toMatchObject({ claimed: 5, completed: 4, failed: 1, rejected: 0 });
    expect(loop.log.said('late finishes')).toEqual([]);
    expect(await statuses(pool)).toEqual({ Completed: 4, Failed: 1 });
    expect(await mostOften(pool, 'Processing', 'Completed')).toBe(1);
  });

  it('an outcome whose reply was lost is late if another worker got the record', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 1);
    const [claim] = await deadWorker(pool);
    const store = await storeOf(pool);
    await store.recoverClaims(10, { deadAfterMs: 1000, timeoutGraceMs: 1000 });
    await deadWorker(pool);
    await pool.query("DELETE FROM smart_router.claims; UPDATE pages SET status = 'Completed'");
    if (!claim) throw new Error('it was claimed');
    expect(await store.settled([{ ...claim, error: null }])).toEqual([]);
  });

  it('messages that do not fit the error column are truncated', async () => {
    const pool = postgres.pool();
    const itself = new AggregateError([], 'contains itself');
    itself.errors.push(itself);
    const hostile = () => {
      throw new Error('no text of this');
    };
    const thrown = [
      ...['null\0byte', '😀'.repeat(2000), '', 'half of \ud83d a pair'],
      ...[Object.create(null) as unknown, itself, { toString: hostile }],
      Object.defineProperty(new Error(), 'message', { get: hostile }),
      new Proxy(new Error(), { get: hostile, getPrototypeOf: hostile, has: hostile }),
    ];
    await teamTable(pool, 2 * thrown.length);
    let n = 0;
    const workflow = pagesWorkflow({
      concurrency: 1,
      process: async (_, ctx) => {
        const what = thrown[n % thrown.length];
        n += 1;
        ctx.trace(what as string);
        const fail = async () => {
          throw typeof what === 'string' ? new Error(what) : what;
        };
        await (n > thrown.length ? ctx.tx(fail) : fail());
      },
    });
    const loop = startable(postgres, { pool, workflows: [workflow] });
    expect(await loop.runOnce()).toMatchObject({ failed: 2 * thrown.length });
    const { rows } = await pool.query<{ error: string }>('SELECT DISTINCT error FROM pages');
    expect(rows.map(({ error }) => error).sort()).toEqual(
      [
        ...['nullbyte', `${'😀'.repeat(1023)}…`, 'Error', 'half of \ufffd a pair'],
        ...['failed without a message', 'contains itself'],
      ].sort(),
    );
    // The transactions were rolled back, however odd the reason.
    expect((await pool.query("SELECT FROM pg_stat_activity WHERE state LIKE 'idle in%'")).rowCount).toBe(0);
  });
});

describeOnePostgres('a session that breaks between two rows', (postgres) => {
  it('counts as failed at every try, and pauses claiming', async () => {
    const admin = postgres.pool();
    await teamTable(admin, 4);
    // The first record is written alone, the others together. A batch is refused; alone, the third record ends the session that writes it.
    await admin.query(`
      CREATE FUNCTION breaks() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF NOT EXISTS (SELECT FROM n WHERE status = 'Completed') THEN RETURN NULL; END IF;
        IF (SELECT count(*) FROM n) > 1 THEN RAISE EXCEPTION 'singly'; END IF;
        IF EXISTS (SELECT FROM n WHERE url LIKE '%/3') THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF;
        RETURN NULL;
      END $$;
      CREATE TRIGGER breaks AFTER UPDATE ON pages REFERENCING NEW TABLE AS n FOR EACH STATEMENT EXECUTE FUNCTION breaks()`);
    const loop = startable(postgres, {
      pool: postgres.pool(),
      workflows: [pagesWorkflow({ orderBy: 'url', concurrency: 1 })],
      spoolFolder: temporaryFolder(),
    });
    expect(await loop.runOnce()).toMatchObject({ completed: 2, spooled: 2 });
    expect(loop.log.said('no session to finish records').map(({ attempt }) => attempt)).toEqual([1, 2, 3]);
    expect(loop.isPaused).toBe(true);
    await admin.query('DROP TRIGGER breaks ON pages');
    await until(async () => (await statuses(admin)).Completed === 4, 'all are written');
  });
});

describeOnePostgres('finishing against locks and timeouts', (postgres) => {
  it('a locked row is written once it is unlocked, the others at once', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 20);
    const busy = gate();
    const folder = temporaryFolder();
    const loop = startable(postgres, {
      pool,
      workflows: [pagesWorkflow({ concurrency: 20, process: () => busy.opened })],
      spoolFolder: folder,
    });
    await loop.start();
    await until(async () => (await statuses(pool)).Processing === 20, 'they are claimed');
    const other = await postgres.client();
    await other.query('BEGIN');
    await other.query("SELECT FROM pages WHERE url LIKE '%/7' FOR UPDATE");
    busy.open();
    await until(async () => (await statuses(pool)).Completed === 19, 'the others are done');
    await until(() => loop.log.said('outcomes spooled').length > 0, 'the last one is kept aside');
    await other.query('COMMIT');
    await until(async () => (await statuses(pool)).Completed === 20, 'it is written too');
    expect(loop.log.said('late finishes')).toEqual([]);
  });

  it('short timeouts of the database lose no finished work', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 3);
    await keepHistory(pool);
    // Every write of an outcome takes longer than the team allows, until it is made quick.
    await pool.query(`
      CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$
      BEGIN
        IF new.status = 'Completed' THEN PERFORM pg_sleep(0.5); END IF;
        RETURN new;
      END $$;
      CREATE TRIGGER slow BEFORE UPDATE ON pages FOR EACH ROW EXECUTE FUNCTION slow()`);
    const loop = startable(postgres, {
      pool: postgres.pool({ options: '-c statement_timeout=300 -c lock_timeout=100' }),
      workflows: [pagesWorkflow()],
      spoolFolder: temporaryFolder(),
    });
    // On a busy machine a statement of the start may also take longer than that.
    await until(() => loop.start().then(() => true), 'it starts');
    await until(() => loop.log.said('outcomes spooled').length === 1, 'it is kept aside');
    expect(await statuses(pool)).toEqual({ Processing: 3 });
    // No new work starts; sessions work, so other workflows are not paused.
    await pool.query("INSERT INTO pages (url) VALUES ('later')");
    loop.wake();
    await until(() => loop.log.said('claim failed').length > 0, 'nothing new is begun');
    expect(await statuses(pool)).toEqual({ Processing: 3, Queued: 1 });
    expect(loop.isPaused).toBe(false);
    await pool.query('DROP TRIGGER slow ON pages');
    await until(async () => (await statuses(pool)).Completed === 4, 'it is written, and claiming resumes');
    expect(await mostOften(pool, 'Processing', 'Failed')).toBe(0);
  });
});
