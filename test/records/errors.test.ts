/** Errors and log lines: failed handlers, an unreachable database, missing rights. */
import pg, { type Pool } from 'pg';
import { describe, expect, it, onTestFinished } from 'vitest';
import { type Clock, systemClock } from '../../src/clock.js';
import { defineWorkflow, migrate } from '../../src/records/index.js';
import { describeOnePostgres, describePostgres } from '../support/postgres.js';
import { tcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';
import {
  gate,
  type Page,
  pagesWorkflow,
  recovers,
  startable,
  statuses,
  teamTable,
  temporaryFolder,
} from './fixture.js';

describePostgres('an error of a handler', (postgres) => {
  const withoutColumn = (process: (page: Page) => void) =>
    defineWorkflow<Page>({
      name: 'pages',
      table: 'pages',
      status: {
        column: 'status',
        queued: 'Queued',
        processing: 'Processing',
        completed: 'Completed',
        failed: 'Failed',
      },
      touchedAt: 'updated_at',
      process,
    });

  it('is a warning for each record without an error column', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 3);
    const workflow = withoutColumn(({ url }) => {
      if (!url.endsWith('/3')) throw new Error(`${'x'.repeat(2000)} ${url}`);
    });
    const loop = startable(postgres, { pool, workflows: [workflow] });
    expect(await loop.runOnce()).toMatchObject({ completed: 1, failed: 2 });
    const lines = loop.log.said('record failed');
    expect(lines).toHaveLength(2);
    const { rows } = await pool.query("SELECT id FROM pages WHERE status = 'Failed'");
    expect(lines.map(({ record }) => record).sort()).toEqual(rows.map(({ id }) => id).sort());
    for (const { level, reason } of lines) {
      expect(level).toBe(40);
      expect(String(reason)).toMatch(/^x+…$/);
      expect(String(reason)).toHaveLength(1024);
    }
  });

  it('is a debug line with an error column', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 1);
    const process = () => Promise.reject(new Error('no luck'));
    const loop = startable(postgres, { pool, workflows: [pagesWorkflow({ process })] });
    expect(await loop.runOnce()).toMatchObject({ failed: 1 });
    expect(loop.log.said('record failed')).toMatchObject([{ level: 20, reason: 'no luck' }]);
  });
});

describeOnePostgres('a database that becomes unreachable', (postgres) => {
  it('leaks no listeners for any number of slots', async () => {
    const warnings: string[] = [];
    const onWarning = ({ name }: Error) => warnings.push(name);
    process.on('warning', onWarning);
    onTestFinished(() => void process.off('warning', onWarning));
    const admin = postgres.pool();
    await teamTable(admin, 90);
    const proxy = await tcpProxy(postgres.port);
    let aheadMs = 0;
    const clock: Clock = { ...systemClock, monotonic: () => systemClock.monotonic() + aheadMs };
    const hold = gate();
    const loop = startable(postgres, {
      pool: postgres.pool({
        connectionString: postgres.url.replace(`:${postgres.port}/`, `:${proxy.port}/`),
      }),
      workflows: [pagesWorkflow({ concurrency: 30, batchSize: 90, process: () => hold.opened })],
      heartbeat: { every: '1h' },
      spoolFolder: temporaryFolder(),
      clock,
    });
    await loop.start();
    await until(async () => (await statuses(admin)).Processing === 90, 'all are claimed, thirty run');
    await proxy.down();
    // Waiting claims were confirmed too long ago: every slot must renew first.
    aheadMs = 15_000;
    hold.open();
    await until(() => loop.isPaused, 'it pauses');
    await proxy.up();
    await until(async () => (await statuses(admin)).Completed === 90, 'all are finished', 60_000);
    expect(warnings).toEqual([]);
  });

  it('is reported once, in the log and to a program that starts', async () => {
    await teamTable(postgres.pool(), 0);
    const proxy = await tcpProxy(postgres.port);
    const connectionString = postgres.url.replace(`:${postgres.port}/`, `:${proxy.port}/`);
    const pool = postgres.pool({ connectionString });
    const loop = startable(postgres, { pool, workflows: [pagesWorkflow()], heartbeat: { every: '1h' } });
    await loop.start();
    await proxy.down();
    await loop.stop();
    const [line] = loop.log.said('worker not signed off') as unknown as { err: { message: string } }[];
    expect(line?.err.message).toMatch(/^no session: |^Connection terminated/);
    expect(line?.err.message).not.toMatch(/(.{10,}): \1/);
  });
});

describe('a missing database', () => {
  it.each(['127.0.0.1', 'localhost'])('is one clear error of the first start (%s)', async (host) => {
    const pool = new pg.Pool({ host, port: 1, user: 'nobody', database: 'none' });
    onTestFinished(() => pool.end());
    const ended: (() => unknown)[] = [];
    onTestFinished(async () => {
      for (const end of ended) await end();
    });
    const suite = { onEnd: (end: () => unknown) => void ended.push(end) } as never;
    const workflows = [pagesWorkflow()];
    const clear = /^cannot use the database: connect ECONNREFUSED [\d.:]+:1$/;
    await expect(migrate(pool)).rejects.toThrow(clear);
    await expect(startable(suite, { pool, workflows }).start()).rejects.toThrow(clear);
    await expect(recovers(suite, { pool, workflows }).start()).rejects.toThrow(clear);
  });
});

describePostgres('a role without the needed rights', (postgres) => {
  const role = `few_${process.pid}`;

  async function few(): Promise<{ admin: Pool; pool: Pool }> {
    const admin = postgres.pool();
    await teamTable(admin, 1);
    await admin.query(`CREATE ROLE ${role} LOGIN PASSWORD 'pass'`);
    postgres.onEnd(() => admin.query(`DROP OWNED BY ${role}; DROP ROLE ${role}`));
    const url = new URL(postgres.url);
    url.username = role;
    url.password = 'pass';
    return { admin, pool: postgres.pool({ connectionString: url.href }) };
  }

  it('is rejected at the start with each missing GRANT in turn', async () => {
    const { admin, pool } = await few();
    const starting = () => startable(postgres, { pool, workflows: [pagesWorkflow()] }).start();
    const inOurs = [
      ['schema smart_router', 'GRANT USAGE ON SCHEMA smart_router TO <role>'],
      [
        'table migrations',
        'GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA smart_router TO <role>',
      ],
    ];
    for (const [what, grant] of inOurs) {
      await expect(starting()).rejects.toMatchObject({
        name: 'ConfigError',
        problems: [`permission denied for ${what}: ${grant}`],
      });
      await admin.query(String(grant).replace('<role>', role));
    }
    await expect(starting()).rejects.toMatchObject({
      problems: [
        `workflow pages: role ${role} may not SELECT and UPDATE "pages": GRANT SELECT, UPDATE ON "pages" TO ${role}`,
        `workflow pages: role ${role} may not use the sequence smart_router.tokens: GRANT USAGE ON ALL SEQUENCES IN SCHEMA smart_router TO ${role}`,
      ],
    });
    await admin.query(`GRANT SELECT ON pages TO ${role}`);
    await admin.query(`GRANT USAGE ON ALL SEQUENCES IN SCHEMA smart_router TO ${role}`);
    const recovery = recovers(postgres, { pool, workflows: [pagesWorkflow()] });
    const missing = `workflow pages: role ${role} may not UPDATE "pages": GRANT UPDATE ON "pages" TO ${role}`;
    await expect(starting()).rejects.toMatchObject({ problems: [missing] });
    await expect(recovery.start()).rejects.toMatchObject({ problems: [missing] });
    // Of the columns that are written it is enough.
    await admin.query(`GRANT UPDATE (status, error, updated_at) ON pages TO ${role}`);
    expect(await migrate(pool)).toEqual({ applied: [] });
    await recovery.start();
    await recovery.stop();
    const loop = startable(postgres, { pool, workflows: [pagesWorkflow()] });
    expect(await loop.runOnce()).toMatchObject({ completed: 1 });
  });
});
