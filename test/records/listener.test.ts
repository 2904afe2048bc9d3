/** New records are found at once where LISTEN works, and by polling everywhere, also through PgBouncer. */
import { describe, expect, it } from 'vitest';
import { notify } from '../../src/records/index.js';
import { ManualClock } from '../support/manual-clock.js';
import { describeOnePostgres, describePostgres } from '../support/postgres.js';
import { pgBouncer, pgBouncerAvailable } from '../support/postgres-bouncer.js';
import { until } from '../support/until.js';
import {
  deadWorker,
  foreign,
  gate,
  keepHistory,
  mostOften,
  pagesWorkflow,
  recovers,
  startable,
  statuses,
  teamTable,
} from './fixture.js';

const listening =
  "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND (query LIKE 'LISTEN%' ) AND pid <> pg_backend_pid()";

describePostgres('wake-ups', (postgres) => {
  it('come from notify, a reset and a release, without a poll for an hour', async () => {
    const pool = postgres.pool();
    await teamTable(pool, 0);
    const loop = startable(postgres, { pool, workflows: [pagesWorkflow()], poll: '1h' });
    await loop.start();
    const listeners = async () => (await pool.query(listening)).rowCount ?? 0;
    await until(async () => (await listeners()) > 0, 'it listens');
    await pool.query("INSERT INTO pages (url) VALUES ('x')");
    await notify(pool, 'another workflow');
    await notify(pool);
    await until(async () => (await statuses(pool)).Completed === 1, 'notify woke it');

    await foreign(pool, 61);
    await recovers(postgres, { pool, workflows: [pagesWorkflow()] }).runOnce();
    await until(async () => (await statuses(pool)).Completed === 2, 'the reset woke it');

    // With the one that was woken still there, it could take them first.
    await loop.stop();
    await until(async () => (await listeners()) === 0, 'its connection is closed');
    const busy = gate();
    const slow = pagesWorkflow({ concurrency: 1, process: () => busy.opened });
    const other = startable(postgres, { pool, workflows: [slow], poll: '1h' });
    await pool.query("INSERT INTO pages (url) VALUES ('y'), ('z')");
    await other.start();
    await until(async () => (await statuses(pool)).Processing === 2, 'the other has taken both');
    await until(async () => (await listeners()) === 1, 'the other listens');
    await startable(postgres, { pool, workflows: [pagesWorkflow()], poll: '1h' }).start();
    await until(async () => (await listeners()) > 1, 'it listens, too');
    const stopped = other.stop();
    await until(async () => (await statuses(pool)).Completed === 3, 'the release woke it');
    busy.open();
    await stopped;
    expect(await statuses(pool)).toEqual({ Completed: 4 });
  });

  it('use their own connection, and reconnect after a break', async () => {
    const admin = postgres.pool();
    await teamTable(admin, 0);
    const clock = new ManualClock();
    const loop = startable(postgres, {
      pool: postgres.pool({ max: 1 }),
      workflows: [pagesWorkflow()],
      poll: '1h',
      clock,
    });
    await loop.start();
    const works = async (url: string) => {
      await until(async () => ((await admin.query(listening)).rowCount ?? 0) > 0, 'it listens');
      await admin.query('INSERT INTO pages (url) VALUES ($1)', [url]);
      await until(async () => {
        await notify(admin, 'pages');
        return (
          (await admin.query("SELECT FROM pages WHERE url = $1 AND status = 'Completed'", [url])).rowCount ===
          1
        );
      }, 'it was woken');
    };
    await works('x');
    await admin.query(`SELECT pg_terminate_backend(pid) FROM (${listening}) AS all_of_them`);
    await until(async () => ((await admin.query(listening)).rowCount ?? 0) === 0, 'the connection is closed');
    await until(() => {
      clock.advance(1000);
      return admin.query(listening).then(({ rowCount }) => (rowCount ?? 0) > 0);
    }, 'it connects again');
    await works('y');
  });
});

const available = pgBouncerAvailable();
const through = available === true ? describeOnePostgres : describe.skip;

through(`through PgBouncer in transaction mode${available === true ? '' : ` [${available}]`}`, ((
  postgres: Parameters<Parameters<typeof describeOnePostgres>[1]>[0],
) => {
  it('everything works but LISTEN, which is logged; new records are found by polling', async () => {
    const admin = postgres.pool();
    await teamTable(admin, 300);
    await keepHistory(admin);
    await admin.query('CREATE TABLE effects (page uuid)');
    const { url } = await pgBouncer(postgres, { poolSize: 3 });
    const pool = postgres.pool({ connectionString: url });
    await deadWorker(admin, { most: 50 });
    for (let i = 0; i < 20; i += 1) await foreign(admin, 61);
    const workflow = pagesWorkflow({
      batchSize: 30,
      process: async ({ id }, ctx) => {
        ctx.trace('at work');
        await ctx.tx((client) => client.query('INSERT INTO effects VALUES ($1)', [id]));
      },
    });
    const loops = [1, 2, 3].map(() =>
      startable(postgres, { pool, workflows: [workflow], heartbeat: { every: 50 }, poll: 50 }),
    );
    await Promise.all(loops.map((loop) => loop.start()));
    const recoveries = [1, 2].map(() => recovers(postgres, { pool, workflows: [workflow] }));
    await until(async () => {
      await Promise.all(recoveries.map((recovery) => recovery.runOnce()));
      return (await statuses(admin)).Completed === 320;
    }, 'all are done');
    expect(await mostOften(admin, 'Processing', 'Completed')).toBe(1);
    expect(
      (await admin.query('SELECT count(DISTINCT page)::integer AS n, count(*)::integer AS all FROM effects'))
        .rows,
    ).toEqual([{ n: 320, all: 320 }]);
    await until(
      () => loops[0]?.log.said('LISTEN does not work on this connection').length === 1,
      'it is said',
    );
    const beats = 'SELECT FROM smart_router.workers WHERE heartbeat_at > started_at';
    await until(async () => (await admin.query(beats)).rowCount === 3, 'all have a heartbeat');
    await admin.query("INSERT INTO pages (url) VALUES ('x')");
    await until(async () => (await statuses(admin)).Completed === 321, 'polling finds it');
    expect(loops.flatMap(({ log }) => log.lines.filter(({ level }) => level >= 50))).toEqual([]);
  });
}) as never);
