/** A restart of the database loses no work of a handler, and applies none twice. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Pool } from 'pg';
import { expect, it, onTestFinished } from 'vitest';
import { systemClock } from '../../src/clock.js';
import { defineWorkflow, migrate, type RecordContext } from '../../src/records/index.js';
import { applyMigrations } from '../../src/records/migrate.js';
import { migrations } from '../../src/workflows/migrations.generated.js';
import { pageCuration } from '../../src/workflows/page-curation.js';
import { sitemapImport } from '../../src/workflows/sitemap-import.js';
import { describeOnePostgres } from '../support/postgres.js';
import { type TcpProxy, tcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';
import {
  gate,
  type Page,
  pagesWorkflow,
  startable,
  statuses,
  teamTable,
  temporaryFolder,
} from './fixture.js';

describeOnePostgres('a restart of the database', (postgres) => {
  it('during both shipped workflows loses nothing, and fetches and alerts nothing again', async () => {
    const pool = postgres.pool();
    await migrate(pool);
    await applyMigrations(pool, 'workflows', migrations);
    const asked: string[] = [];
    const bothAsked = gate();
    const stopped = gate();
    const web = createServer(async (request, response) => {
      asked.push(request.url ?? '');
      if (asked.length === 2) bothAsked.open();
      // Both have fetched their pages; the database is down when they write.
      await stopped.opened;
      response.end(
        request.url === '/sitemap.xml'
          ? `<urlset><url><loc>http://${request.headers.host}/new</loc></url></urlset>`
          : '<title>Found</title>',
      );
    });
    await new Promise<void>((resolve) => web.listen(0, '127.0.0.1', resolve));
    onTestFinished(() => {
      web.closeAllConnections();
      web.close();
    });
    const origin = `http://127.0.0.1:${(web.address() as AddressInfo).port}`;
    await pool.query('INSERT INTO sitemap_files (domain, url) VALUES ($1, $2)', [
      'x',
      `${origin}/sitemap.xml`,
    ]);
    await pool.query('INSERT INTO pages (domain, url) VALUES ($1, $2)', ['x', `${origin}/page`]);
    const open = { clock: systemClock, allowPrivateAddresses: true };
    const loop = startable(postgres, {
      pool,
      workflows: [
        defineWorkflow(sitemapImport(open)),
        defineWorkflow({ ...pageCuration(open), batchSize: 1 }),
      ],
      spoolFolder: temporaryFolder(),
    });
    await loop.start();
    await bothAsked.opened;
    await postgres.stop();
    stopped.open();
    await until(() => loop.isPaused, 'the database cannot be reached');
    await postgres.start();
    const done = "SELECT FROM pages WHERE page_processing_status = 'Completed' AND title = 'Found'";
    await until(async () => (await pool.query(done).catch(() => undefined))?.rowCount === 2, 'both are done');
    const { rows } = await pool.query('SELECT sitemap_import_status AS status FROM sitemap_files');
    expect(rows).toEqual([{ status: 'Completed' }]);
    expect(asked.sort()).toEqual(['/new', '/page', '/sitemap.xml']);
    expect(loop.log.said('ZOMBIE RECORD ALERT')).toEqual([]);
    expect((await pool.query('SELECT FROM smart_router.resets')).rowCount).toBe(0);
  });

  it('lets many records wait without a warning of Node', async () => {
    const admin = postgres.pool();
    await teamTable(admin, 12);
    const warnings: string[] = [];
    const onWarning = ({ name }: Error) => warnings.push(name);
    process.on('warning', onWarning);
    onTestFinished(() => void process.off('warning', onWarning));
    const proxy = await tcpProxy(postgres.port);
    const connectionString = postgres.url.replace(`:${postgres.port}/`, `:${proxy.port}/`);
    const down = gate();
    const work = async (_: Page, ctx: RecordContext) => {
      await down.opened;
      await ctx.tx((client) => client.query('SELECT 1'));
    };
    const loop = startable(postgres, {
      pool: postgres.pool({ connectionString }),
      workflows: [pagesWorkflow({ concurrency: 12, process: work })],
      spoolFolder: temporaryFolder(),
      heartbeat: { every: '1h' },
    });
    const run = loop.runOnce();
    await until(async () => (await statuses(admin)).Processing === 12, 'they run');
    await proxy.down();
    down.open();
    await until(() => loop.isPaused, 'it pauses');
    await proxy.up();
    expect(await run).toMatchObject({ completed: 12 });
    expect(warnings).toEqual([]);
  });
});

describeOnePostgres('a COMMIT without a reply', (postgres) => {
  /** Its COMMIT waits for another transaction; `during` runs then. */
  const commit = async (
    during: (parts: { admin: Pool; proxy: TcpProxy; pid: number; go(): Promise<unknown> }) => Promise<void>,
  ) => {
    const admin = postgres.pool();
    await teamTable(admin, 1);
    await admin.query('CREATE TABLE effects (page uuid UNIQUE DEFERRABLE INITIALLY DEFERRED)');
    const other = await postgres.client();
    const proxy = await tcpProxy(postgres.port);
    const connectionString = postgres.url.replace(`:${postgres.port}/`, `:${proxy.port}/`);
    const runs: string[] = [];
    const process = async ({ id }: Page, ctx: RecordContext) => {
      await other.query('BEGIN');
      await other.query('INSERT INTO effects VALUES ($1)', [id]);
      const result = await ctx.tx(async (client) => {
        await client.query('INSERT INTO effects VALUES ($1)', [id]);
        return `run ${runs.push('begun')}`;
      });
      runs.push(result);
    };
    const loop = startable(postgres, {
      pool: postgres.pool({ connectionString }),
      workflows: [pagesWorkflow({ process })],
      spoolFolder: temporaryFolder(),
      heartbeat: { every: '1h' },
    });
    const run = loop.runOnce();
    const waiting =
      "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query = 'COMMIT' AND datname = current_database()";
    let pid = 0;
    await until(async () => {
      pid = (await admin.query(waiting)).rows[0]?.pid ?? 0;
      return pid !== 0;
    }, 'the commit is under way');
    await during({ admin, proxy, pid, go: () => other.query('ROLLBACK') });
    expect(await run).toMatchObject({ completed: 1, failed: 0, abandoned: 0 });
    expect((await admin.query('SELECT FROM effects')).rowCount).toBe(1);
    return runs;
  };

  it('that was applied is not run again', async () => {
    const runs = await commit(async ({ admin, proxy, go }) => {
      proxy.loseReplies();
      await go();
      await until(async () => (await admin.query('SELECT FROM effects')).rowCount === 1, 'it is committed');
      proxy.reset();
    });
    expect(runs).toEqual(['begun', 'run 1']);
  });

  it('that is still in progress is waited for', async () => {
    const runs = await commit(async ({ admin, proxy, pid, go }) => {
      proxy.reset();
      const asks = "SELECT FROM pg_stat_activity WHERE query LIKE 'SELECT pg_xact_status%' AND pid <> $1";
      await until(async () => (await admin.query(asks, [pid])).rowCount === 1, 'it asks');
      await go();
    });
    expect(runs).toEqual(['begun', 'run 1']);
  });

  it('that was not applied is run again', async () => {
    const runs = await commit(async ({ admin, pid, go }) => {
      await admin.query('SELECT pg_terminate_backend($1)', [pid]);
      await go();
    });
    expect(runs).toEqual(['begun', 'begun', 'run 2']);
  });
});
