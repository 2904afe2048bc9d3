/** What docs/records.md and docs/runbook-records.md show works as it stands there. */
import { existsSync, readFileSync } from 'node:fs';
import type { Pool } from 'pg';
import pg from 'pg';
import { describe, expect, it } from 'vitest';
import { systemClock } from '../../src/clock.js';
import { type AlertRule, alertRules } from '../../src/observe/alert-rules.js';
import { silentLogger } from '../../src/observe/log.js';
import * as records from '../../src/records/index.js';
import { applyMigrations } from '../../src/records/migrate.js';
import { migrations } from '../../src/workflows/migrations.generated.js';
import { pageCuration } from '../../src/workflows/page-curation.js';
import { describeOnePostgres, describePostgres } from '../support/postgres.js';
import { until } from '../support/until.js';

const root = new URL('../../', import.meta.url);
const read = (path: string) => readFileSync(new URL(path, root), 'utf8');
const guide = read('docs/records.md');
const runbook = read('docs/runbook-records.md');
const blocks = (text: string, language: string) =>
  [...text.matchAll(new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\``, 'gms'))].map(([, code = '']) => code);
const anchors = (text: string) =>
  [...text.matchAll(/^#+ (.*)$/gm)].map(([, title = '']) =>
    title
      .toLowerCase()
      .replace(/[^\w\s-]/g, '')
      .replaceAll(' ', '-'),
  );

/** Runs them as modules with our imports and the test's globals. Resolves to their exports. */
async function run(
  code: string,
  globals: Record<string, unknown>,
): Promise<{ workflows?: records.Workflow[] }> {
  const quiet = {
    ...records,
    createRecordLoop: (options: records.RecordLoopOptions) =>
      records.createRecordLoop({ log: silentLogger, ...options }),
    createRecovery: (options: records.RecoveryOptions) =>
      records.createRecovery({ log: silentLogger, ...options }),
  };
  const body = code
    .replace(/^import pg from 'pg';$/m, '')
    .replace(/^import \{ workflows \} from '.\/workflows.mjs';$/m, '')
    .replace(/^import (\{.*\}) from 'smart-router\/records';.*$/m, 'const $1 = smartRouterRecords;')
    .replace(/^export const workflows = /m, 'exported.workflows = ');
  expect(body).not.toMatch(/^(import|export) /m);
  const exported: { workflows?: records.Workflow[] } = {};
  const given = { pg, smartRouterRecords: quiet, exported, ...globals };
  const AsyncFunction = Object.getPrototypeOf(async () => {}).constructor;
  await new AsyncFunction(...Object.keys(given), body)(...Object.values(given));
  return exported;
}

describeOnePostgres('the programs of the guide', (postgres) => {
  const [definition = '', look = '', work = '', ...more] = blocks(guide, 'js');
  const [table = '', rights = ''] = blocks(guide, 'sql');
  const prepared = async () => {
    const pool = postgres.pool();
    await pool.query(table);
    await pool.query('INSERT INTO invoices (net) SELECT i FROM generate_series(1, 20) AS i');
    await pool.query(
      "INSERT INTO invoices (net, state, updated_at) VALUES (100, 'busy', now() - interval '2 hours')",
    );
    const { workflows } = await run(definition, {});
    return { pool, workflows };
  };
  const done = (pool: Pool) => pool.query("SELECT FROM invoices WHERE state = 'done' AND total = net * 1.2");

  it('are three files', () => {
    expect(more).toEqual([]);
    expect([definition, look, work].map((code) => /^\/\/ (.*)/.exec(code)?.[1])).toEqual([
      'workflows.mjs',
      'look.mjs',
      'work.mjs',
    ]);
  });

  it('look and change no row', async () => {
    const { pool, workflows } = await prepared();
    const printed: string[] = [];
    const before = (await pool.query('SELECT * FROM invoices ORDER BY id')).rows;
    await run(look, {
      workflows,
      console: { log: (text: string) => printed.push(text) },
      process: { env: { DATABASE_URL: postgres.url } },
    });
    expect(printed).toEqual([
      '1 stuck records would be recovered',
      expect.stringMatching(/^21, for 72\d\d s$/),
    ]);
    expect((await pool.query('SELECT * FROM invoices ORDER BY id')).rows).toEqual(before);
  });

  it('finish all rows, requeue a stuck one, and stop', async () => {
    const { pool, workflows } = await prepared();
    const signals = new Map<string, () => Promise<void>>();
    await run(work, {
      workflows,
      process: {
        env: { DATABASE_URL: postgres.url },
        once: (signal: string, listener: () => Promise<void>) => signals.set(signal, listener),
      },
    });
    await until(async () => (await done(pool)).rowCount === 21, 'all are done, the stuck one too');
    await signals.get('SIGTERM')?.();
    expect((await pool.query('SELECT FROM smart_router.workers')).rowCount).toBe(0);
  });

  it('need no more rights than the guide gives', async () => {
    const { pool: owner, workflows = [] } = await prepared();
    await records.migrate(owner);
    const role = `worker_${process.pid}`;
    await owner.query(`CREATE ROLE ${role} LOGIN PASSWORD 'pass'`);
    postgres.onEnd(() => owner.query(`DROP OWNED BY ${role}; DROP ROLE ${role}`));
    await owner.query(rights.replaceAll('TO worker', `TO ${role}`));
    const url = new URL(postgres.url);
    url.username = role;
    url.password = 'pass';
    const pool = postgres.pool({ connectionString: url.href });
    const log = silentLogger;
    expect(await records.migrate(pool)).toEqual({ applied: [] });
    const recovery = records.createRecovery({ pool, workflows, log });
    expect(await recovery.runOnce()).toMatchObject({ requeued: 1 });
    const loop = records.createRecordLoop({ pool, workflows, log });
    postgres.onEnd(() => loop.stop());
    expect(await loop.runOnce()).toMatchObject({ completed: 21, failed: 0 });
    expect(await records.inspect(pool, workflows[0] as never)).toMatchObject({ queued: 0, stuck: 0 });
    expect(await records.weeklyReport(pool)).toMatchObject({ records: 1 });
    await loop.stop();
  });

  it('the example of the README fails a record whose answer is an error', async () => {
    const pool = postgres.pool();
    await pool.query(table);
    await pool.query('INSERT INTO invoices (net) VALUES (1), (2)');
    const [example = ''] = blocks(read('README.md'), 'js').filter((code) =>
      code.includes('createRecordLoop'),
    );
    const stops: (() => Promise<void>)[] = [];
    const keeping =
      <O, T extends { stop(): Promise<void> }>(create: (options: O) => T) =>
      (options: O) => {
        const made = create({ log: silentLogger, ...options });
        stops.push(() => made.stop());
        return made;
      };
    const code = example.replace(/^import .*$/m, '');
    postgres.onEnd(async () => {
      for (const stop of stops) await stop();
    });
    await run(code, {
      createRecordLoop: keeping(records.createRecordLoop),
      createRecovery: keeping(records.createRecovery),
      defineWorkflow: records.defineWorkflow,
      migrate: records.migrate,
      pool,
      fetch: async (at: string) =>
        at.endsWith('/1') ? { ok: true, status: 200 } : { ok: false, status: 500 },
    });
    const states = async () =>
      (await pool.query('SELECT state, last_error FROM invoices ORDER BY id')).rows.map(
        ({ state, last_error }) => [state, last_error],
      );
    await until(async () => (await states()).every(([state]) => ['done', 'error'].includes(state)), 'done');
    expect(await states()).toEqual([
      ['done', null],
      ['error', 'the ERP answered 500'],
    ]);
  });
});

describe('the reference', () => {
  it('has every export of the package', () => {
    for (const name of Object.keys(records)) expect(guide).toContain(`\`${name}`);
  });

  it('has every field of a workflow, and none that does not exist', () => {
    const section = guide.slice(guide.indexOf('### `defineWorkflow'), guide.indexOf('### `createRecordLoop'));
    const named = [...section.matchAll(/^\| `(\w+(?:\.\w+)?)/gm)].map(([, name = '']) => name);
    const parts = ['stuck', 'limit', 'retry'];
    const nonsense = Object.fromEntries(parts.map((part) => [part, { nonsense: 1 }]));
    const wrong = { nonsense: 1, status: {}, ...nonsense } as never;
    let message = '';
    try {
      records.defineWorkflow(wrong);
    } catch (error) {
      message = String(error);
    }
    const known = (at: string) =>
      new RegExp(`${at}nonsense is not an option; the options are (.*)`).exec(message)?.[1]?.split(', ');
    const fields = (known('workflow: ') ?? []).filter((name) => !parts.includes(name));
    const inner = parts.flatMap((part) => (known(`${part}\\.`) ?? []).map((name) => `${part}.${name}`));
    expect(fields.length).toBeGreaterThan(10);
    expect([...named].sort()).toEqual([...fields, ...inner].sort());
  });

  it('has every alert condition with its severity', () => {
    const all = Object.values<readonly AlertRule[]>(alertRules)
      .flat()
      .filter(({ condition = '' }) => /^(records\.(?!sweeps)|pool)/.test(condition));
    expect(all.length).toBeGreaterThan(8);
    const rows = [...guide.matchAll(/^\| `((?:records|pool)\.\w+)` \|.*\| (\w+) \| (.*) \|$/gm)];
    const shown = rows.map(([, name, severity, about]) => `${name} ${severity} ${about}`);
    const about = ({ isShared }: AlertRule) => (isShared ? 'all replicas' : 'one process');
    expect(shown.sort()).toEqual(
      all.map((rule) => `${rule.condition} ${rule.severity} ${about(rule)}`).sort(),
    );
  });
});

describe('the checklists and links', () => {
  const checklists = guide.slice(guide.indexOf('## Checklists'));

  it('name only files that exist, and every row names one', () => {
    const rows = checklists
      .split('\n')
      .filter((line) => /^\| (?!item|criterion|enhancement|lesson|-)/.test(line));
    expect(rows.length).toBe(17 + 8 + 3 + 15);
    for (const row of rows) {
      const files = [...row.matchAll(/`((?:src|test|docs|deploy)\/[\w./-]+)`/g)].map(([, path = '']) => path);
      expect(files, row).not.toEqual([]);
      expect(files.filter((path) => !existsSync(new URL(path, root)))).toEqual([]);
    }
  });

  it('name tests by their titles, which exist', () => {
    const beforeLessons = checklists.slice(0, checklists.indexOf('### Lessons of others'));
    const named = [...beforeLessons.matchAll(/`(test\/[\w./-]+)`(?: "([^"]+)")?/g)];
    expect(named.length).toBeGreaterThan(25);
    for (const [row, file = '', title] of named) {
      expect(title, row).toBeDefined();
      expect(read(file), row).toContain(`it('${title}'`);
    }
  });

  it('every lesson is a test of that number', () => {
    const lessons = read('test/records/lessons.deep.test.ts');
    for (let n = 1; n <= 15; n += 1) {
      expect(checklists).toMatch(
        new RegExp(`^\\| ${n}\\. .*\`test/records/lessons.deep.test.ts\`, lesson ${n} \\|$`, 'm'),
      );
      expect(lessons).toContain(`lesson ${n}: `);
    }
  });

  it('every link leads somewhere', () => {
    for (const [name, text] of Object.entries({ 'records.md': guide, 'runbook-records.md': runbook })) {
      for (const [, target = ''] of text.matchAll(/\]\(([^)]+)\)/g)) {
        const [path = '', anchor] = target.split('#');
        const file = path === '' ? name : path;
        expect(existsSync(new URL(`docs/${file}`, root)), target).toBe(true);
        if (anchor !== undefined) expect(anchors(read(`docs/${file}`)), target).toContain(anchor);
      }
    }
  });
});

describePostgres('the queries of the runbook', (postgres) => {
  const queries = new Map(
    blocks(runbook, 'sql').map((sql) => [/^-- (.*)$/m.exec(sql)?.[1] ?? '', sql] as const),
  );
  const query = (name: string): string => {
    const sql = queries.get(name);
    if (sql === undefined) throw new Error(`the runbook has no query "${name}"`);
    return sql;
  };

  async function prepared(): Promise<Pool> {
    const pool = postgres.pool();
    await records.migrate(pool);
    await applyMigrations(pool, 'workflows', migrations);
    await pool.query(read('deploy/postgres/zombie_cleanup.sql'));
    return pool;
  }

  const shapes = {
    WF6: {
      workflow: 'sitemap-import',
      table: 'sitemap_files',
      status: 'sitemap_import_status',
      error: 'sitemap_import_error',
    },
    WF7: {
      workflow: 'page-curation',
      table: 'pages',
      status: 'page_processing_status',
      error: 'page_processing_error',
    },
  };

  /** 1 abandoned, 2 of a dead worker, 3 of a living one, 4 recent, 5 completed, 6 of a dead one and recent, 7 held. */
  async function populated({ workflow, table, status }: (typeof shapes)['WF6']): Promise<Pool> {
    const pool = await prepared();
    await pool.query(`
      INSERT INTO ${table} (domain, url, ${status}, updated_at)
      SELECT 'example.com', 'u' || i, CASE i WHEN 5 THEN 'Completed' ELSE 'Processing' END::text::${
        table === 'pages' ? 'page_processing_status' : 'sitemap_import_process_status'
      }, now() - CASE WHEN i IN (4, 6) THEN interval '5 minutes' ELSE interval '2 hours' END
      FROM generate_series(1, 7) AS i;
      INSERT INTO smart_router.workflows (name) VALUES ('another'), ('${workflow}');
      INSERT INTO smart_router.workers (process, host, pid, heartbeat_at) VALUES
        (gen_random_uuid(), 'dead', 1, now() - interval '10 minutes'), (gen_random_uuid(), 'alive', 2, now());
      INSERT INTO smart_router.claims (workflow, record_id, token, worker, claimed_at, timeout_ms, resets, trace)
      SELECT f.id, t.id::text, nextval('smart_router.tokens'), w.id, t.updated_at, 300000, 2, 'half way'
      FROM ${table} AS t, smart_router.workers AS w, smart_router.workflows AS f
      WHERE f.name = '${workflow}' AND (t.url, w.host) IN (('u2', 'dead'), ('u3', 'alive'), ('u6', 'dead'));
      INSERT INTO smart_router.claims (workflow, record_id, held_at)
      SELECT f.id, t.id::text, now() FROM ${table} AS t, smart_router.workflows AS f
      WHERE f.name = '${workflow}' AND t.url = 'u7';
      -- Another workflow's living claim on a record of the same id protects nothing here.
      INSERT INTO smart_router.claims (workflow, record_id, token, worker, claimed_at, timeout_ms)
      SELECT f.id, t.id::text, nextval('smart_router.tokens'), w.id, now(), 300000
      FROM ${table} AS t, smart_router.workers AS w, smart_router.workflows AS f
      WHERE f.name = 'another' AND t.url = 'u1' AND w.host = 'alive'`);
    return pool;
  }

  it('there are the four steps for both workflows', () => {
    for (const flow of ['WF6', 'WF7'])
      for (const step of ['identify', 'reset', 'monitor'])
        expect([...queries.keys()]).toContain(`${flow}: ${step}`);
    expect(queries.has('')).toBe(false);
    expect(queries.size).toBe(blocks(runbook, 'sql').length);
  });

  it('each one runs on a fresh database', async () => {
    const pool = await prepared();
    await pool.query("INSERT INTO smart_router.workflows (name) VALUES ('page-curation')");
    for (const [name, sql] of queries) await expect(pool.query(sql), name).resolves.toBeDefined();
  });

  it.each(Object.entries(shapes))(
    '%s: finds and resets stuck records, and no live ones',
    async (flow, shape) => {
      const pool = await populated(shape);
      const { table, status, error } = shape;
      const ids = async (urls: string[]) =>
        (await pool.query(`SELECT id FROM ${table} WHERE url = ANY($1) ORDER BY id`, [urls])).rows.map(
          ({ id }) => id,
        );
      const stuck = await ids(['u1', 'u2']);
      const found = (await pool.query(query(`${flow}: identify`))).rows;
      expect(found.map(({ id }) => id).sort()).toEqual(stuck);
      const before = (await pool.query(`SELECT * FROM ${table} WHERE url NOT IN ('u1', 'u2') ORDER BY id`))
        .rows;
      const reset = (await pool.query(query(`${flow}: reset`))).rows;
      expect(reset.map(({ id }) => id).sort()).toEqual(stuck);
      expect(
        (await pool.query(`SELECT * FROM ${table} WHERE url NOT IN ('u1', 'u2') ORDER BY id`)).rows,
      ).toEqual(before);
      const { rows: after } = await pool.query(
        `SELECT ${status}::text AS status, ${error} AS error, now() - updated_at < interval '1 minute' AS fresh FROM ${table} WHERE url IN ('u1', 'u2')`,
      );
      const queued = { status: 'Queued', error: 'Auto-reset from stuck Processing state', fresh: true };
      expect(after).toEqual([queued, queued]);
      expect((await pool.query(query(`${flow}: reset`))).rows).toEqual([]);
      const { rows: noted } = await pool.query('SELECT reason, outcome FROM smart_router.resets');
      expect(noted).toEqual(Array(2).fill({ reason: 'by_hand', outcome: 'requeued' }));
      const { rows: left } = await pool.query(
        'SELECT f.name, w.host FROM smart_router.claims AS c JOIN smart_router.workflows AS f ON f.id = c.workflow JOIN smart_router.workers AS w ON w.id = c.worker ORDER BY 1, 2',
      );
      expect(left.map(({ name, host }) => `${name} ${host}`)).toEqual([
        'another alive',
        `${shape.workflow} alive`,
        `${shape.workflow} dead`,
      ]);
      const { rows: counts } = await pool.query(query(`${flow}: monitor`));
      expect(counts.map((row) => `${row.status} ${row.records}`).sort()).toEqual([
        'Processing 4',
        'Queued 2',
      ]);
    },
  );

  it('any table: the dry run names what the reset then resets', async () => {
    const pool = await populated(shapes.WF7);
    const dry = (await pool.query(query('any table: dry run'))).rows;
    expect(dry).toHaveLength(2);
    expect((await pool.query(query('any table: dry run'))).rows).toHaveLength(2);
    const reset = (await pool.query(query('any table: reset'))).rows;
    expect(reset.map((row) => row.record_id)).toEqual(dry.map((row) => row.record_id));
    expect((await pool.query(query('any table: reset'))).rows).toEqual([]);
  });

  it('the counts and the views distinguish dead and live workers', async () => {
    const pool = await populated(shapes.WF7);
    expect((await pool.query(query('WF7: count'))).rows).toEqual([
      { old: '4', zombie_count: '3', held: '1' },
    ]);
    const holders = (await pool.query(query('any workflow: who holds what'))).rows;
    expect(holders.find(({ host }) => host === 'dead')).toMatchObject({ trace: 'half way', resets: 2 });
    const workers = (await pool.query(query('workers'))).rows;
    expect(workers.map(({ host, records: held }) => `${host} ${held}`)).toEqual(['dead 2', 'alive 2']);
    await pool.query(query('WF7: reset'));
    expect((await pool.query(query('any workflow: history'))).rows).toMatchObject([
      { workflow: 'page-curation', reason: 'by_hand', records: '2' },
    ]);
  });

  it('a worker claims records that were reset by hand, with a full budget', async () => {
    const pool = await populated(shapes.WF7);
    await pool.query(query('WF7: reset'));
    const workflow = records.defineWorkflow({ ...pageCuration({ clock: systemClock }), process: () => {} });
    const loop = records.createRecordLoop({ pool, workflows: [workflow], log: silentLogger });
    expect(await loop.runOnce()).toMatchObject({ claimed: 2, completed: 2 });
    await loop.stop();
  });
});
