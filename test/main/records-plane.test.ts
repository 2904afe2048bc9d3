import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Pool } from 'pg';
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { systemClock } from '../../src/clock.js';
import { loadConfig } from '../../src/config/config.js';
import { Plane } from '../../src/main/records-plane.js';
import { RecordsStatusTracker } from '../../src/main/records-status.js';
import { startRouter } from '../../src/main/router.js';
import { silentLogger } from '../../src/observe/log.js';
import { combineObservers } from '../../src/records/observer.js';
import { routerEnv, type Started, start, useBinary, useStore } from '../cli/support.js';
import { ManualClock } from '../support/manual-clock.js';
import { describeOnePostgres } from '../support/postgres.js';
import { addJob, jobOf, jobsTable, recordsModule } from '../support/records-module.js';
import { until } from '../support/until.js';

const binary = useBinary();
const store = useStore();

/** `smart-router serve` with everything it writes; ended with the test. */
async function serve(env: NodeJS.ProcessEnv): Promise<Started & { url: string; output(): string }> {
  const REDIS_URL = await store.emptied();
  const started = start(binary, ['serve'], { env: { ...routerEnv, REDIS_URL, ...env } });
  onTestFinished(async () => {
    started.child.kill('SIGKILL');
    await started.ended;
  });
  let output = '';
  started.child.stdout?.on('data', (text: string) => {
    output += text;
  });
  const url = await until(
    () => /"url":"([^"]+)".*"msg":"smart-router is listening"/.exec(output)?.[1],
    'it listens',
  );
  return { ...started, url, output: () => output };
}

const recordsOf = async (url: string) => {
  const status = (await (await fetch(`${url}/api/v1/status`)).json()) as {
    records: { database: string; paused: boolean; error: string | null };
  };
  return status.records;
};

describeOnePostgres('serve with a database', (postgres) => {
  let pool: Pool;
  beforeEach(() => {
    pool = postgres.pool();
  });
  const rows = async (sql: string) => (await pool.query(sql)).rows;
  const count = async (where: string) =>
    Number((await rows(`SELECT count(*) AS n FROM jobs WHERE ${where}`))[0].n);

  describe('runs the shipped workflows', () => {
    let web: Server;
    let site: string;
    beforeAll(async () => {
      web = createServer((request, response) => {
        if (request.url === '/sitemap.xml') {
          const pages = ['/a', '/b'].map((path) => `<url><loc>${site}${path}</loc></url>`).join('');
          response.writeHead(200, { 'content-type': 'application/xml' });
          response.end(`<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">${pages}</urlset>`);
        } else {
          response.writeHead(200, { 'content-type': 'text/html' });
          response.end(`<title>Page ${request.url}</title><a href="mailto:hello@example.com">mail</a>`);
        }
      });
      await new Promise<void>((resolve) => web.listen(0, '127.0.0.1', resolve));
      site = `http://127.0.0.1:${(web.address() as AddressInfo).port}`;
    });
    afterAll(() => new Promise((resolve) => web.close(resolve)));
    const createTables = async () => {
      const env = { DATABASE_URL: postgres.url };
      const { stdout } = await start(binary, ['records', 'migrate', '--with-workflows'], { env }).ended;
      expect(stdout).toContain('applied 002_pages');
    };

    it('from a sitemap to its pages', async () => {
      await createTables();
      const { url } = await serve({
        DATABASE_URL: postgres.url,
        RECORDS_WORKFLOWS: 'wf6,wf7',
        RECORDS_ALLOW_PRIVATE_ADDRESSES: 'true',
      });
      await pool.query("INSERT INTO sitemap_files (domain, url) VALUES ('127.0.0.1', $1)", [
        `${site}/sitemap.xml`,
      ]);
      const done = await until(async () => {
        const found = await rows(
          "SELECT title, contacts FROM pages WHERE page_processing_status = 'Completed' ORDER BY url",
        );
        return found.length === 2 && found;
      }, 'both pages are read');
      expect(done.map(({ title }) => title)).toEqual(['Page /a', 'Page /b']);
      expect(done[0].contacts.emails).toEqual(['hello@example.com']);
      expect(await rows('SELECT sitemap_import_status AS s FROM sitemap_files')).toEqual([
        { s: 'Completed' },
      ]);
      await until(async () => {
        const { stdout } = await start(binary, ['status', '--url', url]).ended;
        const shown = /^records +database up, 2 workflows$/m.test(stdout);
        return shown && /^records-fast-sweep +running/m.test(stdout);
      }, 'the status shows the workflows and the sweeps');
    });

    it('but fetches nothing from private addresses unless allowed', async () => {
      await createTables();
      await serve({ DATABASE_URL: postgres.url, RECORDS_WORKFLOWS: 'wf7' });
      await pool.query('INSERT INTO pages (url) VALUES ($1)', [`${site}/a`]);
      const failed = await until(
        async () => (await rows("SELECT * FROM pages WHERE page_processing_status = 'Failed'"))[0],
        'it is refused',
      );
      expect(failed.page_processing_error).toMatch(/private|not public|address/i);
    });

    it('only where they are named, and creates no table in the team’s database', async () => {
      const { url, child } = await serve({ DATABASE_URL: postgres.url });
      expect(await recordsOf(url)).toBeNull();
      child.kill('SIGKILL');
      expect(await rows("SELECT FROM pg_namespace WHERE nspname = 'smart_router'")).toEqual([]);
      await jobsTable(pool);
      await pool.query('CREATE TABLE pages (id uuid PRIMARY KEY, page_processing_status text)');
      const other = await serve({
        DATABASE_URL: postgres.url,
        RECORDS_WORKFLOWS: 'wf6,wf7',
        RECORDS_MODULE: recordsModule(),
      });
      await addJob(pool, 'ok');
      await until(async () => (await count("status = 'Completed'")) === 1, 'the workflow of the team runs');
      const error = await until(async () => {
        const found = (await recordsOf(other.url)).error ?? '';
        return found.includes('workflow sitemap-import: table "sitemap_files" does not exist') && found;
      }, 'the status names the disabled workflow');
      expect(error).toMatch(/workflow page-curation: column "\w+" \(\w+\) does not exist in "pages"/);
      expect(await rows("SELECT to_regclass('sitemap_files') AS found")).toEqual([{ found: null }]);
      // What the router has written may reach us after its answer.
      const off = await until(() => {
        const found = [...other.output().matchAll(/"msg":"shipped workflow is off: (.*?)"}/g)];
        return found.length === 2 && found.map(([, text]) => text);
      }, 'the log says what is off');
      expect(off).toEqual([
        expect.stringMatching(
          /^workflow sitemap-import: .* Create its tables with .* Then restart the router\.$/,
        ),
        expect.stringMatching(/^workflow page-curation: column .* This is another table of the same name/),
      ]);
    });

    it('on an existing table of that name, which stays unchanged', async () => {
      await pool.query(`CREATE TABLE pages (
        id uuid PRIMARY KEY DEFAULT gen_random_uuid(), url text NOT NULL, title text, description text,
        contacts jsonb, page_processing_status text, page_processing_error text, updated_at timestamp)`);
      await pool.query(
        "INSERT INTO pages (url, page_processing_status, updated_at) VALUES ($1, 'Queued', now() AT TIME ZONE 'UTC')",
        [`${site}/a`],
      );
      await serve({
        DATABASE_URL: postgres.url,
        RECORDS_WORKFLOWS: 'wf7',
        RECORDS_ALLOW_PRIVATE_ADDRESSES: 'true',
      });
      const page = await until(
        async () => (await rows("SELECT * FROM pages WHERE page_processing_status = 'Completed'"))[0],
        'it is read',
      );
      expect(page.title).toBe('Page /a');
      expect(Object.keys(page)).toHaveLength(8);
    });
  });

  describe('on stop', () => {
    /** A handler leaves a note as soon as it runs; a row is in Processing before. */
    const begun = (handlers: number) =>
      until(
        async () =>
          (await rows('SELECT FROM smart_router.claims WHERE trace IS NOT NULL')).length === handlers,
        `${handlers} have begun`,
      );

    it('finishes running records, releases claims that were not started, and signs off', async () => {
      await jobsTable(pool);
      for (let i = 0; i < 8; i += 1) await addJob(pool, 'wait');
      const { child, ended } = await serve({ DATABASE_URL: postgres.url, RECORDS_MODULE: recordsModule() });
      await until(async () => (await count("status = 'Processing'")) === 8, 'all are claimed');
      // The others only wait.
      await begun(2);
      child.kill('SIGTERM');
      await until(async () => (await count("status = 'Queued'")) === 6, 'the others are back');
      await addJob(pool, 'done', { status: 'Completed' });
      expect((await ended).code).toBe(0);
      expect(await count("status = 'Completed' AND what = 'wait'")).toBe(2);
      expect(await count("status = 'Processing'")).toBe(0);
      expect(await rows('SELECT * FROM smart_router.workers')).toEqual([]);
    });

    it('ends within SHUTDOWN_TIMEOUT although a handler never ends', async () => {
      await jobsTable(pool);
      await addJob(pool, 'hold');
      const { child, ended, shows } = await serve({
        DATABASE_URL: postgres.url,
        RECORDS_MODULE: recordsModule(),
        SHUTDOWN_TIMEOUT: '1s',
      });
      await begun(1);
      child.kill('SIGTERM');
      await shows('records still running at the shutdown timeout: the recovery requeues them');
      expect((await ended).code).toBe(0);
    });
  });

  it('survives a crash of the database: everything is processed, and nothing is lost', async () => {
    await jobsTable(pool);
    const waiting = await addJob(pool, 'wait');
    const { url } = await serve({ DATABASE_URL: postgres.url, RECORDS_MODULE: recordsModule() });
    await until(async () => (await jobOf(pool, waiting)).status === 'Processing', 'it is claimed');
    await postgres.restart('crash');
    await addJob(pool, 'done', { status: 'Completed' });
    for (let i = 0; i < 20; i += 1) await addJob(pool, 'ok');
    await until(async () => (await count("what = 'ok' AND status = 'Completed'")) === 20, 'all are done');
    await until(async () => {
      const found = await recordsOf(url);
      return found.database === 'up' && !found.paused && found.error === null && found;
    }, 'it is up again');
    // The one that was in work met the crash: it failed for its own transaction, or went through.
    const job = await until(async () => {
      const found = await jobOf(pool, waiting);
      // Queued: the recovery has put it back.
      return !['Processing', 'Queued'].includes(found.status) && found;
    }, 'it has an end');
    expect(['Completed', 'Failed']).toContain(job.status);
  });
});

describeOnePostgres('the record plane', (postgres) => {
  it('serves operations and runs the weekly report once the database is open', async () => {
    const env = {
      ...routerEnv,
      REDIS_URL: await store.emptied(),
      DATABASE_URL: postgres.url,
      RECORDS_WORKFLOWS: 'wf6,wf7',
    };
    const config = { ...loadConfig(env), databaseUrl: postgres.url, isOwnDatabase: true };
    const counted: string[] = [];
    const plane = await Plane.create(config, {
      clock: systemClock,
      log: silentLogger,
      listener: { stuck: (workflow) => counted.push(workflow) },
    });
    const reporter = () => plane.loops.find(({ name }) => name === 'records-report');
    expect(() => plane.operations()).toThrow('the database has not been opened yet');
    expect(reporter()).toMatchObject({ running: false });
    plane.start();
    await until(() => reporter()?.running, 'the report loop runs');
    await postgres
      .pool()
      .query("INSERT INTO pages (url, page_processing_status) VALUES ('https://x/', 'Failed')");
    expect((await plane.operations().inspect('page-curation')).failed).toBe(1);
    await until(() => counted.includes('page-curation'), 'a sweep has counted stuck records');
    await plane.stop();
    expect(reporter()).toMatchObject({ running: false });
  });
});

describe('a wrong RECORDS_MODULE stops the start', () => {
  const start = async (text: string | undefined) =>
    startRouter(
      loadConfig({
        ...routerEnv,
        REDIS_URL: await store.emptied(),
        DATABASE_URL: 'postgres://127.0.0.1:1/x',
        RECORDS_MODULE: text === undefined ? 'nowhere.mjs' : recordsModule(text),
      }),
      { log: silentLogger },
    );
  const definition =
    "{ name: 'a', table: 't', status: { column: 's', queued: 'q', processing: 'p', completed: 'c', failed: 'f' }, touchedAt: 'at', process() {} }";

  it.each([
    ['no such file', undefined, /nowhere\.mjs: no such file$/],
    ['a module that throws', "throw new Error('boom')", /cannot be loaded: boom$/],
    ['nothing exported', 'export const x = 1', /must export `workflows`/],
    ['an empty list', 'export default []', /must export `workflows`/],
    ['something else', 'export default [1]', /a workflow must be an object, got 1$/],
    ['a wrong definition', "export default { name: 'a', tabel: 'x' }", /workflow a: tabel is not an option/],
    ['the same name twice', `export default [${definition}, ${definition}]`, /duplicate workflow a$/],
  ])('%s', async (_, text, message) => {
    await expect(start(text)).rejects.toMatchObject({
      name: 'ConfigError',
      problems: expect.arrayContaining([expect.stringMatching(message)]),
    });
  });
});

describe('the status without a query', () => {
  it('has no stuck counts once they are stale, and while sessions fail', () => {
    const clock = new ManualClock();
    const tracker = new RecordsStatusTracker(clock);
    expect(tracker.gauges()).toMatchObject({ isUp: false, stuck: undefined });
    tracker.observer.session?.('ok');
    tracker.observer.stuck?.('pages', 3, 70);
    expect(tracker.gauges().stuck?.get('pages')).toMatchObject({ records: 3, oldestSeconds: 70 });
    tracker.observer.session?.('failed');
    expect(tracker.gauges()).toMatchObject({ isUp: false, stuck: undefined });
    tracker.observer.session?.('ok');
    tracker.observer.breaker?.(true);
    expect(tracker.gauges()).toMatchObject({ isUp: false, isPaused: true, stuck: undefined });
    tracker.observer.breaker?.(false);
    expect(tracker.gauges().stuck?.size).toBe(1);
    clock.advance(151_000);
    expect(tracker.gauges().stuck?.size).toBe(0);
  });

  it('has a p99 of the latest thousand records after a hundred', () => {
    const tracker = new RecordsStatusTracker(new ManualClock());
    for (let i = 1; i < 100; i += 1) tracker.observer.processed?.('pages', i);
    expect(tracker.p99('pages')).toBeNull();
    tracker.observer.processed?.('pages', 100);
    expect(tracker.p99('pages')).toBe(99);
    for (let i = 0; i < 1000; i += 1) tracker.observer.processed?.('pages', 2);
    expect(tracker.p99('pages')).toBe(2);
  });

  it('combined observers all receive every event', () => {
    const heard: string[] = [];
    const listener = (name: string) => ({ claimed: (...args: unknown[]) => heard.push(`${name} ${args}`) });
    combineObservers([listener('a'), {}, listener('b')]).claimed?.('pages', 2);
    expect(heard).toEqual(['a pages,2', 'b pages,2']);
  });
});
