/** Database outages: retries, log lines, the spool, and the restart. */
import { execFileSync } from 'node:child_process';
import { chownSync, existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { describe, expect, it, onTestFinished } from 'vitest';
import { systemClock } from '../../src/clock.js';
import type { RecordObserver } from '../../src/records/index.js';
import { Sessions } from '../../src/records/sessions.js';
import { DiskSpool, RedisSpool, SpoolChain } from '../../src/records/spool.js';
import type { Outcome } from '../../src/records/store.js';
import { type Engine, startPreferred } from '../support/engines.js';
import { describeOnePostgres, type SuitePostgres } from '../support/postgres.js';
import { type TcpProxy, tcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';
import {
  gate,
  keepHistory,
  mostOften,
  type Page,
  page,
  pagesWorkflow,
  recovers,
  silence,
  startable,
  statuses,
  teamTable,
  temporaryFolder,
} from './fixture.js';

/** A way to the database that can be cut. */
async function breakable(postgres: SuitePostgres): Promise<{ proxy: TcpProxy; url: string }> {
  const proxy = await tcpProxy(postgres.port);
  return { proxy, url: postgres.url.replace(`:${postgres.port}/`, `:${proxy.port}/`) };
}

/** How often each event happened. */
function counting(): { told: Record<string, number>; observer: RecordObserver } {
  const told: Record<string, number> = {};
  const add = (what: string, n = 1) => {
    told[what] = (told[what] ?? 0) + n;
  };
  return {
    told,
    observer: {
      zombie: () => add('zombie'),
      spooled: (_, n) => add('spooled', n),
      replayed: (_, n) => add('replayed', n),
      rejected: (_, n) => add('rejected', n),
      finished: (_, outcome, n) => add(outcome, n),
      breaker: (isOpen) => add(isOpen ? 'opened' : 'closed'),
      session: (outcome) => add(`session ${outcome}`),
    },
  };
}

const files = (folder: string) =>
  existsSync(folder)
    ? readdirSync(folder, { recursive: true })
        .map(String)
        .filter((name) => name.endsWith('.jsonl'))
    : [];

describeOnePostgres('without a session', (postgres) => {
  it('tries three times a second apart, then marks the record Failed once a session works', async () => {
    const admin = postgres.pool();
    await teamTable(admin, 1);
    const pool = postgres.pool({ max: 2 });
    const { told, observer } = counting();
    const hogs: { release(): void }[] = [];
    const loop = startable(postgres, {
      pool,
      sessionTimeout: 200,
      heartbeat: { every: '1h' },
      observer,
      workflows: [
        pagesWorkflow({
          timeout: '1s',
          process: async (_, ctx) => {
            // The program itself has taken every connection.
            hogs.push(await pool.connect(), await pool.connect());
            await ctx.tx((client) => client.query('SELECT 1'));
          },
        }),
      ],
    });
    // Opened before: the session timeout is for the waits, not for the first use of a connection.
    const sessions = new Sessions({ pool, clock: systemClock });
    await Promise.all([sessions.query('SELECT 1'), sessions.query('SELECT 1')]);
    expect(pool.idleCount).toBe(2);
    const run = loop.runOnce();
    const failed = () => loop.log.said('no session to finish records');
    await until(() => failed().length === 2, 'two tries fail');
    for (const hog of hogs) hog.release();
    expect(await run).toMatchObject({ claimed: 1, failed: 1, abandoned: 0 });
    expect(failed().map(({ attempt }) => attempt)).toEqual([1, 2]);
    const [first, second] = failed().map(({ time }) => Number(time));
    expect((second ?? 0) - (first ?? 0)).toBeGreaterThanOrEqual(1000);
    expect(await page(admin)).toMatchObject({
      status: 'Failed',
      error: 'Failed to obtain processing session',
    });
    expect(told.zombie).toBeUndefined();
    expect(told['session failed']).toBeGreaterThanOrEqual(3);
  });

  it('claiming pauses, probes and resumes without other attempts', async () => {
    const admin = postgres.pool();
    await teamTable(admin, 1);
    const { proxy, url } = await breakable(postgres);
    const { told, observer } = counting();
    const loop = startable(postgres, {
      pool: postgres.pool({ connectionString: url }),
      workflows: [pagesWorkflow()],
      heartbeat: { every: '1h' },
      poll: 10,
      observer,
    });
    await loop.start();
    await until(async () => (await statuses(admin)).Completed === 1, 'it works');
    await proxy.down();
    await until(() => loop.isPaused, 'it pauses');
    const tries = () => loop.log.said('claim failed').length;
    const tried = tries();
    await admin.query("INSERT INTO pages (url) VALUES ('x'), ('y')");
    // The first probe comes after a second; the polls would have come a hundred times by then.
    await until(() => (told['session failed'] ?? 0) > tried, 'a probe fails');
    expect(tries()).toBe(tried);
    expect(told).toMatchObject({ opened: 1 });
    await proxy.up();
    await until(async () => (await statuses(admin)).Completed === 3, 'it resumes');
    expect(told).toMatchObject({ opened: 1, closed: 1 });
    expect(loop.log.said('claiming paused')).toMatchObject([{ level: 50 }]);
  });

  it('stop does not wait for the database, and does not report that it answers', async () => {
    const admin = postgres.pool();
    await teamTable(admin, 0);
    const { proxy, url } = await breakable(postgres);
    const loop = startable(postgres, {
      pool: postgres.pool({ connectionString: url }),
      workflows: [pagesWorkflow()],
      heartbeat: { every: '1h' },
      poll: 10,
    });
    await loop.start();
    await proxy.down();
    await until(() => loop.isPaused, 'it pauses');
    await loop.stop();
    expect(loop.log.said('claiming resumed')).toEqual([]);
    expect(loop.log.said('worker not signed off')).toHaveLength(1);
  });

  /** Two records are processed during an outage: one completes, one fails. */
  const outage = async (more: { redis?: Redis } = {}, during = async () => {}) => {
    const folder = temporaryFolder();
    const admin = postgres.pool();
    await teamTable(admin, 2);
    await keepHistory(admin);
    const { proxy, url } = await breakable(postgres);
    const { told, observer } = counting();
    const down = gate();
    const process = async ({ url: at }: Page) => {
      await down.opened;
      if (at.endsWith('/2')) throw new Error('no');
    };
    const options = {
      spoolFolder: folder,
      heartbeat: { every: '1h' },
      observer,
      ...more,
    };
    const loop = startable(postgres, {
      ...options,
      pool: postgres.pool({ connectionString: url }),
      workflows: [pagesWorkflow({ process })],
    });
    const run = loop.runOnce();
    await until(async () => (await statuses(admin)).Processing === 2, 'they run');
    await proxy.down();
    await during();
    down.open();
    expect(await run).toMatchObject({ claimed: 2, completed: 0, failed: 0, abandoned: 0, spooled: 2 });
    expect(told).toMatchObject({ spooled: 2, opened: 1 });
    expect(await statuses(admin)).toEqual({ Processing: 2 });
    const successor = () => startable(postgres, { ...options, pool: admin, workflows: [pagesWorkflow()] });
    return { admin, proxy, loop, told, folder, successor };
  };
  const done = { Completed: 1, Failed: 1 };

  it('finished work is spooled on disk and written when the database is back', async () => {
    const { admin, proxy, told, folder, loop } = await outage();
    expect(files(folder)).toHaveLength(1);
    await proxy.up();
    await until(() => told.closed === 1, 'the breaker closes');
    expect(await statuses(admin)).toEqual(done);
    expect((await admin.query("SELECT error FROM pages WHERE status = 'Failed'")).rows).toEqual([
      { error: 'no' },
    ]);
    expect(told).toMatchObject({ replayed: 2, completed: 1, failed: 1 });
    expect(files(folder)).toEqual([]);
    expect(await loop.runOnce()).toMatchObject({ claimed: 0 });
  });

  it('finished work survives its process, and is written once', async () => {
    const { admin, loop, told, folder, successor } = await outage();
    await loop.stop();
    expect(files(folder)).toHaveLength(1);
    const next = successor();
    await next.start();
    expect(await statuses(admin)).toEqual(done);
    expect(told).toMatchObject({ replayed: 2 });
    await next.stop();
    await successor().start();
    expect(told).toMatchObject({ replayed: 2, completed: 1 });
    expect(await mostOften(admin, 'Processing', 'Completed')).toBe(1);
  });

  it('a spooled outcome is late if its record was reset in between', async () => {
    const { admin, loop, told, successor } = await outage();
    await loop.stop();
    await silence(admin);
    expect(await recovers(postgres, { pool: admin, workflows: [pagesWorkflow()] }).runOnce()).toMatchObject({
      requeued: 2,
    });
    const next = successor();
    expect(await next.runOnce()).toMatchObject({ claimed: 2, completed: 2 });
    expect(told).toMatchObject({ rejected: 2 });
    expect(await statuses(admin)).toEqual({ Completed: 2 });
    expect(await mostOften(admin, 'Processing', 'Completed')).toBe(1);
  });

  it('a late outcome beside the valid one of the same record does not change it', async () => {
    const { admin, loop, folder, successor } = await outage();
    await loop.stop();
    const [file = ''] = files(folder).map((name) => join(folder, name));
    const lines = readFileSync(file, 'utf8').trim().split('\n');
    const late = lines.map((line) => JSON.stringify([JSON.parse(line)[0], '0', 'late']));
    writeFileSync(file, [...late, ...lines, ...late].join('\n'));
    await successor().start();
    expect(await statuses(admin)).toEqual(done);
    expect((await admin.query("SELECT error FROM pages WHERE status = 'Failed'")).rows).toEqual([
      { error: 'no' },
    ]);
  });

  it('a row that the database refuses in the replay does not block others', async () => {
    const { admin, proxy, told } = await outage();
    await admin.query(
      "ALTER TABLE pages ADD CONSTRAINT never CHECK (url NOT LIKE '%/1' OR status = 'Processing')",
    );
    await proxy.up();
    await until(() => told.closed === 1, 'the breaker closes');
    expect(await statuses(admin)).toEqual({ Processing: 1, Failed: 1 });
    expect(told).toMatchObject({ zombie: 1, failed: 1 });
  });

  it('outcomes spooled for one database are never written to another', async () => {
    const { admin, loop, folder, successor } = await outage();
    await loop.stop();
    const { rows } = await admin.query('SELECT id FROM smart_router.installation');
    await admin.query('UPDATE smart_router.installation SET id = gen_random_uuid()');
    const stranger = successor();
    await stranger.start();
    expect(await statuses(admin)).toEqual({ Processing: 2 });
    await stranger.stop();
    expect(files(folder)).toHaveLength(1);
    await admin.query('UPDATE smart_router.installation SET id = $1', [rows[0].id]);
    await successor().start();
    expect(await statuses(admin)).toEqual(done);
  });

  const valkey = async (): Promise<{ engine: Engine; redis: Redis }> => {
    const engine = await startPreferred();
    // A client that never gives up, as many programs have it.
    const redis = new Redis(engine.url, { maxRetriesPerRequest: null });
    redis.on('error', () => {});
    onTestFinished(async () => {
      redis.disconnect();
      await engine.stop();
    });
    return { engine, redis };
  };

  it('with Redis outcomes are spooled there', async () => {
    const { redis } = await valkey();
    const { admin, proxy, told, folder } = await outage({ redis });
    expect(files(folder)).toEqual([]);
    const keys = await redis.keys('*');
    expect(keys).toEqual([expect.stringMatching(/^smart_router:records:spool:[0-9a-f-]{36}\/pages$/)]);
    expect(await redis.llen(keys[0] ?? '')).toBe(2);
    await proxy.up();
    await until(() => told.closed === 1, 'the breaker closes');
    expect(await statuses(admin)).toEqual(done);
    expect(await redis.keys('*')).toEqual([]);
  });

  it('with an unreachable Redis outcomes are spooled on disk and written before Redis is back', async () => {
    const { engine, redis } = await valkey();
    const { admin, proxy, told, folder } = await outage({ redis }, () => engine.pause());
    expect(files(folder)).toHaveLength(1);
    await proxy.up();
    await until(() => told.closed === 1, 'the breaker closes');
    expect(await statuses(admin)).toEqual(done);
    expect(told).toMatchObject({ replayed: 2, completed: 1 });
    await engine.resume();
  });

  it('outcomes in an unreachable Redis are replayed when it is back', async () => {
    const { engine, redis } = await valkey();
    const { admin, proxy, told, loop } = await outage({ redis });
    await engine.pause();
    await proxy.up();
    await until(() => told.closed === 1, 'the breaker closes: the database is there');
    expect(await statuses(admin)).toEqual({ Processing: 2 });
    await engine.resume();
    expect(await loop.runOnce()).toMatchObject({ claimed: 0 });
    expect(await statuses(admin)).toEqual(done);
  });
});

describe('a spool', () => {
  const outcomes: Outcome[] = [
    { id: 'a', token: '1', error: null },
    { id: 'b "\n', token: '2', error: 'no\n' },
  ];
  const content = async (spool: SpoolChain | DiskSpool | RedisSpool, place: string) => {
    const found: Outcome[] = [];
    await spool.replay(place, async (batch) => void found.push(...batch));
    return found;
  };

  it('skips a FIFO in its folder, and names a folder that cannot be used', async () => {
    const folder = temporaryFolder();
    const spool = new DiskSpool(folder);
    await spool.add('w', [{ id: '1', token: '2', error: null }]);
    execFileSync('mkfifo', [join(folder, 'w', 'a.jsonl'), join(folder, 'fifo')]);
    expect(await content(spool, 'w')).toHaveLength(1);
    expect(await spool.problem()).toBeUndefined();
    expect(await new DiskSpool(join(folder, 'fifo')).problem()).toMatch(/EEXIST|ENOTDIR/);
    const foreign = temporaryFolder();
    if (process.getuid?.() !== 0) return;
    chownSync(foreign, 65_534, 65_534);
    expect(await new DiskSpool(foreign).problem()).toBe('it belongs to another user (uid 65534)');
  });

  it('on disk rejects outcomes beyond its limit, and keeps the rest', async () => {
    const spool = new DiskSpool(temporaryFolder(), 100);
    await spool.add('x/y', outcomes);
    await expect(spool.add('z', [...outcomes, ...outcomes, ...outcomes])).rejects.toThrow('is full');
    expect(await content(spool, 'z')).toEqual([]);
    expect(await content(spool, 'x/y')).toEqual(outcomes);
    await spool.add('z', outcomes);
  });

  it('keeps outcomes that could not be written, and deletes the others', async () => {
    const folder = temporaryFolder();
    const spool = new DiskSpool(folder);
    await spool.add('x', outcomes);
    await expect(
      spool.replay('x', async () => {
        throw new Error('not yet');
      }),
    ).rejects.toThrow('not yet');
    expect(await content(new DiskSpool(folder), 'x')).toEqual(outcomes);
    expect(await content(spool, 'x')).toEqual([]);
  });

  it('in Redis rejects outcomes beyond its limit, and ignores invalid entries', async () => {
    const engine = await startPreferred();
    const redis = new Redis(engine.url);
    onTestFinished(async () => {
      redis.disconnect();
      await engine.stop();
    });
    const spool = new RedisSpool(redis, systemClock, 3);
    const key = 'smart_router:records:spool:x';
    await spool.add('x', outcomes);
    await expect(spool.add('x', outcomes)).rejects.toThrow('is full');
    await redis.rpush(key, 'nonsense');
    expect(await content(spool, 'x')).toEqual(outcomes);
    expect(await redis.llen(key)).toBe(0);
    const disk = new DiskSpool(temporaryFolder());
    const both = new SpoolChain([spool, disk]);
    await both.add('x', outcomes);
    await both.add('x', [{ id: 'c', token: '3', error: null }, ...outcomes]);
    expect((await content(both, 'x')).map(({ id }) => id)).toEqual(['a', 'b "\n', 'c', 'a', 'b "\n']);
  });

  it('that is unusable fails, and reports that it may contain outcomes', async () => {
    const folder = join(temporaryFolder(), 'file');
    writeFileSync(folder, '');
    const spool = new SpoolChain([new DiskSpool(folder)]);
    await expect(spool.add('x', outcomes)).rejects.toThrow();
    expect(await spool.replay('x', async () => {})).toBe(false);
  });
});
