/** Limits per key, on real PostgreSQL: exact under races, fair between keys, for keys of every type. */
import type { Pool } from 'pg';
import { expect, it } from 'vitest';
import { systemClock } from '../../src/clock.js';
import type { ConfigError } from '../../src/errors.js';
import { Sessions } from '../../src/records/sessions.js';
import { RecordStore } from '../../src/records/store.js';
import { Sweeps } from '../../src/records/sweeps.js';
import { openTable, type QueryName, type Table } from '../../src/records/table.js';
import { defaultBounds, type Workflow } from '../../src/records/workflow.js';
import { describePostgres } from '../support/postgres.js';
import { until } from '../support/until.js';
import {
  deadWorker,
  gate,
  memoryLog,
  pagesWorkflow,
  silence,
  startable,
  statuses,
  storeOf,
  teamTable,
} from './fixture.js';

const fail = () => {
  throw new Error('a function is not a duration');
};
const limit = (max: number) => ({ limit: { key: 'customer', max } });

async function customers(pool: Pool, type: string, keys: string, rows: number, isIndexed = true) {
  await teamTable(pool, 0);
  await pool.query(`ALTER TABLE pages ADD COLUMN customer ${type}`);
  if (isIndexed) await pool.query("CREATE INDEX ON pages (customer, updated_at) WHERE status = 'Queued'");
  await pool.query(
    `INSERT INTO pages (url, customer, updated_at) SELECT 'x', ${keys}, now() + i * interval '1 ms' FROM generate_series(1, $1) AS i`,
    [rows],
  );
}

async function newWorker(pool: Pool): Promise<number> {
  const { rows } = await pool.query(
    "INSERT INTO smart_router.workers (process, host, pid) VALUES (gen_random_uuid(), 'new', 1) RETURNING id",
  );
  return rows[0].id;
}

/** The highest number of claimed records of one customer. */
async function most(pool: Pool): Promise<number> {
  const { rows } = await pool.query(
    'SELECT coalesce(max(n), 0)::int AS n FROM (SELECT count(*) AS n FROM pages WHERE status = \'Processing\' AND customer IS NOT NULL GROUP BY customer::text COLLATE "C") AS one',
  );
  return rows[0].n;
}

/** Several workers claim and finish at once, without a pause. */
async function race(pool: Pool, table: Table): Promise<number> {
  let highest = 0;
  const worker = async () => {
    const store = new RecordStore(new Sessions({ pool, clock: systemClock }), table);
    const id = await newWorker(pool);
    for (let empty = 0; empty < 5; ) {
      const claims = await store.claim(id, 5, 300_000, 0);
      highest = Math.max(highest, await most(pool));
      empty = claims.length === 0 ? empty + 1 : 0;
      await store.finish(claims.map(({ id: record, token }) => ({ id: record, token, error: null })));
    }
  };
  await Promise.all(Array.from({ length: 6 }, worker));
  return highest;
}

describePostgres('a limit per key', (postgres) => {
  it.each([true, false])('is never exceeded by claims at once, with an index: %s', async (isIndexed) => {
    const pool = postgres.pool({ max: 12 });
    await customers(pool, 'bigint', 'i % 3', 240, isIndexed);
    const table = await openTable(pool, pagesWorkflow(limit(2)) as Workflow);
    expect(table.limit).toEqual({ isIndexed });
    expect(await race(pool, table)).toBeLessThanOrEqual(2);
  });

  const pausing = [
    'lockLimited',
    'SELECT set_config',
    'SELECT pg_advisory_xact_lock(1), set_config',
  ] as const;
  it.each([
    ['holds', [], 2],
    [
      'without its locks is detected',
      [['lockLimited', /ELSE pg_try_advisory_xact_lock\(.*\) END/, 'ELSE true END']],
      4,
    ],
  ] as const)('%s, against a claim that is not committed', async (_, edits, found) => {
    const { pool, table, store, worker } = await broken(edits);
    const other = await postgres.client();
    await other.query('BEGIN');
    const lock = [table.workflowId, 5, 5, null, 2, false, '60000', null];
    const { rows } = await other.query(table.queries.lockLimited, lock);
    expect(rows).toEqual([{ ids: expect.any(String), hashes: expect.any(String), key: '1' }]);
    const claim = [table.workflowId, 5, worker, 300_000, rows[0].ids, rows[0].hashes];
    await other.query(table.queries.claimLimited, claim);
    await store.claim(worker, 5, 300_000, 0);
    await other.query('COMMIT');
    await store.claim(worker, 5, 300_000, 0);
    expect(await most(pool)).toBe(found);
  });

  it.each([
    ['holds', [pausing], 2],
    [
      'without its count under the locks is detected',
      [pausing, ['claimLimited', 'count(*)', '0 * count(*)']],
      4,
    ],
  ] as const)('%s, against a claim that is committed before its locks', async (_, edits, found) => {
    const { pool, table, store, worker } = await broken(edits);
    const other = await postgres.client();
    await other.query('SELECT pg_advisory_lock(1)');
    const late = store.claim(worker, 5, 300_000, 0);
    await until(async () => {
      const { rows } = await pool.query("SELECT FROM pg_stat_activity WHERE wait_event = 'advisory'");
      return rows.length === 1;
    }, 'its snapshot is taken');
    const first = new RecordStore(new Sessions({ pool, clock: systemClock }), table);
    expect(await first.claim(worker, 5, 300_000, 0)).toHaveLength(2);
    await other.query('SELECT pg_advisory_unlock(1)');
    expect(await late).toHaveLength(found - 2);
    expect(await most(pool)).toBe(found);
  });

  /** A table with one key, and a store with changed statements. */
  async function broken(edits: readonly (readonly [QueryName, string | RegExp, string])[]) {
    const pool = postgres.pool();
    await customers(pool, 'bigint', '1', 9);
    const table = await openTable(pool, pagesWorkflow(limit(2)) as Workflow);
    const queries = { ...table.queries };
    for (const [name, find, replace] of edits) {
      queries[name] = queries[name].replace(find, replace);
      expect(queries[name]).not.toBe(table.queries[name]);
    }
    const store = new RecordStore(new Sessions({ pool, clock: systemClock }), { ...table, queries });
    return { pool, table, store, worker: await newWorker(pool) };
  }

  it.each([true, false])(
    'finds a free key behind thousands of rows of a full one, with an index: %s',
    async (isIndexed) => {
      const pool = postgres.pool();
      await customers(
        pool,
        'text',
        "CASE WHEN i <= 5000 THEN 'a' WHEN i <= 5003 THEN 'b' END",
        5005,
        isIndexed,
      );
      const store = await storeOf(pool, pagesWorkflow(limit(2)));
      const worker = await newWorker(pool);
      const keys = async (size: number) =>
        (await store.claim(worker, size, 300_000, 0)).map(({ record }) => record.customer).sort();
      // Records without a key are not limited, and take turns with the others.
      expect(await keys(4)).toEqual(['a', 'b', null, null]);
      expect(await keys(10)).toEqual(['a', 'b']);
      expect(await keys(10)).toEqual([]);
    },
  );

  it.each([
    ['bigint', 'i % 2'],
    ['text', "'it''s ' || i % 2"],
    ['uuid', 'md5((i % 2)::text)::uuid'],
    ['char(7)', "'c' || i % 2"],
    ['page_status', "CASE i % 2 WHEN 0 THEN 'Queued' ELSE 'Failed' END::page_status"],
    ['numeric', 'i % 2'],
    ['jsonb', "jsonb_build_object('n', i % 2)"],
    ['json', "json_build_object('n', i % 2)"],
    ['text[]', 'ARRAY[(i % 2)::text]'],
    ['timestamptz', "'2026-01-01'::timestamptz + (i % 2) * interval '1 day'"],
    ['point', 'point(i % 2, 1)'],
    ['bytea', "decode('0' || i % 2, 'hex')"],
    ['boolean', 'i % 2 = 0'],
  ])('holds for keys of type %s', async (type, keys) => {
    const pool = postgres.pool();
    await customers(pool, type, keys, 10, !['json', 'point'].includes(type));
    const store = await storeOf(pool, pagesWorkflow(limit(2)));
    const worker = await newWorker(pool);
    const claims = await store.claim(worker, 100, 300_000, 0);
    expect(claims).toHaveLength(4);
    expect(await most(pool)).toBe(2);
    expect(await store.claim(worker, 100, 300_000, 0)).toEqual([]);
    const [first] = claims;
    if (!first) throw new Error('there are claims');
    await store.release([first]);
    // A record that has a row already gets its key again.
    expect(await store.claim(worker, 100, 300_000, 0)).toHaveLength(1);
    expect(await store.claim(worker, 100, 300_000, 0, [first.id])).toEqual([]);
  });

  it.each([
    [1, true],
    [2, true],
    [3, true],
    [1, false],
    [2, false],
  ])(
    'serves every key and the rows without one, %i at a time, with an index: %s',
    async (size, isIndexed) => {
      const pool = postgres.pool();
      await customers(pool, 'bigint', 'nullif(i % 5, 0)', 100, isIndexed);
      const store = await storeOf(pool, pagesWorkflow(limit(1)));
      const worker = await newWorker(pool);
      const served = new Map<string | null, number>();
      // Two rounds: every second place is for rows without a key.
      for (let i = 0; i < 16 / size; i += 1) {
        const claims = await store.claim(worker, size, 300_000, 0);
        expect(claims).toHaveLength(size);
        for (const { record } of claims) served.set(record.customer, (served.get(record.customer) ?? 0) + 1);
        await store.finish(claims.map(({ id, token }) => ({ id, token, error: null })));
      }
      for (const key of ['1', '2', '3', '4']) expect(served.get(key), key).toBeGreaterThanOrEqual(1);
      expect(served.get(null)).toBeGreaterThanOrEqual(4);
    },
  );

  it('frees the places of a dead worker', async () => {
    const pool = postgres.pool();
    await customers(pool, 'bigint', '1', 5);
    const workflow = pagesWorkflow(limit(2));
    const store = await storeOf(pool, workflow);
    expect(await deadWorker(pool, { workflow })).toHaveLength(2);
    expect(await store.claim(await newWorker(pool), 10, 300_000, 0)).toEqual([]);
    await silence(pool);
    expect((await store.recoverClaims(10, defaultBounds))?.recovered).toHaveLength(2);
    expect(await store.claim(await newWorker(pool), 10, 300_000, 0)).toHaveLength(2);
  });

  it('frees the places of a dead worker in the fast sweep, also if its records were changed or deleted', async () => {
    const pool = postgres.pool();
    await customers(pool, 'bigint', '1', 5);
    const workflow = pagesWorkflow(limit(2));
    const store = await storeOf(pool, workflow);
    const [changed, deleted] = await deadWorker(pool, { workflow });
    await pool.query("UPDATE pages SET status = 'Queued' WHERE id = $1", [changed?.id]);
    await pool.query('DELETE FROM pages WHERE id = $1', [deleted?.id]);
    expect(await store.claim(await newWorker(pool), 10, 300_000, 0)).toEqual([]);
    const sweeps = new Sweeps({
      ...{ workflow: 'pages', store, bounds: defaultBounds, batchSize: 500 },
      ...{ log: memoryLog().log, onRecovered: async () => {} },
    });
    await sweeps.claims(true, new AbortController().signal);
    expect(await store.claim(await newWorker(pool), 10, 300_000, 0)).toHaveLength(2);
  });

  it('of two is kept by the handlers of three loops, and a finish makes room without a poll', async () => {
    const pool = postgres.pool({ max: 12 });
    await customers(pool, 'bigint', 'i % 2', 40);
    const running = new Map<string, number>();
    let highest = 0;
    const workflow = pagesWorkflow({
      ...limit(2),
      process: async (page) => {
        const { customer } = page as unknown as { customer: string };
        const now = (running.get(customer) ?? 0) + 1;
        running.set(customer, now);
        highest = Math.max(highest, now);
        await new Promise((resolve) => setTimeout(resolve, 5));
        running.set(customer, (running.get(customer) ?? 0) - 1);
      },
    });
    for (let i = 0; i < 3; i += 1)
      await startable(postgres, {
        pool,
        workflows: [workflow],
        poll: '1h',
        heartbeat: { every: 1000 },
      }).start();
    await until(async () => (await statuses(pool)).Completed === 40, 'all are done');
    expect(highest).toBe(2);
  });

  it('takes values with different texts for different keys, also of a type that ignores case', async () => {
    const pool = postgres.pool();
    await pool.query('CREATE EXTENSION citext');
    await customers(pool, 'citext', "CASE i % 2 WHEN 0 THEN 'acme' ELSE 'ACME' END", 10);
    const store = await storeOf(pool, pagesWorkflow(limit(2)));
    const claims = await store.claim(await newWorker(pool), 100, 300_000, 0);
    expect(claims.map(({ record }) => record.customer).sort()).toEqual(['ACME', 'ACME', 'acme', 'acme']);
  });

  it('reads all queued rows if the collation of its column takes different texts for equal', async () => {
    const pool = postgres.pool({ max: 12 });
    await pool.query(
      "CREATE COLLATION nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
    );
    const keys = "CASE WHEN i BETWEEN 51 AND 100 THEN 'ACME' ELSE 'acme' END";
    await customers(pool, 'text COLLATE nocase', keys, 150, false);
    await pool.query(`CREATE INDEX ON pages (customer COLLATE "C", updated_at) WHERE status = 'Queued'`);
    await pool.query(
      "UPDATE pages SET updated_at = updated_at - interval '1 hour' WHERE customer::text COLLATE \"C\" = 'ACME'",
    );
    const table = await openTable(pool, pagesWorkflow(limit(1)) as Workflow);
    expect(table.limit).toEqual({ isIndexed: false });
    expect(table.advice.join()).toContain('can have different texts');
    expect(await race(pool, table)).toBe(1);
  });

  it('counts the key before a claim if a trigger of the claim changes it', async () => {
    const pool = postgres.pool();
    await customers(pool, 'text', "CASE i % 2 WHEN 0 THEN 'acme' ELSE 'ACME' END", 60);
    await pool.query(`CREATE FUNCTION lower_customer() RETURNS trigger LANGUAGE plpgsql
      AS 'BEGIN NEW.customer = lower(NEW.customer); RETURN NEW; END'`);
    await pool.query(
      'CREATE TRIGGER lower BEFORE UPDATE ON pages FOR EACH ROW EXECUTE FUNCTION lower_customer()',
    );
    const store = await storeOf(pool, pagesWorkflow(limit(1)));
    const worker = await newWorker(pool);
    const claims = await store.claim(worker, 100, 300_000, 0);
    expect(claims.map(({ record }) => record.customer)).toEqual(['acme', 'acme']);
    expect(await store.claim(worker, 100, 300_000, 0)).toEqual([]);
  });

  it('continues after the type of its column has changed', async () => {
    const pool = postgres.pool();
    await customers(pool, 'bigint', 'i', 3);
    const store = await storeOf(pool, pagesWorkflow(limit(1)));
    const worker = await newWorker(pool);
    expect(await store.claim(worker, 1, 300_000, 0)).toHaveLength(1);
    await pool.query('ALTER TABLE pages ALTER customer TYPE uuid USING md5(customer::text)::uuid');
    // The first claim reads the table again, or fails because of the key that it continues after.
    await store.claim(worker, 1, 300_000, 0).catch(() => {});
    await until(async () => {
      await store.claim(worker, 1, 300_000, 0).catch(() => {});
      return (await statuses(pool)).Processing === 3;
    }, 'all are claimed');
  });

  it('does not stop the workflow when the database refuses a row behind those of a full key', async () => {
    const pool = postgres.pool();
    await customers(pool, 'text', "CASE WHEN i <= 200 THEN 'full' ELSE 'free ' || i END", 202);
    await pool.query("ALTER TABLE pages ADD CHECK (status <> 'Processing' OR customer <> 'free 201')");
    const busy = gate();
    const workflows = [
      pagesWorkflow({
        ...limit(2),
        process: (page) =>
          (page as never as { customer: string }).customer === 'full' ? busy.opened : undefined,
      }),
    ];
    const loop = startable(postgres, { pool, workflows, poll: 20 });
    await loop.start();
    await until(async () => (await statuses(pool)).Completed === 1, 'the other key is served');
    expect(await statuses(pool)).toEqual({ Queued: 199, Processing: 2, Completed: 1 });
    await until(() => loop.log.said('skipped for an hour').length === 1, 'the refused row is skipped');
    busy.open();
  });

  it('with a wrong definition is refused in one line each', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 1);
    const wrong: [object, RegExp][] = [
      ...[0, -1, 1.5, Number.NaN, '2', null, undefined, 10_001, 2n].map((max): [object, RegExp] => [
        { limit: { key: 'customer', max } },
        /^workflow pages: limit\.max must be a whole number from 1 to 10000$/,
      ]),
      ...[null, 3, 'customer'].map((given): [object, RegExp] => [
        { limit: given },
        /^workflow pages: limit must be an object$/,
      ]),
      ...['status', 'updated_at'].map((key): [object, RegExp] => [
        { limit: { key, max: 1 } },
        /^workflow pages: limit\.key must not be the column of status or touchedAt: a claim changes it$/,
      ]),
      ...[-1, 0, Number.NaN, Number.POSITIVE_INFINITY, '-5s', 'soon', true, () => fail(), 8 * 86_400_000].map(
        (backoff): [object, RegExp] => [
          { retry: { max: 1, backoff } },
          /^workflow pages: retry\.backoff must be a duration from 1ms to 168h, in milliseconds or like 30s, 5m, 1h$/,
        ],
      ),
      [{ retry: { max: 0 } }, /^workflow pages: retry\.max must be a whole number from 1 to 1000$/],
      [
        { retry: { max: 1, backoff: '2h', maxBackoff: '1h' } },
        /^workflow pages: retry\.maxBackoff must not be shorter than retry\.backoff$/,
      ],
    ];
    for (const [given, line] of wrong) {
      let problems: readonly string[] = [];
      try {
        pagesWorkflow(given);
      } catch (error) {
        ({ problems } = error as ConfigError);
      }
      expect(problems, String(line)).toEqual([expect.stringMatching(line)]);
    }
    const bad = { limit: { key: 'a b', max: 0, per: 1 }, retry: { max: 0, backoff: 'soon', maxBackoff: 5 } };
    expect(() => pagesWorkflow(bad as never)).toThrow(
      /limit\.per is not an option.*retry\.backoff must be a duration.*limit\.key must be the name of a column.*limit\.max must be a whole number from 1 to 10000.*retry\.max must be a whole number from 1 to 1000/s,
    );
    await expect(storeOf(pool, pagesWorkflow(limit(1)))).rejects.toThrow(
      'column "customer" (limit.key) does not exist in "pages"',
    );
    await pool.query('ALTER TABLE pages ADD COLUMN customer bigint');
    expect((await storeOf(pool, pagesWorkflow(limit(1)))).table.advice).toEqual([
      expect.stringContaining(
        `CREATE INDEX CONCURRENTLY ON "pages" ("customer", "updated_at") WITH (deduplicate_items = off) WHERE "status" = 'Queued'`,
      ),
    ]);
  });

  it('advises no index on a key whose equal values can have different texts', async () => {
    const pool = postgres.pool();
    await customers(pool, 'numeric', '1', 1);
    const advice = async () => (await storeOf(pool, pagesWorkflow(limit(1)))).table.advice;
    expect(await advice()).toEqual([
      'equal values of "customer" (limit.key, numeric) can have different texts (1.0 and 1.00, or acme and ACME), so claims cannot use an index on it: every claim reads all queued rows',
    ]);
    await pool.query('DROP INDEX pages_status_updated_at_idx, pages_customer_updated_at_idx');
    expect(await advice()).toEqual([
      expect.stringContaining(
        `CREATE INDEX CONCURRENTLY ON "pages" ("updated_at") WHERE "status" = 'Queued'`,
      ),
    ]);
  });
});
