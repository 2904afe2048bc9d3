/** Any table of a team is used unchanged, and one that does not fit is rejected by name. */
import type { Pool } from 'pg';
import { describe, expect, it } from 'vitest';
import { silentLogger } from '../../src/observe/log.js';
import { inspect, migrate } from '../../src/records/index.js';
import { RecordOperations } from '../../src/records/operations.js';
import { defineWorkflow, type WorkflowDefinition } from '../../src/records/workflow.js';
import { describePostgres } from '../support/postgres.js';
import { deadWorker, pagesWorkflow, recovers, startable, teamTable } from './fixture.js';

const status = {
  column: 'status',
  queued: 'Queued',
  processing: 'Processing',
  completed: 'Completed',
  failed: 'Failed',
};
const definition: WorkflowDefinition = { name: 'w', table: 't', status, touchedAt: 'at', process: () => {} };
const problemsOf = (run: () => unknown): string[] => {
  try {
    run();
  } catch (error) {
    return (error as { problems: string[] }).problems;
  }
  return [];
};

describe('a definition', () => {
  it('is rejected with all its problems at once', () => {
    const wrong = {
      name: 'a b',
      table: 'x.y.z',
      id: 'no column',
      status: { column: '1', queued: 'A', processing: 'A', completed: '', failed: 5, done: 'x' },
      touchedAt: '',
      error: '"',
      batchSize: 0,
      concurrency: 1.5,
      orderBy: 'price; DROP TABLE pages',
      timeout: 'soon',
      timeZone: '',
      stuck: { after: '0s', policy: 'forget', maxResets: -1, limit: 3 },
      process: 'later',
      retries: 3,
    } as unknown as WorkflowDefinition;
    const found = problemsOf(() => defineWorkflow(wrong)).join('\n');
    for (const name of [
      'retries is not an option; the options are name, table',
      'status.done is not an option',
      'stuck.limit is not an option',
      'name must be',
      'table must be the name of a table',
      'id must be the name of a column',
      'status.column must be',
      'status.completed must be a text',
      'status.failed must be a text',
      'the four values of status must differ',
      'touchedAt must be',
      'error must be the name of a column',
      'batchSize must be a whole number from 1 to 10000',
      'concurrency must be',
      'orderBy must be columns',
      'timeout must be a duration',
      'timeZone must be',
      'stuck.after must be a duration',
      'stuck.policy must be requeue, fail or hold',
      'stuck.maxResets must be',
      'process must be a function',
    ])
      expect(found).toContain(`workflow: ${name}`);
  });

  it.each([undefined, null, 'pages', { ...definition, status: undefined }, { ...definition, stuck: null }])(
    '%j is refused without a crash',
    (given) => {
      expect(problemsOf(() => defineWorkflow(given as unknown as WorkflowDefinition))).not.toEqual([]);
    },
  );

  it.each([
    ['price', '"price"'],
    ['Price desc', '"price" DESC'],
    ['"Price" ASC NULLS LAST, id', '"Price" ASC NULLS LAST, "id"'],
    ['"a, b", c', '"a, b", "c"'],
    ['Ärger', '"Ärger"'],
  ])('takes the order %s as SQL does', (orderBy, sql) => {
    const { order } = defineWorkflow({ ...definition, orderBy });
    expect(order.map(({ column, rest }) => `"${column}"${rest}`).join(', ')).toBe(sql);
  });

  it.each(['price desc desc', 'lower(price)', 'price,', '1', 'a.b', ''])(
    'refuses the order %j',
    (orderBy) => {
      expect(problemsOf(() => defineWorkflow({ ...definition, orderBy }))).toHaveLength(1);
    },
  );
});

describePostgres('a table that does not fit', (postgres) => {
  const refused = async (pool: Pool, ...given: Partial<WorkflowDefinition>[]) => {
    const workflows = given.map((more, i) => defineWorkflow({ ...definition, name: `w${i}`, ...more }));
    const loop = startable(postgres, { pool, workflows });
    const error = (await loop.start().catch((reason: unknown) => reason)) as { problems: string[] };
    expect((await pool.query('SELECT FROM smart_router.workers')).rowCount).toBe(0);
    return error.problems;
  };

  it('is rejected with all problems of all workflows at once', async () => {
    const pool = postgres.pool();
    await migrate(pool);
    await pool.query(`
      CREATE TYPE state AS ENUM ('Queued', 'Processing', 'Done');
      CREATE TABLE t (id integer, status state, at date, note json);
      CREATE UNIQUE INDEX ON t (id) WHERE id > 0;
      CREATE VIEW v AS SELECT * FROM t`);
    expect(
      await refused(pool, { table: 'missing' }, { error: 'message', orderBy: 'rank' }, { table: 'v' }),
    ).toEqual([
      'workflow w0: table "missing" does not exist',
      'workflow w1: column "message" (error) does not exist in "t"',
      'workflow w1: column "rank" (orderBy) does not exist in "t"',
      'workflow w1: column "id" (id) must be unique and NOT NULL: a primary key, or a unique index on a NOT NULL column',
      'workflow w1: column "at" (touchedAt) must be a timestamp, not date',
      "workflow w1: 'Completed' (status.completed) is not a value of state: the values are 'Queued', 'Processing', 'Done'",
      "workflow w1: 'Failed' (status.failed) is not a value of state: the values are 'Queued', 'Processing', 'Done'",
      'workflow w2: "v" must be a table',
      ...[1, 2, 3, 4].map(() => expect.stringContaining('workflow w2: ')),
    ]);
  });

  it('is rejected for values that its columns truncate or refuse, and for an unknown time zone', async () => {
    const pool = postgres.pool();
    await migrate(pool);
    await pool.query(`
      CREATE TABLE t (id bigint PRIMARY KEY, status varchar(9), state integer, at timestamp, note json);
      CREATE TABLE empty (id text UNIQUE, status text, at timestamptz);
      CREATE TABLE list (id integer[] PRIMARY KEY, status text, at timestamptz)`);
    expect(
      await refused(
        pool,
        { error: 'note', timeZone: 'Mars/Olympus' },
        { status: { ...status, column: 'state' } },
        { table: 'empty' },
        { table: 'list' },
      ),
    ).toEqual([
      "workflow w0: the time zone 'Mars/Olympus' (timeZone) is unknown to the database",
      'workflow w0: column "note" (error) must be a text, not json',
      "workflow w0: 'Processing' (status.processing) is not a value of character varying(9)",
      ...['queued', 'processing', 'completed', 'failed'].map((name) =>
        expect.stringContaining(`(status.${name}) is not a value of integer`),
      ),
      expect.stringContaining('workflow w2: column "id" (id) must be unique and NOT NULL'),
      'workflow w3: column "id" (id) must not be an array: integer[] is not supported',
    ]);
  });

  it('is rejected before migrate has run, with what to do', async () => {
    const loop = startable(postgres, { pool: postgres.pool(), workflows: [pagesWorkflow()] });
    await expect(loop.start()).rejects.toThrow(
      'the schema smart_router does not exist: call migrate(pool), or run `smart-router records migrate`',
    );
  });
});

interface Case {
  title: string;
  create: string;
  /** Of rows named by `name`: in Queued. */
  insert: string;
  workflow: Partial<WorkflowDefinition>;
  /** Longest message; null: no error column. */
  longest?: number | null;
  /** Set where there is no error. */
  noError?: string | null;
  advice?: boolean;
  session?: string;
}

const plain = `CREATE TABLE t (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text, status text DEFAULT 'Queued',
  error text, at timestamptz DEFAULT now()); CREATE INDEX ON t (status)`;
const insert = 'INSERT INTO t (name) SELECT unnest($1::text[])';
const numbers = { queued: '0', processing: '1', completed: '2', failed: '3' };
const odd = { queued: "it's", processing: 'on\\off', completed: 'a"b', failed: '{id}' };

const cases: Case[] = [
  { title: 'a text status and a bigint id', create: plain, insert, workflow: {} },
  {
    title: 'a short status and a text id',
    create: plain
      .replace('id bigint GENERATED ALWAYS AS IDENTITY', "id text DEFAULT 'a ''\"\\' || gen_random_uuid()")
      .replace('status text', 'status varchar(10)'),
    insert,
    workflow: {},
  },
  {
    title: 'a number as status and a uuid id that is not the primary key',
    create: plain
      .replace(
        'bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY',
        'uuid NOT NULL UNIQUE DEFAULT gen_random_uuid()',
      )
      .replace("status text DEFAULT 'Queued'", 'status smallint DEFAULT 0'),
    insert,
    workflow: { status: { column: 'status', ...numbers } },
  },
  {
    title: 'states with quotes, backslashes and braces',
    create: plain.replace("DEFAULT 'Queued'", "DEFAULT 'it''s'"),
    insert,
    workflow: { status: { column: 'status', ...odd } },
  },
  {
    title:
      'an enum in another schema, names in mixed case with quotes inside, and an `id` that is not the id',
    create: `CREATE SCHEMA "Team"; CREATE TYPE "Team"."St ate" AS ENUM ('Queued', 'Processing', 'Completed', 'Failed');
      CREATE TABLE "Team"."Pa""ges" ("Id" uuid PRIMARY KEY DEFAULT gen_random_uuid(), id money[], name text,
        "St""atus" "Team"."St ate" DEFAULT 'Queued', "Er ror" text, "At" timestamptz DEFAULT now());
      CREATE INDEX ON "Team"."Pa""ges" ("St""atus")`,
    insert: 'INSERT INTO "Team"."Pa""ges" (name) SELECT unnest($1::text[])',
    workflow: {
      table: '"Team"."Pa""ges"',
      id: '"Id"',
      status: { ...status, column: '"St""atus"' },
      error: '"Er ror"',
      touchedAt: '"At"',
      orderBy: '"At" DESC, name',
    },
  },
  {
    title: 'times without a zone, in UTC, with any session time zone',
    create: plain.replace('at timestamptz DEFAULT now()', "at timestamp DEFAULT (now() AT TIME ZONE 'UTC')"),
    insert,
    workflow: {},
    session: '-c TimeZone=Asia/Tokyo',
  },
  {
    title: 'a timestamp as id, with any DateStyle of the session',
    create: plain.replace(
      'bigint GENERATED ALWAYS AS IDENTITY',
      "timestamptz DEFAULT now() + random() * interval '1 day'",
    ),
    insert,
    workflow: {},
    session: '-c DateStyle=German -c TimeZone=Asia/Kolkata',
  },
  {
    title: 'times without a zone, in the configured zone',
    create: plain.replace(
      'at timestamptz DEFAULT now()',
      "at timestamp(0) DEFAULT (now() AT TIME ZONE 'America/New_York')",
    ),
    insert,
    workflow: { timeZone: 'America/New_York' },
  },
  {
    title: 'a partitioned table',
    create: `CREATE TABLE t (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), name text, status text DEFAULT 'Queued',
        error text, at timestamptz DEFAULT now()) PARTITION BY HASH (id);
      CREATE TABLE t0 PARTITION OF t FOR VALUES WITH (MODULUS 2, REMAINDER 0);
      CREATE TABLE t1 PARTITION OF t FOR VALUES WITH (MODULUS 2, REMAINDER 1)`,
    insert,
    workflow: {},
    advice: true,
  },
  {
    title: 'no index on the status',
    create: plain.replace('; CREATE INDEX ON t (status)', ''),
    insert,
    workflow: {},
    advice: true,
  },
  {
    title: 'an index on queued rows, as advised',
    create: plain.replace('ON t (status)', "ON t (at) WHERE status = 'Queued'"),
    insert,
    workflow: {},
  },
  {
    title: 'an index on unfinished rows',
    create: plain.replace('ON t (status)', "ON t (at) WHERE status IN ('Queued', 'Processing')"),
    insert,
    workflow: {},
  },
  {
    title: 'an index with a condition that a claim does not have',
    create: plain.replace('ON t (status)', "ON t (at) WHERE status = 'Queued' AND name <> 'x'"),
    insert,
    workflow: {},
    advice: true,
  },
  {
    title: 'an index on all but queued rows',
    create: plain.replace('ON t (status)', "ON t (at) WHERE status <> 'Queued'"),
    insert,
    workflow: {},
    advice: true,
  },
  {
    title: 'an error column that must not be NULL',
    create: plain.replace('error text', "error text NOT NULL DEFAULT ''"),
    insert,
    workflow: {},
    noError: '',
  },
  {
    title: 'an error column that is short',
    create: plain.replace('error text', 'error varchar(12)'),
    insert,
    workflow: {},
    longest: 12,
  },
  {
    title: 'no error column',
    create: plain.replace('error text,', ''),
    insert,
    workflow: { error: undefined } as object,
    longest: null,
  },
];

describePostgres('a table with', (postgres) => {
  it.each(cases)('$title', async (one) => {
    const { create, workflow: more, longest = 1024, noError = null, advice = false } = one;
    const pool = postgres.pool(one.session ? { options: one.session } : {});
    await migrate(pool);
    await pool.query(create);
    const { error: errorName, ...others } = { error: 'error', ...more };
    const workflow = defineWorkflow({
      ...definition,
      ...(errorName === undefined ? {} : { error: errorName }),
      ...others,
      process: ({ name }) => {
        if (name === 'bad') throw new Error('this message is rather long');
      },
    });
    const table = workflow.table.map((part) => `"${part.replaceAll('"', '""')}"`).join('.');
    const column = (name: string) => `"${name.replaceAll('"', '""')}"`;
    const rows = async () => {
      const message = workflow.error === undefined ? 'NULL' : column(workflow.error);
      const { rows: found } = await pool.query(
        `SELECT name, ${column(workflow.status.column)}::text AS status, ${message} AS error FROM ${table} ORDER BY name`,
      );
      return found;
    };
    const { queued, processing, completed, failed } = workflow.status;
    const cut = (text: string) =>
      longest === null ? null : text.length > longest ? `${text.slice(0, longest - 1)}…` : text;

    await pool.query(one.insert, [['orphan']]);
    expect(await deadWorker(pool, { workflow: workflow as never })).toMatchObject([
      { record: { name: 'orphan' } },
    ]);
    await pool.query(one.insert, [['foreign', 'young']]);
    // More than the hour that a local time without a zone may skip in spring.
    const age = `${column(workflow.touchedAt)} = ${column(workflow.touchedAt)} - interval '3 hours'`;
    const mark = `UPDATE ${table} SET ${column(workflow.status.column)} = $1`;
    await pool.query(`${mark} WHERE name IN ('foreign', 'young')`, [processing]);
    await pool.query(`UPDATE ${table} SET ${age} WHERE name = 'foreign'`);
    const recovery = recovers(postgres, { pool, workflows: [workflow] });
    expect(await recovery.runOnce({ dryRun: true })).toMatchObject({ requeued: 2 });
    expect(await recovery.runOnce()).toMatchObject({ requeued: 2, failed: 0 });
    const reset = cut('Auto-reset from stuck Processing state');
    expect(await rows()).toEqual([
      { name: 'foreign', status: queued, error: reset },
      { name: 'orphan', status: queued, error: reset },
      { name: 'young', status: processing, error: noError },
    ]);
    await pool.query(one.insert, [['bad', 'good']]);
    const found = await inspect(pool, workflow);
    expect(found).toMatchObject({ queued: 4, processing: 1, failed: 0, stuck: 0 });
    expect(found.oldestQueuedSeconds).toBeLessThan(60);
    expect(found.advice).toHaveLength(advice ? 1 : 0);
    const loop = startable(postgres, { pool, workflows: [workflow] });
    expect(await loop.runOnce()).toMatchObject({ claimed: 4, completed: 3, failed: 1, rejected: 0 });
    expect(await rows()).toEqual([
      { name: 'bad', status: failed, error: cut('this message is rather long') },
      { name: 'foreign', status: completed, error: noError },
      { name: 'good', status: completed, error: noError },
      { name: 'orphan', status: completed, error: noError },
      { name: 'young', status: processing, error: noError },
    ]);
    const operations = new RecordOperations({
      pool,
      workflows: [workflow],
      stuckAfterMs: 3_600_000,
      log: silentLogger,
    });
    expect(await operations.failed(workflow.name, 10)).toMatchObject([
      { error: workflow.error === undefined ? null : cut('this message is rather long') },
    ]);
    const idsOf = async (name: string) => {
      const { rows: found } = await pool.query(
        `SELECT ${column(workflow.id)}::text AS id FROM ${table} WHERE name = $1`,
        [name],
      );
      return found.map(({ id }) => id as string);
    };
    for (const dryRun of [true, false]) {
      const reset = await operations.reset(workflow.name, { ids: await idsOf('young'), dryRun });
      const retry = await operations.retry(workflow.name, { ids: await idsOf('bad'), dryRun });
      expect([reset, retry]).toMatchObject([{ requeued: 1 }, { requeued: 1 }]);
    }
    expect((await rows()).filter(({ name }) => name === 'bad' || name === 'young')).toEqual([
      { name: 'bad', status: queued, error: noError },
      { name: 'young', status: queued, error: reset },
    ]);
  });

  it('many blocks and no index: the slow sweep reads it by ranges of blocks and finds everything', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 0, { index: false });
    await pool.query(`
      INSERT INTO pages (url, status, updated_at)
      SELECT repeat('x', 1900), CASE WHEN i % 500 = 0 THEN 'Processing' ELSE 'Completed' END::page_status, now() - interval '2 h'
      FROM generate_series(1, 9000) AS i`);
    const recovery = recovers(postgres, { pool, workflows: [pagesWorkflow()], batchSize: 5 });
    expect(await recovery.runOnce()).toMatchObject({ requeued: 18 });
  });
});
